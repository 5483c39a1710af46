package bench

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// The floor: a leader and two followers, each a process of its own, that do
// nothing a log could leave out. A client sends frames; the leader copies each
// to both followers and to its own file, one write and one fdatasync for all
// that has come meanwhile; it acknowledges a frame when two of three have
// synced it. No broker that keeps the same promise can be faster.

const (
	floorFile    = 256 << 20 // each process writes around in a file of this size, written once before
	floorQueue   = 64        // frames waiting for the disk
	floorMaxSize = 1 << 20
)

// frame is a length, a sequence number and bytes.
type frame struct {
	seq  uint64
	data []byte
}

// FloorNode runs one node until ctx ends: a follower, or a leader if followers
// are named.
func FloorNode(ctx context.Context, listen, dir string, followers []string) error {
	ln, err := net.Listen("tcp", listen)
	if err != nil {
		return err
	}
	defer ln.Close()
	defer context.AfterFunc(ctx, func() { ln.Close() })()
	disk, err := newFloorDisk(filepath.Join(dir, "floor"))
	if err != nil {
		return err
	}
	defer disk.close()
	for {
		conn, err := ln.Accept()
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
		if err := serveFloor(ctx, conn, disk, followers); err != nil && ctx.Err() == nil {
			return err
		}
	}
}

// serveFloor handles one upstream connection to its end: one client, or one leader.
func serveFloor(ctx context.Context, conn net.Conn, disk *floorDisk, followers []string) error {
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	votes := newFloorVotes(conn, len(followers))
	var peers []net.Conn
	for _, addr := range followers {
		p, err := net.Dial("tcp", addr)
		if err != nil {
			return err
		}
		defer p.Close()
		peers = append(peers, p)
		go votes.follow(p)
	}
	todo := make(chan frame, floorQueue)
	done := make(chan error, 1)
	go func() { done <- disk.run(todo, votes.cast) }()
	queues := startFloorSenders(peers)
	err := readFloor(conn, func(f frame) {
		for _, q := range queues {
			q <- f
		}
		todo <- f
	})
	close(todo)
	for _, q := range queues {
		close(q)
	}
	if derr := <-done; err == nil {
		err = derr
	}
	return err
}

func startFloorSenders(peers []net.Conn) []chan frame {
	var queues []chan frame
	for _, p := range peers {
		q := make(chan frame, floorQueue)
		queues = append(queues, q)
		go func() {
			for f := range q {
				if err := writeFrame(p, f); err != nil {
					for range q { // the leader's next read fails too; do not block it
					}
					return
				}
			}
		}()
	}
	return queues
}

func readFloor(r io.Reader, emit func(frame)) error {
	var head [12]byte
	for {
		if _, err := io.ReadFull(r, head[:]); err != nil {
			if err == io.EOF {
				return nil
			}
			return err
		}
		n := binary.LittleEndian.Uint32(head[:])
		if n > floorMaxSize {
			return fmt.Errorf("bench: a frame of %d bytes, at most %d", n, floorMaxSize)
		}
		// Buffers are not returned to the pool: several readers share a frame,
		// and the garbage collector's share is part of the floor.
		buf := make([]byte, n)
		if _, err := io.ReadFull(r, buf); err != nil {
			return err
		}
		emit(frame{binary.LittleEndian.Uint64(head[4:]), buf})
	}
}

func writeFrame(w net.Conn, f frame) error {
	var head [12]byte
	binary.LittleEndian.PutUint32(head[:], uint32(len(f.data)))
	binary.LittleEndian.PutUint64(head[4:], f.seq)
	bufs := net.Buffers{head[:], f.data}
	_, err := bufs.WriteTo(w)
	return err
}

// floorVotes counts synced copies of frames in order and answers upstream with
// the last sequence number that a majority has.
type floorVotes struct {
	mu    sync.Mutex
	up    net.Conn
	have  []uint64 // own disk first, then followers
	acked uint64
}

func newFloorVotes(up net.Conn, followers int) *floorVotes {
	return &floorVotes{up: up, have: make([]uint64, 1, 1+followers)}
}

func (v *floorVotes) cast(seq uint64) { v.set(0, seq) }

func (v *floorVotes) set(who int, seq uint64) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.have[who] = seq
	best := v.have[0]
	if len(v.have) == 3 {
		best = max(min(v.have[0], v.have[1]), min(v.have[0], v.have[2]), min(v.have[1], v.have[2]))
	}
	if best > v.acked {
		v.acked = best
		var b [8]byte
		binary.LittleEndian.PutUint64(b[:], best)
		_, _ = v.up.Write(b[:]) // a client that went away ends the read loop
	}
}

func (v *floorVotes) follow(p net.Conn) {
	v.mu.Lock()
	who := len(v.have)
	v.have = append(v.have, 0)
	v.mu.Unlock()
	var b [8]byte
	for {
		if _, err := io.ReadFull(p, b[:]); err != nil {
			return
		}
		v.set(who, binary.LittleEndian.Uint64(b[:]))
	}
}

// floorDisk is a prewritten file and the position in it.
type floorDisk struct {
	f   *os.File
	pos int64
}

func newFloorDisk(path string) (*floorDisk, error) {
	f, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	chunk := make([]byte, 1<<20)
	for range floorFile / len(chunk) {
		if _, err := f.Write(chunk); err != nil {
			return nil, err
		}
	}
	return &floorDisk{f: f}, f.Sync()
}

func (d *floorDisk) close() { d.f.Close(); os.Remove(d.f.Name()) }

// run writes all frames that are waiting with one vectored write and one
// fdatasync, and reports the last of them.
func (d *floorDisk) run(todo <-chan frame, synced func(uint64)) error {
	var iov [][]byte
	for f := range todo {
		iov = append(iov[:0], f.data)
		size, last := len(f.data), f.seq
	drain:
		for size < 8<<20 {
			select {
			case more, ok := <-todo:
				if !ok {
					break drain
				}
				iov, size, last = append(iov, more.data), size+len(more.data), more.seq
			default:
				break drain
			}
		}
		if d.pos+int64(size) > floorFile {
			d.pos = 0
		}
		if _, err := unix.Pwritev(int(d.f.Fd()), iov, d.pos); err != nil {
			return err
		}
		if err := unix.Fdatasync(int(d.f.Fd())); err != nil {
			return err
		}
		d.pos += int64(size+4095) &^ 4095
		synced(last)
	}
	return nil
}

// floorClient sends frames of size for a while with at most window under way,
// at most rate bytes per second (0: no limit), and returns each one's delay.
func floorClient(ctx context.Context, addr string, size, window int, rate float64, d time.Duration) (bytes int64, delays []time.Duration, err error) {
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		return 0, nil, err
	}
	defer conn.Close()
	data := make([]byte, size)
	sent := make(chan time.Time, window)
	result := make(chan []time.Duration, 1)
	go func() { result <- collectFloorAcks(conn, sent) }()
	begin := time.Now()
	var seq uint64
	for time.Since(begin) < d && ctx.Err() == nil {
		if rate > 0 {
			if wait := time.Until(begin.Add(time.Duration(float64(seq) * float64(size) / rate * 1e9))); wait > 0 {
				time.Sleep(wait)
			}
		}
		seq++
		sent <- time.Now()
		if err := writeFrame(conn, frame{seq, data}); err != nil {
			return 0, nil, err
		}
	}
	close(sent)
	return int64(seq) * int64(size), <-result, nil
}

func collectFloorAcks(conn net.Conn, sent <-chan time.Time) []time.Duration {
	var delays []time.Duration
	var acked, b = uint64(0), [8]byte{}
	for t := range sent {
		seq := uint64(len(delays) + 1)
		for acked < seq {
			if _, err := io.ReadFull(conn, b[:]); err != nil {
				return delays
			}
			acked = binary.LittleEndian.Uint64(b[:])
		}
		delays = append(delays, time.Since(t))
	}
	return delays
}
