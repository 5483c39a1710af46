package format

// cursor reads fields off a slice; after the first read beyond the end it
// stays bad and returns zeros, so that callers check once.
type cursor struct {
	p   []byte
	bad bool
}

func (c *cursor) take(n int) []byte {
	if c.bad || n < 0 || len(c.p) < n {
		c.bad = true
		return nil
	}
	out := c.p[:n:n]
	c.p = c.p[n:]
	return out
}

func (c *cursor) u8() uint8 {
	if p := c.take(1); p != nil {
		return p[0]
	}
	return 0
}

func (c *cursor) u16() uint16 {
	if p := c.take(2); p != nil {
		return le.Uint16(p)
	}
	return 0
}

func (c *cursor) u32() uint32 {
	if p := c.take(4); p != nil {
		return le.Uint32(p)
	}
	return 0
}

func (c *cursor) u64() uint64 {
	if p := c.take(8); p != nil {
		return le.Uint64(p)
	}
	return 0
}

func (c *cursor) i64() int64 { return int64(c.u64()) }

func (c *cursor) text() string { return string(c.take(int(c.u16()))) }

// count reads a list's length and refuses one that the rest cannot hold.
func (c *cursor) count(each int) int {
	n := int64(c.u32())
	if c.bad || n*int64(each) > int64(len(c.p)) {
		c.bad = true
		return 0
	}
	return int(n)
}
