package wal

import (
	"errors"
	"reflect"
	"strings"
	"sync"
	"testing"

	"thermocline/wal/vfs"
)

// image is a log of several files, with the model after each append and where
// that append's group ends.
type image struct {
	mem  *vfs.Mem
	l    *Log
	h    history
	ends []Position // parallel to h.states
}

var theImage = sync.OnceValues(func() (*image, error) {
	im := &image{mem: vfs.NewMem(1), h: history{states: []model{{}}}, ends: []Position{0}}
	l, _, err := Open(im.mem, "wal", smallFiles)
	if err != nil {
		return nil, err
	}
	im.l = l
	s := newScript(5)
	for len(l.files) < 4 {
		for _, st := range s.group() {
			st.a.NoSync = false
			if err := l.Commit([]*Append{st.a}); err != nil {
				return nil, err
			}
			im.h.states = append(im.h.states, im.h.states[len(im.h.states)-1].after(st))
			im.ends = append(im.ends, l.end)
		}
	}
	return im, l.Idle()
})

// FuzzRecover damages a good log, or replaces its first file by arbitrary bytes,
// and recovers: everything before the damage is there or the damage is
// reported, nothing is invented, and what was recovered can be gone on with.
func FuzzRecover(f *testing.F) {
	f.Add([]byte{}, false)
	f.Add([]byte{0, 16, 0, 1, 9}, false)
	f.Add([]byte{2, 40, 17, 200, 0, 3, 16, 60, 255, 0}, false)
	f.Add([]byte{0, 0, 0, 64, 0}, false)
	f.Add([]byte("thermwal\x01"), true)
	if im, err := theImage(); err == nil {
		b := make([]byte, blockSize+600) // more would only slow the minimizer down
		if _, err := im.l.files[0].file.ReadAt(b, 0); err == nil {
			f.Add(b, true)
		}
	}
	f.Fuzz(func(t *testing.T, data []byte, whole bool) {
		im, err := theImage()
		if err != nil {
			t.Fatal(err)
		}
		if whole {
			recoverArbitrary(t, data)
			return
		}
		recoverDamaged(t, im, data)
	})
}

// recoverDamaged takes data as a list of five-byte damages: file, block, offset
// in the block in 16 bytes, length, and the byte to write or 0 to flip bits.
func recoverDamaged(t *testing.T, im *image, data []byte) {
	c := im.mem.Crash(0)
	first := im.l.end
	for ; len(data) >= 5; data = data[5:] {
		f := im.l.files[int(data[0])%len(im.l.files)]
		off := int64(data[1])%(f.length/blockSize)*blockSize + int64(data[2])*16
		old := readAll(t, c, f.name)
		b := make([]byte, 1+int(data[3]))
		changed := false
		for i := range b {
			was := byte(0)
			if at := off + int64(i); at < int64(len(old)) {
				was = old[at]
			}
			if b[i] = data[4]; b[i] == 0 {
				b[i] = was ^ 1<<(i%8)
			}
			if at := f.start + Position(off) + Position(i); b[i] != was && !changed {
				changed = true
				first = min(first, at)
			}
		}
		patch(t, c, f.name, off, b)
	}
	l, got, err := Open(c, "wal", smallFiles)
	if err != nil {
		if !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrVersion) {
			t.Fatalf("an error of its own: %v", err)
		}
		return
	}
	h := im.h
	for h.acked = 0; h.acked+1 < len(im.ends) && im.ends[h.acked+1] <= first; h.acked++ {
	}
	if _, diff := h.match(l, got); diff != "" {
		t.Fatalf("damage from %d on, end %d, no state from %d to %d: %s", first, im.l.end, h.acked, len(h.states)-1, diff)
	}
	goOn(t, c, l, got)
}

// recoverArbitrary opens bytes as a log file.
func recoverArbitrary(t *testing.T, data []byte) {
	mem := vfs.NewMem(1)
	if err := mem.MkdirAll("wal"); err != nil {
		t.Fatal(err)
	}
	if _, err := mem.Create("wal/" + liveName(1)); err != nil {
		t.Fatal(err)
	}
	patch(t, mem, liveName(1), 0, data)
	if err := Scan(mem, "wal", func(ScanRecord) error { return nil }); err != nil {
		t.Fatal(err)
	}
	l, got, err := Open(mem, "wal", smallFiles)
	if err != nil {
		if !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrVersion) {
			t.Fatalf("an error of its own: %v", err)
		}
		return
	}
	goOn(t, mem, l, got)
}

// goOn appends to a recovered log and opens it once more.
func goOn(t *testing.T, fs vfs.FS, l *Log, got map[ShardID]*RecoveredShard) {
	if err := l.Commit([]*Append{{Shard: 77, Entries: []Entry{entry(1, 1, strings.Repeat("z", 900))}}}); err != nil && !errors.Is(err, ErrInvalid) {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	l, again, err := Open(fs, "wal", smallFiles)
	if err != nil {
		t.Fatalf("second recovery: %v", err)
	}
	delete(got, 77)
	delete(again, 77)
	if !reflect.DeepEqual(got, again) {
		t.Fatalf("second recovery differs: %+v\n%+v", got, again)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}
