package wal

import (
	"fmt"
	"path"
	"time"
)

// fillStep is how much of a file is written ahead between two syncs: a disk
// takes about 2 ms for it, which is what a group commit may have to wait.
const fillStep = 1 << 20

// fillRest is how many times as long as a step's sync took the fill rests: a
// disk that is busy or slow is left to those who wait for it.
const fillRest = 7

// DefaultFillPerSecond keeps ahead of a log that grows as fast, and takes a
// small part of a slow disk's throughput. Faster logs outrun it: they get files
// that grow, until recycled ones come.
const DefaultFillPerSecond = 32 << 20

// reserveFree names a file to be written ahead, when the next rotation would
// find no free one and the budget has room for it. Its number is used up.
func (l *Log) reserveFree() (f freeFile, ok bool) {
	if l.usable() != nil || len(l.free) > 0 || l.reach()+l.o.FileBytes > l.o.MaxBytes {
		return freeFile{}, false
	}
	f = freeFile{name: freeName(l.nextUse), use: l.nextUse, size: l.o.FileBytes}
	l.nextUse++
	l.mu.Lock()
	l.filling = f.size
	l.mu.Unlock()
	return f, true
}

// takeFilled adds a file that was written ahead to the free ones, or forgets
// about it.
func (l *Log) takeFilled(f freeFile, err error) error {
	l.mu.Lock()
	l.filling = 0
	if err == nil {
		l.free = append(l.free, f)
		l.stats.filled.Add(1)
	}
	l.mu.Unlock()
	if err != nil || l.usable() != nil {
		return nil
	}
	return l.dropFree()
}

// zero writes zeroes over the whole of a new file, durably, so that groups in
// it change no block's place: an fdatasync then need not wait for the file
// system's journal, which others write to as well.
func (l *Log) zero(f freeFile, perSecond int64, stop <-chan struct{}) error {
	name := path.Join(l.dir, f.name)
	file, err := l.fs.Create(name)
	if err != nil {
		return err
	}
	pieces := make([][]byte, fillStep/blockSize)
	for i := range pieces {
		pieces[i] = zeroes[:]
	}
	least := time.Duration(float64(fillStep) / float64(perSecond) * float64(time.Second))
	pause := time.NewTimer(0)
	defer pause.Stop()
	for off := int64(0); off < f.size && err == nil; off += fillStep {
		select {
		case <-stop:
			err = ErrClosed
			continue
		case <-pause.C:
		}
		n := min(fillStep, f.size-off)
		_, err = file.WriteAtv(pieces[:n/blockSize], off)
		before := l.o.Clock()
		if err == nil {
			err = file.Sync()
		}
		pause.Reset(max(least, fillRest*(l.o.Clock()-before)))
	}
	if err = withClose(err, file); err != nil {
		if rerr := l.fs.Remove(name); rerr != nil {
			err = fmt.Errorf("%w; and it could not be removed: %w", err, rerr)
		}
	}
	return err
}

// filler writes one file at a time ahead of the log, for the Writer's goroutine,
// which starts and ends it.
type filler struct {
	log   *Log
	start func(work func()) // on a goroutine of the Writer's
	stop  chan struct{}
	done  chan error // of the fill under way
	file  freeFile
	busy  bool
	after int64 // files begun when a fill failed: the next try is with the next one
}

func newFiller(l *Log, start func(work func())) *filler {
	return &filler{log: l, start: start, stop: make(chan struct{}), done: make(chan error, 1), after: -1}
}

// step takes a file that is ready, and starts the next one when it is wanted.
func (w *filler) step() error {
	if w.log.o.FillPerSecond <= 0 {
		return nil
	}
	if w.busy {
		select {
		case err := <-w.done:
			if err := w.finish(err); err != nil {
				return err
			}
		default:
			return nil
		}
	}
	if w.after == w.log.stats.files.Load() {
		return nil
	}
	f, ok := w.log.reserveFree()
	if !ok {
		return nil
	}
	w.busy, w.file = true, f
	w.start(func() { w.done <- w.log.zero(f, w.log.o.FillPerSecond, w.stop) })
	return nil
}

func (w *filler) finish(err error) error {
	w.busy = false
	if err != nil {
		w.after = w.log.stats.files.Load()
		w.log.o.Logger.Warn("wal: no file could be written ahead; the log goes on with files that grow", "file", w.file.name, "reason", err)
	}
	return w.log.takeFilled(w.file, err)
}

// close ends the fill under way.
func (w *filler) close() {
	close(w.stop)
	if w.busy {
		<-w.done
		w.busy = false
	}
}
