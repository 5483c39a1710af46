package partition

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	"thermocline/tiering/format"
	"thermocline/wal/batch"
	"thermocline/wal/shard"
)

func key(topic byte, n int32) Key {
	k := Key{Partition: n}
	k.Topic[0] = topic
	return k
}

// plain makes a batch of n records at timestamp ts without a producer.
func plain(n int, ts int64) batch.Batch {
	return built(n, ts, nil)
}

// from makes a batch of a producer.
func from(id int64, epoch int16, sequence int32, n int) batch.Batch {
	return built(n, 1000, &batch.Producer{ID: id, Epoch: epoch, Sequence: sequence})
}

func built(n int, ts int64, p *batch.Producer) batch.Batch {
	b := batch.NewBuilder(batch.BuilderOptions{Producer: p})
	for i := 0; i < n; i++ {
		b.Add(ts, nil, []byte("v"))
	}
	return b.Build()
}

// entry is one proposed entry with what Prepare said.
type entry struct {
	index, term uint64
	time        int64
	payload     []byte
	tickets     []uint64 // of its items
}

func (e entry) applied() shard.Applied {
	return shard.Applied{Index: e.index, Term: e.term, Kind: shard.KindItems, TimeUnixMilli: e.time, Payload: e.payload}
}

// driver plays the shard for one Set: one entry per call, applied at once.
type driver struct {
	t      testing.TB
	s      *Set
	index  uint64
	term   uint64
	time   int64
	ticket uint64
	log    []entry
	lagHW  bool // do not move HW
}

func newDriver(t testing.TB, o Options) *driver {
	if o.Shard == 0 {
		o.Shard = 7
	}
	return &driver{t: t, s: NewSet(o), index: BootstrapIndex, term: 5, time: 1_000_000}
}

// prepare makes the next entry of commands; verdicts are in their order.
func (d *driver) prepare(cmds ...any) (entry, []shard.Prepared) {
	d.index++
	e := entry{index: d.index, term: d.term, time: d.time}
	var preps []shard.Prepared
	for _, c := range cmds {
		d.ticket++
		before := len(e.payload)
		var p shard.Prepared
		e.payload, p = d.s.Prepare(c, d.term, d.ticket, d.time, e.payload)
		if n := len(e.payload) - before; n > d.s.Size(c) {
			d.t.Fatalf("%T: Size says %d, Prepare appended %d", c, d.s.Size(c), n)
		} else if n > 0 {
			e.tickets = append(e.tickets, d.ticket)
		}
		preps = append(preps, p)
	}
	return e, preps
}

// apply applies e and returns the outcomes of its items.
func (d *driver) apply(e entry) []outcome {
	d.t.Helper()
	if err := CheckPayload(e.payload); err != nil {
		d.t.Fatal(err)
	}
	out, err := applyTo(d.s, e)
	if err != nil {
		d.t.Fatal(err)
	}
	if len(out) != len(e.tickets) {
		d.t.Fatalf("entry %d: %d items, %d outcomes", e.index, len(e.tickets), len(out))
	}
	d.log = append(d.log, e)
	if !d.lagHW {
		d.s.SetHW(e.index, true)
	}
	return out
}

func applyTo(s *Set, e entry) (out []outcome, err error) {
	if len(e.payload) == 0 {
		s.SkipEntry(e.index, e.term)
		return nil, nil
	}
	err = s.Apply(e.applied(), func(i int, r any, err error) {
		if i != len(out) {
			panic(fmt.Sprintf("item %d emitted as number %d", i, len(out)))
		}
		out = append(out, outcome{r, err})
	})
	return out, err
}

// do prepares and applies one command.
func (d *driver) do(cmd any) (any, error) {
	d.t.Helper()
	e, preps := d.prepare(cmd)
	if p := preps[0]; p.Err != nil || p.Final || p.SameAs != 0 {
		d.apply(e)
		return p.Result, p.Err
	}
	o := d.apply(e)[0]
	return o.result, o.err
}

func (d *driver) must(cmd any) any {
	d.t.Helper()
	r, err := d.do(cmd)
	if err != nil {
		d.t.Fatalf("%T: %v", cmd, err)
	}
	return r
}

func (d *driver) produce(k Key, b batch.Batch) (ProduceResult, error) {
	d.t.Helper()
	r, err := d.do(&Produce{Key: k, Batch: b})
	if err != nil {
		return ProduceResult{}, err
	}
	return r.(ProduceResult), nil
}

func (d *driver) create(keys ...Key) {
	d.t.Helper()
	for _, k := range keys {
		d.must(&CreatePartition{Key: k, Name: fmt.Sprintf("topic-%d", k.Topic[0]), Config: map[string]string{"a": "1"}})
	}
}

func (d *driver) view(k Key) View {
	d.t.Helper()
	v, ok := d.s.View(k)
	if !ok {
		d.t.Fatalf("no partition %v", k)
	}
	return v
}

// tier commits what Seal offers.
func (d *driver) tier() (format.SegmentID, *SealRange) {
	d.t.Helper()
	r, ok := d.s.Seal(1 << 40)
	if !ok {
		d.t.Fatal("nothing to seal")
	}
	return d.must(&TierSegment{Row: rowOf(r)}).(format.SegmentID), r
}

func rowOf(r *SealRange) format.SegmentRow {
	return format.SegmentRow{Key: fmt.Sprintf("segments/%d-%d", r.First, r.Last), FirstIndex: r.First, LastIndex: r.Last, Size: r.Bytes, FooterLen: 100}
}

func imageOf(t testing.TB, s *Set) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := s.Image().Encode(&b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func restored(t testing.TB, o Options, image []byte) *Set {
	t.Helper()
	s := NewSet(o)
	if err := s.Restore(bytes.NewReader(image)); err != nil {
		t.Fatal(err)
	}
	return s
}

func wantErr(t testing.TB, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("error: expected %v, found %v", want, err)
	}
}

func want[T comparable](t testing.TB, what string, found, expected T) {
	t.Helper()
	if found != expected {
		t.Fatalf("%s: expected %v, found %v", what, expected, found)
	}
}
