package batch

// Zigzag varints as Kafka's records use them. A decoder returns how many bytes
// it took; 0 means that p ends inside the number, -1 that it is too long for
// its type. Longer encodings than needed are allowed, as in Kafka, up to the
// type's own maximum.

const (
	maxVarint32 = 5
	maxVarint64 = 10
)

// varintShort reads a number of one or two bytes at p[i], not yet unfolded,
// where another byte follows it; n is 0 for any other, which is not to say
// that it is wrong. It is small enough to be inlined: this is the innermost
// step of the produce path.
func varintShort(p []byte, i int) (u uint32, n int) {
	if uint(i+1) >= uint(len(p)) {
		return 0, 0
	}
	u = uint32(p[i])
	if u < 0x80 {
		return u, 1
	}
	if c := uint32(p[i+1]); c < 0x80 {
		return u&0x7f | c<<7, 2
	}
	return 0, 0
}

func varint32(p []byte) (v int32, n int) {
	if len(p) > 0 && p[0] < 0x80 {
		u := uint32(p[0])
		return int32(u>>1) ^ -int32(u&1), 1
	}
	return varint32Slow(p)
}

func varint32Slow(p []byte) (int32, int) {
	var u uint32
	for i := 0; i < len(p); i++ {
		c := p[i]
		if i == maxVarint32-1 && c > 0x0f {
			return 0, -1
		}
		u |= uint32(c&0x7f) << (7 * i)
		if c < 0x80 {
			return int32(u>>1) ^ -int32(u&1), i + 1
		}
	}
	return 0, 0
}

func varint64(p []byte) (v int64, n int) {
	if len(p) > 0 && p[0] < 0x80 {
		u := uint64(p[0])
		return int64(u>>1) ^ -int64(u&1), 1
	}
	return varint64Slow(p)
}

func varint64Slow(p []byte) (int64, int) {
	var u uint64
	for i := 0; i < len(p); i++ {
		c := p[i]
		if i == maxVarint64-1 && c > 0x01 {
			return 0, -1
		}
		u |= uint64(c&0x7f) << (7 * i)
		if c < 0x80 {
			return int64(u>>1) ^ -int64(u&1), i + 1
		}
	}
	return 0, 0
}

func appendVarint(dst []byte, v int64) []byte {
	u := uint64(v)<<1 ^ uint64(v>>63)
	for u >= 0x80 {
		dst = append(dst, byte(u)|0x80)
		u >>= 7
	}
	return append(dst, byte(u))
}

func varintLen(v int64) int {
	u := uint64(v)<<1 ^ uint64(v>>63)
	n := 1
	for u >= 0x80 {
		u >>= 7
		n++
	}
	return n
}
