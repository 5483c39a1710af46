package partition

import "sort"

// chunkRows is the length of a full chunk of rows: 3.5 KiB. A partition with
// few rows has a short one only, so that 100,000 nearly idle ones cost little.
const chunkRows = 64

// tail holds the rows of batches that are not in the store, in offset order,
// without gaps. Chunks are only appended and cut off; what an image sees of
// them never changes, so that both share them.
type tail struct {
	full []chunk
	open []TailRef // the newest rows; at most chunkRows
	// skip is how many rows of full[0] have been dropped.
	skip  int
	rows  int
	bytes int64
}

// chunk is a sealed piece of a tail, with its own maximum for look-ups by time.
type chunk struct {
	rows  []TailRef
	maxTS int64
}

func (t *tail) push(r TailRef) {
	switch {
	case len(t.open) == chunkRows:
		t.full = append(t.full, chunk{rows: t.open, maxTS: maxTimestamp(t.open)})
		t.open = append(make([]TailRef, 0, chunkRows), r)
	default:
		t.open = append(t.open, r)
	}
	t.rows++
	t.bytes += int64(r.Len)
}

func maxTimestamp(rows []TailRef) int64 {
	m := int64(-1)
	for i := range rows {
		m = max(m, rows[i].MaxTimestamp)
	}
	return m
}

// at returns the i-th live row. Every full chunk holds chunkRows rows.
func (t *tail) at(i int) *TailRef {
	i += t.skip
	if c := i / chunkRows; c < len(t.full) {
		return &t.full[c].rows[i%chunkRows]
	}
	return &t.open[i-len(t.full)*chunkRows]
}

// last returns the newest row; there must be one.
func (t *tail) last() *TailRef { return &t.open[len(t.open)-1] }

// dropFront drops the first n rows. What is cut moves to a new array: an image
// may still read the old one, and a slice of it would keep all of it alive.
func (t *tail) dropFront(n int) {
	for i := 0; i < n; i++ {
		t.bytes -= int64(t.at(i).Len)
	}
	t.rows -= n
	if t.rows == 0 {
		*t = tail{}
		return
	}
	t.skip += n
	if c := min(t.skip/chunkRows, len(t.full)); c > 0 {
		t.full = append([]chunk(nil), t.full[c:]...)
		t.skip -= c * chunkRows
	}
	if len(t.full) == 0 && t.skip > 0 {
		t.open = append([]TailRef(nil), t.open[t.skip:]...)
		t.skip = 0
	}
}

// findOffset returns the first row that ends at or after offset; rows if none does.
func (t *tail) findOffset(offset int64) int {
	return sort.Search(t.rows, func(i int) bool { return t.at(i).Last >= offset })
}

// findIndexAfter returns the number of rows with an index at or below index.
func (t *tail) findIndexAfter(index uint64) int {
	return sort.Search(t.rows, func(i int) bool { return t.at(i).Index > index })
}

// findTime returns the first row that begins below upTo and has a timestamp of ts
// or later; -1 if none has. Whole chunks are passed over by their maximum.
func (t *tail) findTime(ts, upTo int64) int {
	for i := 0; i < t.rows; {
		if c := (i + t.skip) / chunkRows; c < len(t.full) && t.full[c].maxTS < ts {
			i = (c+1)*chunkRows - t.skip
			continue
		}
		r := t.at(i)
		if r.First >= upTo {
			return -1
		}
		if r.MaxTimestamp >= ts {
			return i
		}
		i++
	}
	return -1
}

// findMax returns the first row with the largest timestamp among those that
// begin below upTo; -1 if there is none.
func (t *tail) findMax(upTo int64) int {
	best, most := -1, int64(-2)
	for i := 0; i < t.rows; {
		if c := (i + t.skip) / chunkRows; c < len(t.full) && t.full[c].maxTS <= most {
			i = (c+1)*chunkRows - t.skip
			continue
		}
		r := t.at(i)
		if r.First >= upTo {
			break
		}
		if r.MaxTimestamp > most {
			best, most = i, r.MaxTimestamp
		}
		i++
	}
	return best
}
