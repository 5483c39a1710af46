package object

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"time"
)

// SelfCheckPrefix is where SelfCheck writes; what a crash leaves there may be
// deleted at any time.
const SelfCheckPrefix = "thermocline-selfcheck/"

// cleanUpWithin bounds what a failed check adds to the start.
const cleanUpWithin = 5 * time.Second

// Probe is what an adapter offers beyond Store so that SelfCheck can try pages
// and parts without thousands of keys or megabytes.
type Probe interface {
	// PutInParts uploads by multipart whatever the size, in parts of PartBytesMin.
	PutInParts(ctx context.Context, key string, body Body, o PutOptions) error
	// ListInPages lists with at most pageKeys keys in a page.
	ListInPages(ctx context.Context, prefix, after string, pageKeys int, fn func(Info) bool) error
}

// SelfCheck tries what a broker relies on and returns what is wrong, in plain
// words; none means that the store will do. It takes a dozen requests and
// some 6 MiB, below a prefix of its own, and cleans up. When the store cannot
// be used at all, only that is reported.
func SelfCheck(ctx context.Context, s Store) []error {
	var id [8]byte
	_, _ = rand.Read(id[:]) // never fails
	c := &check{ctx: ctx, s: s, prefix: SelfCheckPrefix + hex.EncodeToString(id[:]) + "/"}
	defer c.cleanUp()
	if !c.basic() {
		return c.wrong
	}
	c.ranges()
	c.createOnly()
	c.wrongChecksum()
	c.pages()
	c.parts()
	c.deletes()
	return c.wrong
}

// check is one run.
type check struct {
	ctx    context.Context
	s      Store
	prefix string
	keys   []string // written so far
	wrong  []error
}

func (c *check) report(err error, format string, args ...any) {
	said := fmt.Sprintf(format, args...)
	if err != nil {
		c.wrong = append(c.wrong, fmt.Errorf("%s: %s: %w", c.s, said, err))
		return
	}
	c.wrong = append(c.wrong, fmt.Errorf("%s: %s", c.s, said))
}

func (c *check) put(name string, body []byte, ifAbsent bool) error {
	key := c.prefix + name
	if !slices.Contains(c.keys, key) {
		c.keys = append(c.keys, key)
	}
	return c.s.Put(c.ctx, key, bytes.NewReader(body), PutOptions{CRC32C: CRC32C(body), IfAbsent: ifAbsent})
}

var checkBody = []byte("written by thermocline when it starts; may be deleted")

// basic reports only the first problem: the others would follow from it.
func (c *check) basic() bool {
	if err := c.put("a", checkBody, false); err != nil {
		c.keys = nil // most likely nothing is there, and the store would not delete it either
		switch {
		case errors.Is(err, ErrDenied):
			c.report(err, "writing is denied: check the credentials and that they allow PutObject")
		case errors.Is(err, ErrNoBucket):
			c.report(err, "the bucket does not exist: create it first")
		case errors.Is(err, ErrUnavailable):
			c.report(err, "the store cannot be reached: check the address and that it runs")
		case errors.Is(err, ErrCorrupt), errors.Is(err, ErrRefused):
			c.report(err, "a PUT with a CRC32C checksum is refused: if the store does not know checksums, add checksum=none to the URL")
		default:
			c.report(err, "writing an object failed")
		}
		return false
	}
	info, err := c.s.Head(c.ctx, c.prefix+"a")
	switch {
	case err != nil:
		c.report(err, "HEAD of an object just written failed")
		return false
	case info.Size != int64(len(checkBody)):
		c.report(nil, "an object of %d bytes was stored with %d: the store may keep the upload's framing as content; try checksum=none", len(checkBody), info.Size)
		return false
	case info.HasCRC && info.CRC32C != CRC32C(checkBody):
		c.report(nil, "HEAD names a CRC32C of %08x, expected %08x", info.CRC32C, CRC32C(checkBody))
		return false
	}
	_, err = c.s.Head(c.ctx, c.prefix+"never-written")
	if !errors.Is(err, ErrNotFound) {
		c.report(err, "HEAD of a missing key does not say that it is missing (with S3, ListBucket permission is needed for that)")
		return false
	}
	return true
}

func (c *check) ranges() {
	for _, r := range []struct{ from, n int }{{0, 7}, {11, 20}, {len(checkBody) - 5, 50}} {
		p := make([]byte, r.n)
		n, err := c.s.GetRange(c.ctx, c.prefix+"a", int64(r.from), p)
		want := checkBody[r.from:min(r.from+r.n, len(checkBody))]
		if err != nil {
			c.report(err, "a ranged GET failed")
		} else if !bytes.Equal(p[:n], want) {
			c.report(nil, "a ranged GET of %d bytes at %d returned other bytes than were written", r.n, r.from)
		}
	}
	if _, err := c.s.GetRange(c.ctx, c.prefix+"a", int64(len(checkBody))+9, make([]byte, 4)); !errors.Is(err, ErrRange) {
		c.report(err, "a ranged GET beyond the end is not refused as such")
	}
}

func (c *check) createOnly() {
	if err := c.put("create-only", checkBody, true); err != nil {
		c.report(err, "a create-only PUT (If-None-Match: *) of a free key failed")
		return
	}
	if err := c.put("create-only", []byte("second"), true); !errors.Is(err, ErrExists) {
		c.report(err, "a create-only PUT (If-None-Match: *) overwrites: records of who is in sync would not be safe; use a store that honours conditional writes")
	}
}

func (c *check) wrongChecksum() {
	key := c.prefix + "wrong-checksum"
	c.keys = append(c.keys, key)
	err := c.s.Put(c.ctx, key, bytes.NewReader(checkBody), PutOptions{CRC32C: CRC32C(checkBody) ^ 1})
	if !errors.Is(err, ErrCorrupt) {
		c.report(err, "an upload with a wrong checksum is not refused as such: damage on the way would not be noticed (checksum=none accepts that)")
	}
}

func (c *check) pages() {
	want := []string{c.prefix + "list/a!b", c.prefix + "list/a/b", c.prefix + "list/a0", c.prefix + "list/b"}
	for _, key := range want {
		if err := c.put(key[len(c.prefix):], checkBody, false); err != nil {
			c.report(err, "writing an object failed")
			return
		}
	}
	list := c.s.List
	if probe, ok := As[Probe](c.s); ok {
		list = func(ctx context.Context, prefix, after string, fn func(Info) bool) error {
			return probe.ListInPages(ctx, prefix, after, 2, fn)
		}
	}
	for from, after := range []string{"", want[0], want[1]} {
		var got []string
		err := list(c.ctx, c.prefix+"list/", after, func(i Info) bool { got = append(got, i.Key); return true })
		if err != nil {
			c.report(err, "LIST failed (with S3, ListBucket permission is needed)")
			return
		}
		if !slices.Equal(got, want[from:]) {
			c.report(nil, "LIST in pages after %q: expected %q, found %q", after, want[from:], got)
			return
		}
	}
}

func (c *check) parts() {
	probe, ok := As[Probe](c.s)
	if !ok {
		return // no multipart in such a store
	}
	body := bytes.Repeat([]byte("part"), PartBytesMin/4+100)
	key := c.prefix + "parts"
	c.keys = append(c.keys, key)
	if err := probe.PutInParts(c.ctx, key, bytes.NewReader(body), PutOptions{CRC32C: CRC32C(body)}); err != nil {
		c.report(err, "a multipart upload failed")
		return
	}
	p := make([]byte, 800)
	n, err := c.s.GetRange(c.ctx, key, PartBytesMin-200, p)
	if err != nil || !bytes.Equal(p[:n], body[PartBytesMin-200:][:min(800, len(body)-(PartBytesMin-200))]) {
		c.report(err, "a multipart upload reads back as other bytes than were written")
	}
	other := bytes.Repeat([]byte("trap"), PartBytesMin/4+100)
	if err := probe.PutInParts(c.ctx, key, bytes.NewReader(other), PutOptions{CRC32C: CRC32C(other), IfAbsent: true}); !errors.Is(err, ErrExists) {
		c.report(err, "a create-only multipart upload (If-None-Match: * at its completion) overwrites")
	}
}

func (c *check) deletes() {
	failed, err := c.s.Delete(c.ctx, append([]string{c.prefix + "never-written"}, c.keys...))
	for key, kerr := range failed {
		c.report(kerr, "DELETE of %q failed (of a missing key it must succeed; DeleteObject permission is needed)", key)
		break
	}
	if err != nil {
		c.report(err, "DELETE of many keys failed")
	}
	if err != nil || len(failed) > 0 {
		return
	}
	err = c.s.List(c.ctx, c.prefix, "", func(i Info) bool {
		c.report(nil, "%q is listed after it was deleted", i.Key)
		return false
	})
	if err != nil {
		c.report(err, "LIST failed")
	}
	c.keys = nil
}

// cleanUp is the best effort after a failed check: its own failure was
// reported by deletes, or hides behind what made it necessary.
func (c *check) cleanUp() {
	if len(c.keys) > 0 {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(c.ctx), cleanUpWithin)
		defer cancel()
		_, _ = c.s.Delete(ctx, c.keys)
	}
}
