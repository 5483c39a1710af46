package partition

import (
	"bytes"
	"io"
	"testing"

	"thermocline/wal/batch"
	"thermocline/wal/shard"
)

func batch16K(p *batch.Producer) batch.Batch {
	b := batch.NewBuilder(batch.BuilderOptions{Producer: p})
	v := make([]byte, 1000)
	for i := 0; i < 16; i++ {
		b.Add(1000, nil, v)
	}
	return b.Build()
}

// BenchmarkPrepareApply is the hot path of a leader: 1 MiB entries of 16 KiB
// batches over 12 partitions.
func BenchmarkPrepareApply(b *testing.B) {
	for _, name := range []string{"plain", "idempotent"} {
		b.Run(name, func(b *testing.B) {
			d := newDriver(b, Options{})
			var cmds []*Produce
			for i := int32(0); i < 12; i++ {
				d.create(key(1, i))
				p := &Produce{Key: key(1, i), Batch: batch16K(nil)}
				if name == "idempotent" {
					p.Batch = batch16K(&batch.Producer{ID: int64(i)})
				}
				cmds = append(cmds, p)
			}
			d.log = nil
			payload := make([]byte, 0, 1<<20)
			emit := func(int, any, error) {}
			b.SetBytes(int64(len(cmds[0].Batch)))
			b.ReportAllocs()
			b.ResetTimer()
			for n := 0; n < b.N; {
				payload = payload[:0]
				d.index++
				for len(payload)+len(cmds[0].Batch)+itemHeaderLen <= cap(payload) && n < b.N {
					c := cmds[n%len(cmds)]
					if name == "idempotent" {
						setSequence(c.Batch, int32(n/len(cmds)*16))
					}
					var p shard.Prepared
					if payload, p = d.s.Prepare(c, 5, uint64(n+1), 0, payload); p.Err != nil {
						b.Fatal(p.Err)
					}
					n++
				}
				if err := d.s.Apply(shard.Applied{Index: d.index, Term: 5, Kind: shard.KindItems, Payload: payload}, emit); err != nil {
					b.Fatal(err)
				}
				d.s.SetHW(d.index, true)
				if d.index%64 == 0 {
					b.StopTimer()
					d.tierNow(b)
					b.StartTimer()
				}
			}
		})
	}
}

// setSequence numbers a batch anew; apply does not look at its CRC.
func setSequence(b batch.Batch, s int32) {
	b[53], b[54], b[55], b[56] = byte(s>>24), byte(s>>16), byte(s>>8), byte(s)
}

func (d *driver) tierNow(b testing.TB) {
	r, ok := d.s.Seal(1 << 40)
	if !ok {
		b.Fatal("nothing to seal")
	}
	d.index++
	payload, _ := d.s.Prepare(&TierSegment{Row: rowOf(r)}, 5, 0, 0, nil)
	if err := d.s.Apply(shard.Applied{Index: d.index, Term: 5, Kind: shard.KindItems, Payload: payload}, func(int, any, error) {}); err != nil {
		b.Fatal(err)
	}
	d.s.SetHW(d.index, true)
}

// many is a Set of n partitions, each with one row and one producer.
func many(b testing.TB, n int32) *driver {
	d := newDriver(b, Options{})
	for i := int32(0); i < n; i += 500 {
		var cmds []any
		for j := i; j < i+500; j++ {
			cmds = append(cmds, &CreatePartition{Key: key(byte(j/1000), j), Name: "t"})
		}
		e, _ := d.prepare(cmds...)
		d.apply(e)
	}
	d.writeAll(n)
	d.log = nil
	return d
}

func (d *driver) writeAll(n int32) {
	for i := int32(0); i < n; i += 500 {
		var cmds []any
		for j := i; j < i+500; j++ {
			cmds = append(cmds, &Produce{Key: key(byte(j/1000), j), Batch: from(int64(j), 0, 0, 1)})
		}
		e, _ := d.prepare(cmds...)
		d.apply(e)
	}
}

// BenchmarkImage is what the shard's goroutine pays for a snapshot of 20,000
// partitions; first, once, and then with the first change of each partition.
func BenchmarkImage(b *testing.B) {
	d := many(b, 20_000)
	b.Run("freeze", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			d.s.Image()
		}
	})
	b.Run("own", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			b.StopTimer()
			d.s.Image()
			b.StartTimer()
			for _, p := range d.s.parts {
				d.s.own(p)
			}
		}
	})
	b.Run("encode", func(b *testing.B) {
		im := d.s.Image()
		b.ReportAllocs()
		for b.Loop() {
			if err := im.Encode(io.Discard); err != nil {
				b.Fatal(err)
			}
		}
	})
	image := imageOf(b, d.s)
	b.Run("restore", func(b *testing.B) {
		b.SetBytes(int64(len(image)))
		for b.Loop() {
			if err := NewSet(d.s.opt).Restore(bytes.NewReader(image)); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkTier seals and commits one row in each of 20,000 partitions.
func BenchmarkTier(b *testing.B) {
	d := many(b, 20_000)
	b.Run("seal", func(b *testing.B) {
		for b.Loop() {
			if _, ok := d.s.Seal(1 << 40); !ok {
				b.Fatal("nothing to seal")
			}
		}
	})
	image := imageOf(b, d.s)
	b.Run("commit", func(b *testing.B) {
		for b.Loop() {
			b.StopTimer()
			if err := d.s.Restore(bytes.NewReader(image)); err != nil {
				b.Fatal(err)
			}
			d.index = d.s.index
			r, _ := d.s.Seal(1 << 40)
			d.index++
			payload, _ := d.s.Prepare(&TierSegment{Row: rowOf(r)}, 5, 0, 0, nil)
			b.StartTimer()
			if err := d.s.Apply(shard.Applied{Index: d.index, Term: 5, Kind: shard.KindItems, Payload: payload}, func(int, any, error) {}); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkLongTail looks into a tail of a million rows.
func BenchmarkLongTail(b *testing.B) {
	d := newDriver(b, Options{})
	k := key(1, 0)
	d.create(k)
	const rows = 1 << 20
	for d.s.Stats().TailRows < rows {
		cmds := make([]any, 4096)
		for i := range cmds {
			cmds[i] = &Produce{Key: k, Batch: plain(1, d.s.Stats().TailRows)}
		}
		e, _ := d.prepare(cmds...)
		d.apply(e)
		d.log = nil
	}
	b.Run("view", func(b *testing.B) {
		for b.Loop() {
			d.s.View(k)
		}
	})
	b.Run("tail", func(b *testing.B) {
		var dst []TailRef
		for i := int64(0); b.Loop(); i++ {
			dst = d.s.Tail(k, i*7919%rows, 1000, true, rows, dst[:0])
		}
	})
	b.Run("time", func(b *testing.B) {
		for b.Loop() {
			d.s.FindTail(k, rows-5, rows)
		}
	})
	b.Run("image", func(b *testing.B) {
		for b.Loop() {
			d.s.Image()
			d.s.own(d.s.parts[0])
		}
	})
}
