package tiering

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"thermocline/tiering/format"
	"thermocline/tiering/object"
)

const (
	// fanIn segments make a run of level 1, fanIn runs of a level one of the next.
	fanIn = 8
	// runRead is how much of a run or fence object is read with one GET.
	runRead = 16 * format.PageLen
)

// runBuilder keeps the directory short: it is a part of the sealer's goroutine,
// and a failure only puts it off, since readers do without the run.
type runBuilder struct {
	s      *Sealer
	next   time.Time
	errors int
}

// job is one run to build.
type job struct {
	level    uint8
	segments []format.SegmentRow // a run of level 1, or
	runs     []format.RunRow     // a merge
}

// plan chooses the next run, if it is time for one.
func plan(m *format.Manifest) (job, bool) {
	if l0 := m.LevelZero(); len(l0) >= fanIn {
		return job{level: 1, segments: l0[:fanIn]}, true
	}
	for i := 0; i+fanIn <= len(m.Runs); i++ {
		group := m.Runs[i : i+fanIn]
		if group[0].Level == group[fanIn-1].Level && (i == 0 || m.Runs[i-1].Level != group[0].Level) {
			return job{level: group[0].Level + 1, runs: group}, true
		}
	}
	return job{}, false
}

// step builds one run if one is due.
func (b *runBuilder) step(ctx context.Context) {
	if ctx.Err() != nil || b.s.o.Now().Before(b.next) {
		return
	}
	m := b.s.o.Source.Manifest()
	j, ok := plan(m)
	if !ok {
		return
	}
	err := b.build(ctx, m, j)
	if err == nil {
		b.errors = 0
		b.s.count.runs.Add(1)
		return
	}
	if ctx.Err() == nil {
		b.s.count.failures.Add(1)
		if b.errors < 3 || b.errors%16 == 0 {
			b.s.o.Logger.Warn("tiering: directory run failed, trying again", "shard", b.s.o.Shard, "level", j.level, "error", err)
		}
	}
	b.next = b.s.o.Now().Add(min(b.s.o.BackoffMax, b.s.o.BackoffMin<<min(b.errors, 16)))
	b.errors++
}

func (b *runBuilder) build(ctx context.Context, m *format.Manifest, j job) error {
	info := format.RunInfo{Cluster: b.s.o.Cluster, Shard: b.s.o.Shard, ID: 1, Level: j.level}
	for i := range m.Runs {
		info.ID = max(info.ID, m.Runs[i].ID+1)
	}
	var replaces []uint32
	if j.segments != nil {
		info.First, info.Last = j.segments[0].ID, j.segments[len(j.segments)-1].ID
	} else {
		info.First, info.Last = j.runs[0].First, j.runs[len(j.runs)-1].Last
		for i := range j.runs {
			replaces = append(replaces, j.runs[i].ID)
		}
	}
	runSpool, err := newSpool(b.s.o.Memory, b.s.o.TempDir, b.estimate(j))
	if err != nil {
		return err
	}
	defer runSpool.close()
	fenceSpool, err := newSpool(b.s.o.Memory, b.s.o.TempDir, m.Fence.Size+format.PageLen)
	if err != nil {
		return err
	}
	defer fenceSpool.close()
	run, fence, err := b.write(ctx, m, j, info, replaces, runSpool, fenceSpool)
	if err != nil {
		return err
	}
	name := format.Name{Kind: format.KindRun, Shard: b.s.o.Shard, Term: b.s.o.Term, Number: uint64(info.ID)}
	if run.Key, err = b.s.upload(ctx, name, runSpool, run.CRC32C); err != nil {
		return err
	}
	name.Kind = format.KindFence
	if fence.Key, err = b.s.upload(ctx, name, fenceSpool, fence.CRC32C); err != nil {
		return err
	}
	if err := b.commit(ctx, run, replaces, fence); err != nil {
		return err
	}
	b.s.superseded(m.Fence.Key)
	for i := range j.runs {
		b.s.superseded(j.runs[i].Key)
	}
	return nil
}

func (b *runBuilder) estimate(j job) int64 {
	n := int64(format.PageLen)
	for i := range j.segments {
		n += int64(j.segments[i].FooterLen)
	}
	for i := range j.runs {
		n += j.runs[i].Size
	}
	return n
}

// commit proposes the run until its fate is known.
func (b *runBuilder) commit(ctx context.Context, run format.RunRow, replaces []uint32, fence format.FenceRow) error {
	for attempt := 0; ; attempt++ {
		err := b.s.o.Committer.CommitRun(ctx, run, replaces, fence)
		if err == nil {
			return nil
		}
		if r, ok := b.s.o.Source.Manifest().Run(run.ID); ok && r.Key == run.Key {
			return nil
		}
		if errors.Is(err, ErrRefused) {
			for _, key := range []string{run.Key, fence.Key} {
				if name, err := format.ParseName(key); err == nil {
					b.s.giveUp(name)
				}
			}
			return err
		}
		if errors.Is(err, ErrNotLeader) || !b.s.wait(ctx, attempt) {
			return err
		}
	}
}

// write merges the entries and the fences.
func (b *runBuilder) write(ctx context.Context, m *format.Manifest, j job, info format.RunInfo, replaces []uint32, runOut, fenceOut *spool) (format.RunRow, format.FenceRow, error) {
	fail := func(err error) (format.RunRow, format.FenceRow, error) {
		return format.RunRow{}, format.FenceRow{}, err
	}
	fw, err := format.NewFenceWriter(&appender{s: fenceOut}, b.s.o.Cluster, b.s.o.Shard)
	if err != nil {
		return fail(err)
	}
	fences := fenceMerge{old: b.fences(ctx, &m.Fence, replaces), out: fw}
	rw, err := format.NewRunWriter(&appender{s: runOut}, fences.add, info)
	if err != nil {
		return fail(err)
	}
	inputs, err := b.inputs(ctx, j)
	if err != nil {
		return fail(err)
	}
	if err := mergeEntries(inputs, rw); err != nil {
		return fail(err)
	}
	if err := b.segmentRows(ctx, j, rw); err != nil {
		return fail(err)
	}
	run, err := rw.Finish()
	if err != nil {
		return fail(err)
	}
	if err := fences.rest(); err != nil {
		return fail(err)
	}
	fence, err := fw.Finish()
	return run, fence, err
}

// entry is one directory entry on its way into a run.
type entry struct {
	format.Extent
	epoch int32
	ref   format.SegmentRef
}

// entries yields directory entries by partition and offset; io.EOF ends.
type entries func() (entry, error)

func mergeEntries(inputs []entries, w *format.RunWriter) error {
	heads := make([]entry, 0, len(inputs))
	live := make([]entries, 0, len(inputs))
	for _, in := range inputs {
		e, err := in()
		if errors.Is(err, io.EOF) {
			continue
		}
		if err != nil {
			return err
		}
		heads, live = append(heads, e), append(live, in)
	}
	for len(live) > 0 {
		best := 0
		for i := 1; i < len(heads); i++ {
			if a, b := &heads[i], &heads[best]; a.Partition < b.Partition || a.Partition == b.Partition && a.FirstOffset < b.FirstOffset {
				best = i
			}
		}
		if err := w.Add(heads[best].Extent, heads[best].epoch, heads[best].ref); err != nil {
			return err
		}
		e, err := live[best]()
		switch {
		case errors.Is(err, io.EOF):
			heads, live = append(heads[:best], heads[best+1:]...), append(live[:best], live[best+1:]...)
		case err != nil:
			return err
		default:
			heads[best] = e
		}
	}
	return nil
}

func (b *runBuilder) inputs(ctx context.Context, j job) ([]entries, error) {
	var out []entries
	for i := range j.segments {
		in, err := b.segmentEntries(ctx, &j.segments[i])
		if err != nil {
			return nil, err
		}
		out = append(out, in)
	}
	for i := range j.runs {
		out = append(out, b.runEntries(ctx, &j.runs[i]))
	}
	return out, nil
}

func (b *runBuilder) segmentEntries(ctx context.Context, row *format.SegmentRow) (entries, error) {
	ref, err := row.Ref()
	if err != nil {
		return nil, err
	}
	tail := make([]byte, row.FooterLen)
	if err := b.read(ctx, row.Key, row.Size-int64(row.FooterLen), tail); err != nil {
		return nil, err
	}
	seg, err := format.ParseSegment(tail, row.Size)
	if err != nil {
		return nil, fmt.Errorf("tiering: %s: %w", row.Key, err)
	}
	return directoryEntries(&seg.Directory, func(e *format.Extent) (format.SegmentRef, bool) {
		e.Segment = row.ID
		return ref, true
	}), nil
}

// directoryEntries yields the entries of one directory; complete finds the
// segment of each.
func directoryEntries(d *format.Directory, complete func(*format.Extent) (format.SegmentRef, bool)) entries {
	i := 0
	return func() (entry, error) {
		if i == len(d.Extents) {
			return entry{}, io.EOF
		}
		e := entry{Extent: d.Extents[i], epoch: d.Epoch(i)}
		var ok bool
		if e.ref, ok = complete(&e.Extent); !ok {
			return entry{}, fmt.Errorf("tiering: segment %d is not named: %w", e.Segment, format.ErrCorrupt)
		}
		i++
		return e, nil
	}
}

// runEntries yields the entries of a run, some pages at a time.
func (b *runBuilder) runEntries(ctx context.Context, row *format.RunRow) entries {
	blocks := b.blocks(ctx, row.Key, int(row.Pages))
	var cur entries
	return func() (entry, error) {
		for {
			if cur != nil {
				if e, err := cur(); !errors.Is(err, io.EOF) {
					return e, err
				}
			}
			p, err := blocks()
			if err != nil {
				return entry{}, err
			}
			page, err := format.ParsePage(p)
			if err != nil {
				return entry{}, fmt.Errorf("tiering: %s: %w", row.Key, err)
			}
			cur = directoryEntries(&page.Directory, func(e *format.Extent) (format.SegmentRef, bool) { return page.Segment(e.Segment) })
		}
	}
}

// blocks yields an object's first n blocks of PageLen; io.EOF ends.
func (b *runBuilder) blocks(ctx context.Context, key string, n int) func() ([]byte, error) {
	var buf []byte
	next, have := 0, []byte(nil)
	return func() ([]byte, error) {
		if len(have) == 0 {
			if next == n {
				return nil, io.EOF
			}
			k := min(n-next, runRead/format.PageLen)
			if buf == nil {
				buf = make([]byte, k*format.PageLen)
			}
			have = buf[:k*format.PageLen]
			if err := b.read(ctx, key, int64(next)*format.PageLen, have); err != nil {
				return nil, err
			}
			next += k
		}
		p := have[:format.PageLen]
		have = have[format.PageLen:]
		return p, nil
	}
}

// read fills p from an object, or fails.
func (b *runBuilder) read(ctx context.Context, key string, at int64, p []byte) error {
	return b.s.bounded(ctx, func(ctx context.Context) error {
		return readFull(ctx, b.s.o.Store, format.ObjectKey(b.s.o.Cluster, key), at, p)
	})
}

func readFull(ctx context.Context, store object.Store, key string, at int64, p []byte) error {
	n, err := store.GetRange(ctx, key, at, p)
	if err != nil {
		return err
	}
	if n < len(p) {
		return fmt.Errorf("tiering: %s: expected %d bytes at %d, found %d: %w", key, len(p), at, n, format.ErrCorrupt)
	}
	return nil
}

// segmentRows hands the rows of all segments that the run covers on to it.
func (b *runBuilder) segmentRows(ctx context.Context, j job, w *format.RunWriter) error {
	for i := range j.segments {
		if err := w.AddSegment(&j.segments[i]); err != nil {
			return err
		}
	}
	for i := range j.runs {
		err := EachSegment(ctx, b.s.o.Store, b.s.o.Cluster, &j.runs[i], w.AddSegment)
		if err != nil {
			return err
		}
	}
	return nil
}

// EachSegment calls fn with the row of each segment that a run covers, by id,
// reading the run's object a piece at a time.
func EachSegment(ctx context.Context, store object.Store, cluster string, run *format.RunRow, fn func(*format.SegmentRow) error) error {
	key := format.ObjectKey(cluster, run.Key)
	last := make([]byte, format.RunFooterLen)
	if err := readFull(ctx, store, key, run.Size-format.RunFooterLen, last); err != nil {
		return err
	}
	f, err := format.ParseRunFooter(last, run.Size)
	if err != nil {
		return fmt.Errorf("tiering: %s: %w", key, err)
	}
	at, end := int64(f.Pages)*format.PageLen, run.Size-format.RunFooterLen
	var crc, n uint32
	var buf []byte
	for at < end || len(buf) > 0 {
		if k := min(end-at, runRead-int64(len(buf))); k > 0 && len(buf) < runRead/2 {
			have := len(buf)
			buf = append(buf, make([]byte, k)...)
			if err := readFull(ctx, store, key, at, buf[have:]); err != nil {
				return err
			}
			crc = format.UpdateChecksum(crc, buf[have:])
			at += k
		}
		row, rest, err := format.DecodeSegmentRow(buf)
		if err != nil {
			return fmt.Errorf("tiering: %s: segment row %d: %w", key, n, err)
		}
		if err := fn(&row); err != nil {
			return err
		}
		buf = rest
		n++
	}
	if n != f.SegmentCount || crc != f.SegmentsCRC {
		return fmt.Errorf("tiering: %s: expected %d segment rows, crc %08x, found %d, %08x: %w", key, f.SegmentCount, f.SegmentsCRC, n, crc, format.ErrCorrupt)
	}
	return nil
}

// fences yields the fences of the current object but those of replaced runs.
func (b *runBuilder) fences(ctx context.Context, row *format.FenceRow, replaced []uint32) func() (format.Fence, error) {
	gone := map[uint32]bool{}
	for _, id := range replaced {
		gone[id] = true
	}
	blocks := b.blocks(ctx, row.Key, len(row.Blocks))
	var block *format.FenceBlock
	i := 0
	return func() (format.Fence, error) {
		for {
			for block != nil && i < len(block.Fences) {
				f := block.Fences[i]
				i++
				if !gone[f.Run] {
					return f, nil
				}
			}
			p, err := blocks()
			if err != nil {
				return format.Fence{}, err
			}
			if block, err = format.ParseFenceBlock(p); err != nil {
				return format.Fence{}, fmt.Errorf("tiering: %s: %w", row.Key, err)
			}
			i = 0
		}
	}
}

// fenceMerge merges the fences that stay with those of the new run.
type fenceMerge struct {
	old  func() (format.Fence, error)
	head *format.Fence
	done bool
	out  *format.FenceWriter
}

// peek returns the next fence that stays; nil at the end.
func (m *fenceMerge) peek() (*format.Fence, error) {
	if m.head == nil && !m.done {
		f, err := m.old()
		switch {
		case errors.Is(err, io.EOF):
			m.done = true
		case err != nil:
			return nil, err
		default:
			m.head = &f
		}
	}
	return m.head, nil
}

func (m *fenceMerge) add(f format.Fence) error {
	for {
		h, err := m.peek()
		if err != nil {
			return err
		}
		if h == nil || h.Partition > f.Partition || h.Partition == f.Partition && h.FirstOffset > f.FirstOffset {
			return m.out.Add(f)
		}
		m.head = nil
		if err := m.out.Add(*h); err != nil {
			return err
		}
	}
}

func (m *fenceMerge) rest() error {
	for {
		h, err := m.peek()
		if h == nil || err != nil {
			return err
		}
		m.head = nil
		if err := m.out.Add(*h); err != nil {
			return err
		}
	}
}
