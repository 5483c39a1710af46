package bench

import (
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// Delays are a sample of durations.
type Delays []time.Duration

// At is the value below which the share q of the sample lies.
func (d Delays) At(q float64) time.Duration {
	if len(d) == 0 {
		return 0
	}
	s := slices.Clone(d)
	slices.Sort(s)
	return s[min(int(q*float64(len(s))), len(s)-1)]
}

// SyncDelays writes size bytes and calls fdatasync n times on a file in dir
// whose blocks were written before: the least that an ack can cost.
func SyncDelays(dir string, size, n int) (Delays, error) {
	f, err := os.Create(filepath.Join(dir, "sync-probe"))
	if err != nil {
		return nil, err
	}
	defer os.Remove(f.Name())
	defer f.Close()
	buf := make([]byte, size)
	for i := range n {
		if _, err := f.WriteAt(buf, int64(i*size)); err != nil {
			return nil, err
		}
	}
	if err := f.Sync(); err != nil {
		return nil, err
	}
	out := make(Delays, n)
	for i := range n {
		start := time.Now()
		if _, err := f.WriteAt(buf, int64(i*size)); err != nil {
			return nil, err
		}
		if err := unix.Fdatasync(int(f.Fd())); err != nil {
			return nil, fmt.Errorf("bench: fdatasync: %w", err)
		}
		out[i] = time.Since(start)
	}
	return out, nil
}

// LoopbackRate is how many bytes per second one TCP stream on loopback carries
// in writes of 1 MiB.
func LoopbackRate(d time.Duration) (float64, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer ln.Close()
	got := make(chan int64, 1)
	go func() {
		c, err := ln.Accept()
		if err != nil {
			got <- 0
			return
		}
		defer c.Close()
		n, _ := io.CopyBuffer(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{c}, make([]byte, 1<<20))
		got <- n
	}()
	c, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		return 0, err
	}
	buf := make([]byte, 1<<20)
	start := time.Now()
	for time.Since(start) < d {
		if _, err := c.Write(buf); err != nil {
			return 0, err
		}
	}
	c.Close()
	return float64(<-got) / time.Since(start).Seconds(), nil
}
