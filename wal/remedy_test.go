package wal

import (
	"errors"
	"io"
	"io/fs"
	"strings"
	"syscall"
	"testing"

	"thermocline/wal/vfs"
)

// A log that a full volume has taken out of service says what to do about it.
func TestFullVolumeSaysWhatToDo(t *testing.T) {
	mem := vfs.NewMem(1)
	l, _ := open(t, mem, smallFiles)
	mem.SetCapacity(40 << 10)
	var err error
	for i := uint64(1); err == nil && i < 100; i++ {
		err = l.Commit([]*Append{{Shard: 1, Entries: []Entry{entry(i, 1, strings.Repeat("x", 4<<10))}}})
	}
	if !errors.Is(err, ErrFailed) || !errors.Is(err, syscall.ENOSPC) || !strings.HasSuffix(err.Error(), "; free space on the volume of wal, then restart the broker") {
		t.Errorf("expected a failure for lack of space that says what to do, found %v", err)
	}
	if l.Err() == nil || l.Err().Error() != err.Error() {
		t.Errorf("expected the same of the log itself, found %v", l.Err())
	}
}

func TestRemedy(t *testing.T) {
	at := func(err error) error {
		return &fs.PathError{Op: "write", Path: "/data/wal/wal-1.log", Err: err}
	}
	for _, x := range []struct {
		err  error
		want string
	}{
		{at(syscall.ENOSPC), "; free space on the volume of /data/wal, then restart the broker"},
		{at(syscall.EIO), "; check the disk of /data/wal, then restart the broker"},
		{io.ErrShortWrite, ""},
	} {
		if got := remedy(x.err); got != x.want {
			t.Errorf("%v: expected %q, found %q", x.err, x.want, got)
		}
	}
}
