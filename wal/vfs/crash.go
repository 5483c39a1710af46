package vfs

import (
	"maps"
	"math/rand/v2"
	"slices"
)

// crash rebuilds a file system as a power cut might leave it. Its draws come
// in a fixed order: directories and names sorted, blocks in ascending order.
type crash struct {
	rng *rand.Rand
	to  *Mem
	// copied maps an inode to its copy: a file can be reached by two names
	// while a rename is half durable.
	copied map[*inode]*inode
	// keep is this crash's odds that an unsynced block survives whole: a cut
	// right after the write keeps nearly all, an early one nearly nothing.
	keep float64
}

// Crash returns the file system after a power cut at this moment: each unsynced
// block is kept, lost or torn, and each directory change since the last SyncDir
// is kept or lost, by odds drawn from seed. The same state and seed give the
// same result. The receiver is unchanged, and its handles stay its own; locks
// are gone.
func (m *Mem) Crash(seed uint64) *Mem {
	m.mu.Lock()
	defer m.mu.Unlock()
	to := NewMem(m.seed)
	to.capacity = m.capacity
	c := &crash{
		rng:    rand.New(rand.NewPCG(m.seed, seed)),
		to:     to,
		copied: map[*inode]*inode{},
	}
	c.keep = []float64{0, 0.1, 0.5, 0.9, 1}[c.rng.IntN(5)]
	for _, name := range slices.Sorted(maps.Keys(m.dirs)) {
		d := newMemDir()
		d.cur = c.names(m.dirs[name])
		for _, base := range slices.Sorted(maps.Keys(d.cur)) {
			d.cur[base] = c.inode(d.cur[base])
		}
		d.durable = maps.Clone(d.cur)
		to.dirs[name] = d
	}
	return to
}

// names draws which pending changes of a directory happened: a prefix of them,
// as a journal gives, or any subset.
func (c *crash) names(d *memDir) map[string]*inode {
	out := maps.Clone(d.durable)
	prefix := -1
	if len(d.pending) > 0 && c.rng.IntN(2) == 0 {
		prefix = c.rng.IntN(len(d.pending) + 1)
	}
	for i, op := range d.pending {
		if prefix >= 0 && i >= prefix {
			break
		}
		if prefix < 0 && c.rng.IntN(2) == 0 {
			continue
		}
		if op.remove != "" {
			// A rename whose source never became durable moves nothing.
			if op.set != "" && out[op.remove] != op.ino {
				continue
			}
			delete(out, op.remove)
		}
		if op.set != "" {
			out[op.set] = op.ino
		}
	}
	return out
}

// inode copies a file as the cut leaves it.
func (c *crash) inode(from *inode) *inode {
	if done := c.copied[from]; done != nil {
		return done
	}
	ino := &inode{size: from.durableSize}
	c.copied[from] = ino
	if from.size != from.durableSize && c.rng.Float64() < max(c.keep, 0.1) {
		ino.size = from.size
	}
	ino.durableSize = ino.size
	ino.blocks = make([]*memBlock, len(from.blocks))
	for i, b := range from.blocks {
		if b == nil {
			continue
		}
		content := c.block(b)
		start := int64(i) * BlockSize
		if content == nil || start >= ino.size {
			continue
		}
		if end := ino.size - start; end < BlockSize {
			clear(content[end:])
		}
		ino.blocks[i] = &memBlock{cur: content}
		c.to.used += BlockSize
	}
	return ino
}

// block draws one block's content; nil is a hole.
func (c *crash) block(b *memBlock) []byte {
	if !b.dirty || c.rng.Float64() < c.keep {
		return slices.Clone(b.cur)
	}
	if c.rng.IntN(4) != 0 {
		return slices.Clone(b.old)
	}
	// Torn: the drive was writing this block.
	out := make([]byte, BlockSize)
	copy(out, b.old)
	for s := 0; s < BlockSize; s += sectorSize {
		switch c.rng.IntN(8) {
		case 0:
			for i := range sectorSize {
				out[s+i] = byte(c.rng.Uint32())
			}
		case 1, 2, 3:
			copy(out[s:s+sectorSize], b.cur[s:])
		}
	}
	return out
}
