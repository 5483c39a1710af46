package wal

import (
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"reflect"
	"testing"

	"thermocline/wal/vfs"
)

// smallFiles makes rotation and recycling happen within a few dozen appends.
var smallFiles = Options{FileBytes: 32 << 10, MaxBytes: 256 << 10}

func entry(index, term uint64, payload string) Entry {
	e := Entry{Index: index, Term: term, Descriptor: fmt.Appendf(nil, "d%d.%d", index, term)}
	if payload != "" {
		e.Payload = []byte(payload)
		e.PayloadCRC = crc32.Checksum(e.Payload, castagnoli)
	}
	return e
}

func open(t *testing.T, fs vfs.FS, o Options) (*Log, map[ShardID]*RecoveredShard) {
	t.Helper()
	l, r, err := Open(fs, "wal", o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil && !errors.Is(err, ErrFailed) {
			t.Error(err)
		}
	})
	return l, r
}

func commit(t *testing.T, l *Log, appends ...*Append) {
	t.Helper()
	if err := l.Commit(appends); err != nil {
		t.Fatal(err)
	}
}

func grab(n int) []byte { return make([]byte, n) }

func wantPayload(t *testing.T, l *Log, s ShardID, e Entry) {
	t.Helper()
	got, err := l.ReadPayload(s, e.Index, e.Term, grab)
	if err != nil || !bytes.Equal(got, e.Payload) {
		t.Fatalf("shard %d, index %d: %d bytes, %v; want %d bytes", s, e.Index, len(got), err, len(e.Payload))
	}
}

func TestCommitAndRecover(t *testing.T) {
	for _, system := range []struct {
		name string
		fs   vfs.FS
	}{{"mem", vfs.NewMem(1)}, {"os", vfs.OS(t.TempDir())}} {
		t.Run(system.name, func(t *testing.T) {
			l, r := open(t, system.fs, Options{})
			if len(r) != 0 {
				t.Fatalf("a new log holds %v", r)
			}
			big := string(bytes.Repeat([]byte("x"), 300_000))
			e := []Entry{entry(1, 1, "a"), entry(2, 1, ""), entry(3, 2, big)}
			e[1].Type = 2
			done := 0
			count := func(err error) {
				if err != nil {
					t.Error(err)
				}
				done++
			}
			commit(t, l,
				&Append{Shard: 7, Entries: e[:2], Hard: &HardState{Term: 1, Vote: 9, Commit: 1}, Done: count},
				&Append{Shard: 8, Entries: []Entry{entry(5, 3, "other")}, Done: count},
				&Append{Shard: 7, Entries: e[2:], Hard: &HardState{Term: 2, Vote: 1, Commit: 2}, Done: count},
			)
			commit(t, l, &Append{Shard: 7, NoSync: true, Hard: &HardState{Term: 2, Vote: 1, Commit: 3}, Done: count})
			if done != 4 {
				t.Fatalf("%d of 4 appends answered", done)
			}
			for _, e := range e {
				wantPayload(t, l, 7, e)
			}
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
			l, r = open(t, system.fs, Options{})
			want := &RecoveredShard{Hard: HardState{Term: 2, Vote: 1, Commit: 3}}
			for _, e := range e {
				want.Entries = append(want.Entries, EntryMeta{
					Index: e.Index, Term: e.Term, Type: e.Type, Descriptor: e.Descriptor,
					PayloadLen: uint32(len(e.Payload)), PayloadCRC: e.PayloadCRC,
				})
			}
			if !reflect.DeepEqual(r[7], want) {
				t.Fatalf("recovered %+v\nwant %+v", r[7], want)
			}
			for _, e := range e {
				wantPayload(t, l, 7, e)
			}
			if len(r) != 2 || len(r[8].Entries) != 1 {
				t.Fatalf("recovered %d shards", len(r))
			}
		})
	}
}
