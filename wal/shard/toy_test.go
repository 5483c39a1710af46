package shard

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

var errToyGap = errors.New("toy: not the next offset")

// toyPut appends data at the next offset; Key repeats are duplicates.
type toyPut struct {
	Key  uint64
	Data []byte
}

// toyMachine is the smallest state machine with everything a shard cares
// about: a running offset, duplicates in flight, a tiered index.
type toyMachine struct {
	index    uint64
	next     uint64 // applied
	prepared uint64
	keys     map[uint64]uint64 // key -> offset
	flying   map[uint64]uint64 // key -> ticket
	log      []string
	hw       uint64
	ready    bool
	tiered   uint64
	resets   int
}

func newToy() *toyMachine {
	return &toyMachine{keys: map[uint64]uint64{}, flying: map[uint64]uint64{}}
}

func (m *toyMachine) Size(cmd any) int { return 20 + len(cmd.(*toyPut).Data) }

func (m *toyMachine) Prepare(cmd any, term, ticket uint64, _ int64, p []byte) ([]byte, Prepared) {
	c := cmd.(*toyPut)
	if off, ok := m.keys[c.Key]; ok {
		return p, Prepared{Final: true, Result: off}
	}
	if t, ok := m.flying[c.Key]; ok {
		return p, Prepared{SameAs: t}
	}
	if len(c.Data) == 0 {
		return p, Prepared{Err: errors.New("toy: empty")}
	}
	m.flying[c.Key] = ticket
	p = binary.LittleEndian.AppendUint32(p, uint32(len(c.Data)))
	p = binary.LittleEndian.AppendUint64(p, m.prepared)
	p = binary.LittleEndian.AppendUint64(p, c.Key)
	p = append(p, c.Data...)
	m.prepared++
	return p, Prepared{Result: m.prepared - 1}
}

func (m *toyMachine) Apply(e Applied, emit func(int, any, error)) error {
	p := e.Payload
	for i := 0; len(p) > 0; i++ {
		if len(p) < 20 {
			return io.ErrUnexpectedEOF
		}
		n := binary.LittleEndian.Uint32(p)
		off, key := binary.LittleEndian.Uint64(p[4:]), binary.LittleEndian.Uint64(p[12:])
		data := p[20 : 20+n]
		p = p[20+n:]
		if off != m.next {
			emit(i, nil, fmt.Errorf("offset %d, next %d: %w", off, m.next, errToyGap))
			continue
		}
		m.log = append(m.log, string(data))
		m.keys[key] = off
		delete(m.flying, key)
		m.next++
		m.prepared = max(m.prepared, m.next) // of an earlier leader
		emit(i, off, nil)
	}
	m.index = e.Index
	return nil
}

func (m *toyMachine) SkipEntry(index, _ uint64) { m.index = index }

func (m *toyMachine) ResetProposed() {
	m.prepared = m.next
	clear(m.flying)
	m.resets++
}

func (m *toyMachine) SetHW(hw uint64, ready bool) { m.hw, m.ready = hw, ready }

func (m *toyMachine) TrimmableIndex() uint64 { return m.tiered }

func (m *toyMachine) Image() Image {
	return &toyImage{index: m.index, tiered: m.tiered, log: append([]string(nil), m.log...), keys: m.sortedKeys()}
}

func (m *toyMachine) sortedKeys() []uint64 {
	out := make([]uint64, m.next)
	for k, off := range m.keys {
		out[off] = k
	}
	return out
}

func (m *toyMachine) Restore(r io.Reader) error {
	var head [24]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return err
	}
	*m = *newToy()
	m.index = binary.LittleEndian.Uint64(head[:])
	m.tiered = binary.LittleEndian.Uint64(head[8:])
	m.next = binary.LittleEndian.Uint64(head[16:])
	m.prepared = m.next
	for off := range m.next {
		var h [12]byte
		if _, err := io.ReadFull(r, h[:]); err != nil {
			return err
		}
		data := make([]byte, binary.LittleEndian.Uint32(h[8:]))
		if _, err := io.ReadFull(r, data); err != nil {
			return err
		}
		m.keys[binary.LittleEndian.Uint64(h[:])] = off
		m.log = append(m.log, string(data))
	}
	_, err := io.Copy(io.Discard, r)
	return err
}

type toyImage struct {
	index, tiered uint64
	log           []string
	keys          []uint64
}

func (i *toyImage) Index() uint64     { return i.index }
func (i *toyImage) SizeEstimate() int { return 24 + 32*len(i.log) }

func (i *toyImage) Encode(w io.Writer) error {
	b := binary.LittleEndian.AppendUint64(nil, i.index)
	b = binary.LittleEndian.AppendUint64(b, i.tiered)
	b = binary.LittleEndian.AppendUint64(b, uint64(len(i.log)))
	for n, s := range i.log {
		b = binary.LittleEndian.AppendUint64(b, i.keys[n])
		b = binary.LittleEndian.AppendUint32(b, uint32(len(s)))
		b = append(b, s...)
	}
	_, err := w.Write(b)
	return err
}
