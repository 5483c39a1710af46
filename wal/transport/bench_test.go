package transport

import (
	"fmt"
	"io"
	"net"
	"sync"
	"testing"
)

// pooledBuffers is what a broker has: buffers that come back.
type pooledBuffers struct{ pool sync.Pool }

func (p *pooledBuffers) Get(n int) []byte {
	if b, ok := p.pool.Get().(*[]byte); ok && cap(*b) >= n {
		return (*b)[:n]
	}
	return make([]byte, n)
}

func (p *pooledBuffers) Put(b []byte) { p.pool.Put(&b) }

// countdown is a handler that returns buffers and lets the sender go on.
type countdown struct {
	bufs   Buffers
	credit chan struct{}
}

func (c *countdown) Receive(in *Inbound) {
	putPayloads(c.bufs, in)
	<-c.credit
}
func (c *countdown) ReceiveSnapshot(*Inbound, io.Reader) error { return nil }
func (c *countdown) Unreachable(uint32, uint64)                {}
func (c *countdown) SnapshotSent(uint32, uint64, error)        {}

// BenchmarkBulk sends entries over loopback, 16 messages in flight, and takes
// each off the wire into a buffer: the replication path without log and Raft.
func BenchmarkBulk(b *testing.B) {
	for _, size := range []int{4 << 10, 64 << 10, 1 << 20} {
		b.Run(fmt.Sprintf("%dKiB", size>>10), func(b *testing.B) {
			bufs := &pooledBuffers{}
			h := &countdown{bufs: bufs, credit: make(chan struct{}, 16)}
			var nodes [3]*Transport
			resolve := func(r uint64) (string, bool) { return nodes[r].Addr().String(), true }
			for i := 1; i <= 2; i++ {
				ln, err := net.Listen("tcp", "127.0.0.1:0")
				if err != nil {
					b.Fatal(err)
				}
				if nodes[i], err = New(Options{Replica: uint64(i), Listener: ln, Resolve: resolve, Handler: h, Buffers: bufs}); err != nil {
					b.Fatal(err)
				}
				defer nodes[i].Close()
			}
			payload := &fakePayload{b: make([]byte, size)}
			b.SetBytes(int64(size))
			b.ReportAllocs()
			for i := uint64(0); b.Loop(); i++ {
				h.credit <- struct{}{}
				m := app(1, 1, 2, i, "")
				m.Payloads[0] = payload
				nodes[1].Send(m)
			}
		})
	}
}

// BenchmarkFrame is the codec alone, header part and decoding, without payload.
func BenchmarkFrame(b *testing.B) {
	m := app(1, 1, 2, 9, "")
	var dst []byte
	b.ReportAllocs()
	for b.Loop() {
		var err error
		if dst, err = AppendHeader(dst[:0], m); err != nil {
			b.Fatal(err)
		}
		if _, _, err := DecodeFrame(dst, nil); err != nil {
			b.Fatal(err)
		}
	}
}
