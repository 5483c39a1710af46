package broker

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"path"
	"strings"
	"sync/atomic"
	"time"

	"thermocline/metadata"
	"thermocline/tiering"
	"thermocline/tiering/format"
	"thermocline/tiering/object"
	"thermocline/wal/shard"
	"thermocline/wal/vfs"
)

const (
	// archiveEvery bounds how often a shard's snapshot goes into the bucket: what
	// a cluster without disks would have lost is what it had not uploaded anyway.
	archiveEvery = 10 * time.Minute
	// archiveLook is the pause between looks at what is due.
	archiveLook = 30 * time.Second
	// archiveGrace keeps replaced snapshot objects for whoever is reading one.
	archiveGrace = time.Hour
	// archiveWithin bounds one shard's snapshot, upload and clean-up.
	archiveWithin = 5 * time.Minute
	// archiveAsked bounds the rolls that wait.
	archiveAsked = 64
	// abortEvery is the pause between looks for uploads that somebody left half
	// done, and abortAge how old one must be: longer than any takes.
	abortEvery = time.Hour
	abortAge   = 24 * time.Hour
)

// archiver brings the snapshots of the shards that are led here into the
// bucket, one at a time, so that the bucket alone describes the cluster: the
// object is the snapshot file as it is, which says of which shard and index it
// is (wal.WriteSnapshot, package shard), under a name of format.KindSnapshot.
// Its pointer in the metadata store moves once the object is verified; only
// then older ones go. It also aborts uploads that were left half done.
type archiver struct {
	cluster string
	store   object.Store
	meta    metadata.Store
	fs      vfs.FS
	log     *slog.Logger
	led     func() []archived
	pointer func(metadata.ShardID) (metadata.SnapshotPointer, bool)
	// office tells whether this broker looks after what belongs to nobody.
	office func() bool
	now    func() time.Time
	every  time.Duration
	grace  time.Duration

	asked chan metadata.ShardID
	// Only run's goroutine uses these.
	last    map[metadata.ShardID]time.Time
	aborted time.Time

	stored, bytes, failures, removed, abortedUploads atomic.Int64
}

// archived is a shard that is led here.
type archived struct {
	id      metadata.ShardID
	term    uint64
	applied uint64
	hold    func(ctx context.Context) (*shard.HeldSnapshot, error)
}

// newArchiver makes the broker's archiver.
func (b *Broker) newArchiver(clusterID string) *archiver {
	return &archiver{
		cluster: clusterID, store: b.uploads, meta: b.store, fs: b.fs, log: b.log, led: b.ledShards,
		pointer: b.view.SnapshotPointer, office: func() bool { return b.office.Leading() }, now: time.Now,
		every: archiveEvery, grace: archiveGrace,
		asked: make(chan metadata.ShardID, archiveAsked), last: map[metadata.ShardID]time.Time{},
	}
}

func (b *Broker) ledShards() (led []archived) {
	for _, o := range b.shards.all() {
		if l := o.runner.Leadership(); l.Ready {
			led = append(led, archived{id: o.id, term: l.Term, applied: o.set.Status().Index, hold: o.runner.HoldSnapshot})
		}
	}
	return led
}

// ask wants a shard's snapshot in the bucket now. Beyond the bound it is
// forgotten: the next turn comes anyway.
func (a *archiver) ask(id metadata.ShardID) {
	select {
	case a.asked <- id:
	default:
	}
}

// run works until ctx ends.
func (a *archiver) run(ctx context.Context) {
	tick := time.NewTicker(min(archiveLook, a.every))
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case id := <-a.asked:
			a.turn(ctx, func(s archived) bool { return s.id == id })
		case <-tick.C:
			a.turn(ctx, a.due)
			a.abort(ctx)
		}
	}
}

// due: nothing was stored for a while, and there is something new. A new
// leader's first turn is spread by the look, not by the interval, since nobody
// may have stored one before.
func (a *archiver) due(s archived) bool {
	p, ok := a.pointer(s.id)
	if ok && p.Index >= s.applied {
		return false
	}
	last, seen := a.last[s.id]
	if !seen && ok {
		a.last[s.id] = a.now() // the leader before may have just stored one
		return false
	}
	return a.now().Sub(last) >= a.every
}

func (a *archiver) turn(ctx context.Context, wanted func(archived) bool) {
	for _, s := range a.led() {
		if ctx.Err() != nil || !wanted(s) {
			continue
		}
		a.last[s.id] = a.now() // also after a failure: the store may be away for long
		within, cancel := context.WithTimeout(ctx, archiveWithin)
		err := a.archive(within, s)
		cancel()
		if err != nil && ctx.Err() == nil {
			a.failures.Add(1)
			a.log.Warn("a shard's snapshot did not get into the bucket, will try again", "shard", s.id, "error", err)
		}
	}
}

// archive stores one shard's snapshot: object, verified; pointer; then the old
// ones go.
func (a *archiver) archive(ctx context.Context, s archived) error {
	held, err := s.hold(ctx)
	if err != nil {
		return err
	}
	defer held.Release()
	name := format.Name{Kind: format.KindSnapshot, Shard: uint32(s.id), Term: s.term, Number: held.Index, Random: randomName()}
	size, err := a.put(ctx, name, held.File)
	if err != nil {
		return err
	}
	err = metadata.WriteSnapshotPointer(ctx, a.meta, metadata.SnapshotPointer{Shard: s.id, Object: name.Key(), Index: held.Index, Term: held.Term})
	if err != nil {
		return fmt.Errorf("pointer to %s: %w", name.Key(), err) // the object goes with the next one's clean-up
	}
	a.stored.Add(1)
	a.bytes.Add(size)
	a.log.Debug("a shard's snapshot is in the bucket", "shard", s.id, "object", name.Key(), "bytes", size)
	return a.removeOld(ctx, name)
}

// fileBody is a file as an object's body.
type fileBody struct {
	vfs.File
	size int64
}

// Size implements object.Body.
func (f fileBody) Size() int64 { return f.size }

func (a *archiver) put(ctx context.Context, name format.Name, file string) (size int64, err error) {
	f, err := a.fs.Open(path.Join(walDir, file))
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if size, err = f.Size(); err != nil {
		return 0, err
	}
	body := fileBody{f, size}
	crc, err := object.Checksum(body)
	if err != nil {
		return 0, err
	}
	key := format.ObjectKey(a.cluster, name.Key())
	if err := a.store.Put(ctx, key, body, object.PutOptions{IfAbsent: true, CRC32C: crc}); err != nil {
		return 0, err
	}
	return size, tiering.Verify(ctx, a.store, key, body, crc)
}

// removeOld removes snapshot objects of the shard that are older than the
// present one, also those whose pointer was never written, after a grace.
func (a *archiver) removeOld(ctx context.Context, present format.Name) error {
	var old []string
	prefix := fmt.Sprintf("%s%d/", format.Prefix(a.cluster, format.KindSnapshot), present.Shard)
	err := a.store.List(ctx, prefix, "", func(i object.Info) bool {
		n, err := format.ParseName(strings.TrimPrefix(i.Key, a.cluster+"/"))
		young := a.now().Sub(time.UnixMilli(i.ModifiedUnixMilli)) < a.grace
		if err != nil || n.Kind != format.KindSnapshot || n.Shard != present.Shard || n == present || young ||
			n.Term > present.Term || n.Number > present.Number {
			return true
		}
		old = append(old, i.Key)
		return len(old) < object.BatchKeysMax
	})
	if err != nil || len(old) == 0 {
		return err
	}
	failed, err := a.store.Delete(ctx, old)
	a.removed.Add(int64(len(old) - len(failed)))
	for key, one := range failed {
		err = errors.Join(err, fmt.Errorf("%s: %w", key, one))
	}
	return err
}

// abort gets rid of uploads that a crash has left half done.
func (a *archiver) abort(ctx context.Context) {
	uploads, ok := object.As[object.Uploads](a.store)
	if !ok || !a.office() || a.now().Sub(a.aborted) < abortEvery {
		return
	}
	a.aborted = a.now()
	within, cancel := context.WithTimeout(ctx, archiveWithin)
	defer cancel()
	n, err := uploads.AbortUploads(within, abortAge)
	a.abortedUploads.Add(int64(n))
	if err != nil && ctx.Err() == nil {
		a.failures.Add(1)
		a.log.Warn("looking for uploads that were left half done", "error", err)
	}
	if n > 0 {
		a.log.Info("uploads that were left half done are aborted", "uploads", n)
	}
}

// randomName makes each upload's name its own.
func randomName() uint64 {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails: the runtime ends the process instead
	return binary.LittleEndian.Uint64(b[:])
}
