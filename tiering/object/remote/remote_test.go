package remote

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"thermocline/tiering/object"
	"thermocline/tiering/object/objecttest"
)

// quick are options under which a test that meets failures ends at once.
func quick() object.Options {
	return object.Options{Attempts: 4, Backoff: time.Microsecond, PartBytes: object.PartBytesMin, Timeout: 10 * time.Second}
}

func store(f *fake, o object.Options) *Store {
	return New(Config{Client: f, Prefix: "/pre/fix/", Options: o})
}

func put(s object.Store, key string, body []byte, ifAbsent bool) error {
	return s.Put(context.Background(), key, bytes.NewReader(body), object.PutOptions{CRC32C: object.CRC32C(body), IfAbsent: ifAbsent})
}

func TestAcceptance(t *testing.T) {
	objecttest.Acceptance(t, func(*testing.T) object.Store { return store(newFake(), quick()) },
		objecttest.Options{LargeBytes: 2*object.PartBytesMin + 77, ListKeys: 2050})
}

func TestAcceptanceWhileRequestsFail(t *testing.T) {
	objecttest.Acceptance(t, func(*testing.T) object.Store {
		f := newFake()
		var mu sync.Mutex
		odds := rand.New(rand.NewPCG(1, 2))
		f.hook = func(_ context.Context, c call) error {
			mu.Lock()
			defer mu.Unlock()
			if odds.IntN(4) == 0 { // before or after it was carried out
				return answer(503, "SlowDown")
			}
			return nil
		}
		o := quick()
		o.Attempts = 30
		return store(f, o)
	}, objecttest.Options{LargeBytes: 2*object.PartBytesMin + 77, ListKeys: 1100})
}

func TestKeysGetThePrefix(t *testing.T) {
	f := newFake()
	if err := put(store(f, quick()), "a/b", []byte("x"), false); err != nil {
		t.Fatal(err)
	}
	if f.objects["pre/fix/a/b"] == nil {
		t.Errorf("expected pre/fix/a/b, got %v", f.objects)
	}
}

func TestAttemptsAreBounded(t *testing.T) {
	f := newFake()
	s := store(f, quick())
	f.hook = func(context.Context, call) error { return answer(503, "SlowDown") }
	if err := put(s, "x", []byte("x"), false); !object.Retryable(err) || f.calls["put"] != 4 {
		t.Errorf("expected four attempts and a retryable error, got %d, %v", f.calls["put"], err)
	}
	_, err := s.GetRange(t.Context(), "x", 0, make([]byte, 10))
	if !object.Retryable(err) || f.calls["get"] != 4 {
		t.Errorf("get: expected four attempts and a retryable error, got %d, %v", f.calls["get"], err)
	}
	f.hook = func(context.Context, call) error { return answer(403, "AccessDenied") }
	if _, err := s.Head(t.Context(), "x"); !errors.Is(err, object.ErrDenied) || f.calls["head"] != 1 {
		t.Errorf("denied: expected one attempt, got %d, %v", f.calls["head"], err)
	}
}

func TestBackOffEndsWithTheContext(t *testing.T) {
	f := newFake()
	o := quick()
	o.Backoff, o.BackoffMax = time.Hour, time.Hour
	s := store(f, o)
	ctx, cancel := context.WithCancel(t.Context())
	f.hook = func(context.Context, call) error { cancel(); return answer(503, "SlowDown") }
	_, err := s.Head(ctx, "x")
	if !errors.Is(err, object.ErrUnavailable) || !errors.Is(err, context.Canceled) {
		t.Errorf("expected the caller's cancellation, got %v", err)
	}
}

func TestAStalledRequestIsGivenUp(t *testing.T) {
	f := newFake()
	o := quick()
	o.Timeout, o.Attempts = 5*time.Millisecond, 2
	s := store(f, o)
	f.hook = func(ctx context.Context, c call) error { <-ctx.Done(); return ctx.Err() }
	_, err := s.Head(t.Context(), "x")
	if !object.Retryable(err) || !strings.Contains(err.Error(), errStalled.Error()) {
		t.Errorf("expected a retryable error about no progress, got %v", err)
	}
	if f.calls["head"] != 2 {
		t.Errorf("expected two attempts, got %d", f.calls["head"])
	}
}

func TestReadsGoOnWhereTheyBrokeOff(t *testing.T) {
	f := newFake()
	s := store(f, quick())
	body := objecttest.Random(1, 100_000)
	if err := put(s, "x", body, false); err != nil {
		t.Fatal(err)
	}
	f.cut = func(n int) int { return min(n, 20_000) } // enough to count as progress
	p := make([]byte, 95_000)
	n, err := s.GetRange(t.Context(), "x", 10_000, p)
	if err != nil || !bytes.Equal(p[:n], body[10_000:]) || f.calls["get"] != 5 {
		t.Errorf("expected the right 90,000 bytes by 5 requests, got %d by %d, %v", n, f.calls["get"], err)
	}
	f.calls["get"] = 0
	f.cut = func(n int) int { return min(n, 10) } // too little
	n, err = s.GetRange(t.Context(), "x", 0, p)
	if !object.Retryable(err) || n != 40 || f.calls["get"] != 4 {
		t.Errorf("expected to give up after 4 requests and 40 bytes, got %d and %d, %v", f.calls["get"], n, err)
	}
}

func TestAReadNeverMixesTwoVersions(t *testing.T) {
	f := newFake()
	s := store(f, quick())
	old, young := bytes.Repeat([]byte("o"), 1000), bytes.Repeat([]byte("y"), 1000)
	if err := put(s, "x", old, false); err != nil {
		t.Fatal(err)
	}
	f.cut = func(n int) int {
		if f.calls["get"] > 1 {
			return n
		}
		f.objects["pre/fix/x"], f.etags["pre/fix/x"] = young, 99 // under f.mu
		return n / 2
	}
	p := make([]byte, 1000)
	if n, err := s.GetRange(t.Context(), "x", 0, p); err != nil || !bytes.Equal(p[:n], young) {
		t.Errorf("expected the younger version whole, got %d bytes, %q…%q, %v", n, p[0], p[999], err)
	}
}

func TestAServerThatIgnoresRanges(t *testing.T) {
	f := newFake()
	f.noRange = true
	s := store(f, quick())
	if err := put(s, "x", []byte("0123456789"), false); err != nil {
		t.Fatal(err)
	}
	p := make([]byte, 4)
	if n, err := s.GetRange(t.Context(), "x", 0, p); err != nil || string(p[:n]) != "0123" {
		t.Errorf("from the start the whole object will do: got %q, %v", p[:n], err)
	}
	if _, err := s.GetRange(t.Context(), "x", 3, p); !errors.Is(err, object.ErrRefused) {
		t.Errorf("expected a refusal, got %v", err)
	}
}

// afterFirst answers the first request of a kind with a failure although it
// was carried out.
func afterFirst(kind string) func(context.Context, call) error {
	return func(_ context.Context, c call) error {
		if c.Kind == kind && c.N == 1 && c.After {
			return errors.New("connection reset")
		}
		return nil
	}
}

func TestUnclearCreates(t *testing.T) {
	small, big := []byte("my own body"), objecttest.Random(1, object.PartBytesMin+1)
	for _, c := range []struct {
		kind string
		body []byte
	}{{"put", small}, {"complete", big}} {
		for _, noCRC := range []bool{false, true} {
			f := newFake()
			f.noCRC = noCRC
			f.hook = afterFirst(c.kind)
			if err := put(store(f, quick()), "x", c.body, true); err != nil {
				t.Errorf("%s: carried out, answer lost, sent again: expected success, got %v", c.kind, err)
			}
			if f.calls[c.kind] != 2 {
				t.Errorf("%s: expected two requests, got %d", c.kind, f.calls[c.kind])
			}

			f = newFake()
			f.noCRC = noCRC
			other := slices.Clone(c.body)
			other[0] ^= 1
			f.hook = func(_ context.Context, call call) error {
				if call.Kind == c.kind && call.N == 1 && !call.After {
					if err := f.store("pre/fix/x", other, false); err != nil {
						return err
					}
					return errors.New("connection reset")
				}
				return nil
			}
			if err := put(store(f, quick()), "x", c.body, true); !errors.Is(err, object.ErrExists) {
				t.Errorf("%s: somebody else's object of the same size is there: expected ErrExists, got %v", c.kind, err)
			}
		}
	}
}

func TestUnclearOverwriteByParts(t *testing.T) {
	f := newFake()
	f.hook = afterFirst("complete")
	body := objecttest.Random(1, object.PartBytesMin+1)
	if err := put(store(f, quick()), "x", body, false); err != nil {
		t.Errorf("the upload is gone since it was completed: expected success, got %v", err)
	}
	if !bytes.Equal(f.objects["pre/fix/x"], body) {
		t.Error("other bytes are there")
	}
}

func TestAFailedUploadIsAborted(t *testing.T) {
	for _, kind := range []string{"part", "complete"} {
		f := newFake()
		f.hook = func(_ context.Context, c call) error {
			if c.Kind == kind && c.N >= 2 {
				return answer(403, "AccessDenied")
			}
			if c.Kind == kind && kind == "complete" {
				return answer(503, "")
			}
			return nil
		}
		err := put(store(f, quick()), "x", objecttest.Random(1, 3*object.PartBytesMin), false)
		if !errors.Is(err, object.ErrDenied) || len(f.uploads) > 0 || len(f.objects) > 0 {
			t.Errorf("%s: expected ErrDenied and nothing left, got %v, %d uploads, %d objects", kind, err, len(f.uploads), len(f.objects))
		}
	}
}

func TestParallelismAndPaceAreBounded(t *testing.T) {
	f := newFake()
	o := quick()
	o.PartsInFlight, o.MaxConns = 2, 3
	var mu sync.Mutex
	paced, largest := 0, 0
	o.Pace = func(_ context.Context, n int) error {
		mu.Lock()
		defer mu.Unlock()
		paced += n
		largest = max(largest, n)
		return nil
	}
	s := store(f, o)
	release := make(chan struct{})
	var once sync.Once
	f.hook = func(_ context.Context, c call) error {
		if c.Kind == "part" { // hold the first until a second is there
			f.mu.Lock()
			if f.busy["part"] >= 2 {
				once.Do(func() { close(release) })
			}
			f.mu.Unlock()
			<-release
		}
		return nil
	}
	body := objecttest.Random(1, 5*object.PartBytesMin+10)
	if err := put(s, "x", body, false); err != nil {
		t.Fatal(err)
	}
	if f.busiest["part"] != 2 {
		t.Errorf("expected two parts at a time, got %d", f.busiest["part"])
	}
	if paced != len(body) || largest > paceBytes {
		t.Errorf("expected the pacer to be asked for %d bytes in pieces of up to %d, got %d and %d", len(body), paceBytes, paced, largest)
	}
	f.hook = nil
	var wg sync.WaitGroup
	for range 30 {
		wg.Go(func() {
			if _, err := s.Head(t.Context(), "x"); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if f.busiest["head"] > 3 {
		t.Errorf("expected up to three requests at a time, got %d", f.busiest["head"])
	}
}

func TestPaceHoldsUntilTheContextEnds(t *testing.T) {
	o := quick()
	ctx, cancel := context.WithCancel(t.Context())
	o.Pace = func(ctx context.Context, _ int) error {
		cancel()
		<-ctx.Done()
		return ctx.Err()
	}
	s := store(newFake(), o)
	err := s.Put(ctx, "x", bytes.NewReader([]byte("x")), object.PutOptions{CRC32C: object.CRC32C([]byte("x"))})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("expected the caller's cancellation, got %v", err)
	}
}

// broken is a body that cannot be read beyond its first bytes.
type broken struct{ io.ReaderAt }

func (broken) Size() int64 { return 2 * object.PartBytesMin }

func TestABodyThatCannotBeReadIsNotTheStoresFault(t *testing.T) {
	f := newFake()
	s := store(f, quick())
	err := s.Put(t.Context(), "x", broken{bytes.NewReader(make([]byte, 100))}, object.PutOptions{})
	if !errors.Is(err, object.ErrCorrupt) || len(f.uploads) > 0 {
		t.Errorf("expected ErrCorrupt and no upload left, got %v, %d", err, len(f.uploads))
	}
}

func TestABodyIsNotReadAfterPut(t *testing.T) {
	f := newFake()
	var kept Part
	s := New(Config{Client: keeping{f, &kept}, Options: quick()})
	if err := put(s, "x", []byte("x"), false); err != nil {
		t.Fatal(err)
	}
	if _, err := kept.Seek(0, io.SeekStart); err != nil {
		t.Fatal(err)
	}
	if _, err := kept.Read(make([]byte, 1)); !errors.Is(err, errClosed) {
		t.Errorf("expected %v, got %v", errClosed, err)
	}
}

// keeping is a client that holds on to the body, as net/http may.
type keeping struct {
	*fake
	part *Part
}

func (k keeping) Put(ctx context.Context, key string, body Part, ifAbsent bool) error {
	*k.part = body
	return k.fake.Put(ctx, key, body, ifAbsent)
}

func TestDeleteGoesOnPastErrors(t *testing.T) {
	f := newFake()
	s := store(f, quick())
	var keys []string
	for i := range 2500 {
		keys = append(keys, fmt.Sprintf("%04d", i))
		f.objects["pre/fix/"+keys[i]] = nil
	}
	f.keyErrors = func(key string, nth int) error {
		switch {
		case strings.HasSuffix(key, "0007") && nth < 3:
			return answer(0, "SlowDown") // passes
		case strings.HasSuffix(key, "1008"):
			return answer(0, "AccessDenied")
		case strings.HasSuffix(key, "2009"):
			return answer(0, "InternalError") // does not pass in time
		case strings.HasSuffix(key, "2010"):
			return answer(0, "NoSuchKey")
		}
		return nil
	}
	failed, err := s.Delete(t.Context(), append(keys, keys[0]))
	if err != nil || len(failed) != 2 || !errors.Is(failed["1008"], object.ErrDenied) || !object.Retryable(failed["2009"]) {
		t.Errorf("expected 1008 to be denied and 2009 to be unavailable, got %v, %v", failed, err)
	}
	if len(f.objects) != 3 { // those two, and the one that was said to be missing
		t.Errorf("expected 3 objects to be left, got %d", len(f.objects))
	}
	f.keyErrors = nil
	f.hook = func(_ context.Context, c call) error {
		if c.Key == "pre/fix/1000" {
			return answer(503, "")
		}
		return nil
	}
	failed, err = s.Delete(t.Context(), keys)
	if !object.Retryable(err) || len(failed) != 1500 || failed["0999"] != nil || failed["1000"] == nil || failed["2499"] == nil {
		t.Errorf("store gone at the second batch: expected 1500 keys to be said undeleted, got %d, %v", len(failed), err)
	}
}

// unordered lists in the wrong order, as some servers do.
type unordered struct{ *fake }

func (u unordered) ListPage(ctx context.Context, prefix, after string, n int) ([]object.Info, error) {
	page, err := u.fake.ListPage(ctx, prefix, after, n)
	slices.Reverse(page)
	return page, err
}

func TestAListingOutOfOrderIsRefused(t *testing.T) {
	f := newFake()
	f.objects["a"], f.objects["b"] = nil, nil
	s := New(Config{Client: unordered{f}, Options: quick()})
	err := s.List(t.Context(), "", "", func(object.Info) bool { return true })
	if !errors.Is(err, object.ErrRefused) || !strings.Contains(err.Error(), "byte order") {
		t.Errorf("expected a refusal about the order, got %v", err)
	}
}

func TestVerifyWithoutTheStore(t *testing.T) {
	f := newFake()
	s := New(Config{Client: f, Verify: true, Options: quick()})
	err := s.Put(t.Context(), "x", bytes.NewReader([]byte("x")), object.PutOptions{CRC32C: 1})
	if !errors.Is(err, object.ErrCorrupt) || f.calls["put"] > 0 {
		t.Errorf("expected ErrCorrupt before any request, got %v after %d", err, f.calls["put"])
	}
}

func TestAbortUploadsByAge(t *testing.T) {
	f := newFake()
	s := store(f, quick())
	for _, key := range []string{"pre/fix/old", "pre/fix/young", "other/old"} {
		id, err := f.CreateUpload(t.Context(), key)
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(key, "old") {
			f.begun[id] = time.Now().Add(-time.Hour)
		}
	}
	if n, err := s.AbortUploads(t.Context(), time.Minute); n != 1 || err != nil || len(f.uploads) != 2 {
		t.Errorf("expected our old one to be aborted, got %d, %v, %d left", n, err, len(f.uploads))
	}
}

func TestKinds(t *testing.T) {
	for want, failures := range map[error][]Failure{
		object.ErrNotFound:    {{Status: 404}, {Status: 404, Code: "NoSuchKey"}, {Code: "NoSuchKey"}},
		object.ErrNoBucket:    {{Status: 404, Code: "NoSuchBucket"}},
		object.ErrExists:      {{Status: 412}, {Status: 412, Code: "PreconditionFailed"}},
		object.ErrRange:       {{Status: 416}},
		object.ErrCorrupt:     {{Status: 400, Code: "BadDigest"}, {Status: 400, Code: "XAmzContentChecksumMismatch"}},
		object.ErrDenied:      {{Status: 401}, {Status: 403}, {Status: 403, Code: "SignatureDoesNotMatch"}, {Status: 404, Code: "XAdminUserNotFound"}},
		object.ErrRefused:     {{Status: 400}, {Status: 409, Code: "ObjectParentIsFile"}, {Status: 501, Code: "NotImplemented"}, {Status: 301, Code: "PermanentRedirect"}},
		object.ErrUnavailable: {{Status: 503}, {Status: 500}, {Status: 429}, {Status: 408}, {Status: 400, Code: "RequestTimeout"}, {Status: 409, Code: "ConditionalRequestConflict"}, {Code: "SlowDown"}},
	} {
		for _, f := range failures {
			if got := f.kind(); got != want {
				t.Errorf("HTTP %d %q: expected %v, got %v", f.Status, f.Code, want, got)
			}
		}
	}
}

func TestATransportIsBoundedAndEachStoreHasItsOwn(t *testing.T) {
	a, b := Transport(object.Options{MaxConns: 7}), Transport(object.Options{})
	if a == b || a == http.DefaultTransport || a.MaxConnsPerHost != 7 || b.MaxConnsPerHost < 1 || !a.DisableCompression {
		t.Errorf("got %+v", a)
	}
}
