package wal

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"strconv"
	"strings"
)

// The format is drawn in doc.go; the offsets here are the same.
const (
	formatVersion = 1

	// blockSize is the unit in which a disk loses unsynced writes: a group
	// starts on a fresh block.
	blockSize = 4096

	fileHeaderLen   = 64
	groupHeaderLen  = 48
	recordHeaderLen = 40
	hardBodyLen     = 8
	pointerBodyLen  = 16
)

var (
	fileMagic  = [8]byte{'t', 'h', 'e', 'r', 'm', 'w', 'a', 'l'}
	groupMagic = uint32(0x47_57_43_54) // "TCWG"
	castagnoli = crc32.MakeTable(crc32.Castagnoli)
)

// Kind is what a record holds.
type kind uint8

const (
	kindEntry   kind = 1
	kindHard    kind = 2
	kindPointer kind = 3
	kindRemove  kind = 4
)

func (k kind) String() string {
	switch k {
	case kindEntry:
		return "entry"
	case kindHard:
		return "hard-state"
	case kindPointer:
		return "snapshot-pointer"
	case kindRemove:
		return "remove-shard"
	}
	return "kind-" + strconv.Itoa(int(k))
}

// Record flags.
const (
	// flagCopy marks what recycling rewrote: it takes its own place and cuts off
	// nothing.
	flagCopy = 1 << 0
	// flagStaged marks an entry that comes with a snapshot stream.
	flagStaged = 1 << 1
	// flagInstall marks a pointer that replaces the shard's log by the staged
	// entries.
	flagInstall = 1 << 2

	// flagRunStart marks the first entry of a snapshot stream: staged entries
	// before it are void.
	flagRunStart = 1 << 3
)

// groupClosing marks a group that an idle log wrote to name the synced end.
const groupClosing = 1 << 0

var le = binary.LittleEndian

// fileHeader is the content of a file's first block.
type fileHeader struct {
	use    uint64
	start  Position // of the file's first byte
	length int64
	synced Position // end of the last group before this file
}

func (h *fileHeader) encode(b []byte) {
	clear(b[:fileHeaderLen])
	copy(b, fileMagic[:])
	b[8] = formatVersion
	le.PutUint32(b[12:], blockSize)
	le.PutUint64(b[16:], h.use)
	le.PutUint64(b[24:], uint64(h.start))
	le.PutUint64(b[32:], uint64(h.length))
	le.PutUint64(b[40:], uint64(h.synced))
	le.PutUint32(b[60:], checksum(b[:60]))
}

// decodeFileHeader returns what was expected and found when b is no header.
func decodeFileHeader(b []byte) (h fileHeader, expected, found string) {
	if [8]byte(b[:8]) != fileMagic {
		return h, fmt.Sprintf("file magic %x", fileMagic), fmt.Sprintf("%x", b[:8])
	}
	if want, got := checksum(b[:60]), le.Uint32(b[60:]); want != got {
		return h, fmt.Sprintf("file header checksum %08x", want), fmt.Sprintf("%08x", got)
	}
	if b[8] != formatVersion {
		return h, versionExpected, fmt.Sprintf("version %d", b[8])
	}
	h = fileHeader{
		use:    le.Uint64(b[16:]),
		start:  Position(le.Uint64(b[24:])),
		length: int64(le.Uint64(b[32:])),
		synced: Position(le.Uint64(b[40:])),
	}
	if size := le.Uint32(b[12:]); size != blockSize {
		return h, fmt.Sprintf("block size %d", blockSize), strconv.Itoa(int(size))
	}
	if h.length < minFileBytes || h.length%blockSize != 0 || h.start%blockSize != 0 {
		return h, "a length and start in whole blocks", fmt.Sprintf("length %d, start %d", h.length, h.start)
	}
	return h, "", ""
}

// versionExpected is the "expected" of a header that a newer version wrote.
const versionExpected = "version 1"

// groupHeader opens each group commit.
type groupHeader struct {
	flags   uint8
	use     uint64
	pos     Position
	length  uint32 // with this header, without the padding behind it
	records uint32
	synced  Position // end of the last group before this one
}

func (h *groupHeader) encode(b []byte) {
	clear(b[:groupHeaderLen])
	le.PutUint32(b, groupMagic)
	b[4] = formatVersion
	b[5] = h.flags
	le.PutUint64(b[8:], h.use)
	le.PutUint64(b[16:], uint64(h.pos))
	le.PutUint32(b[24:], h.length)
	le.PutUint32(b[28:], h.records)
	le.PutUint64(b[32:], uint64(h.synced))
	le.PutUint32(b[44:], checksum(b[:44]))
}

// decodeGroupHeader checks b against the place it stands in. found is empty
// when it is a header of this use of the file.
func decodeGroupHeader(b []byte, use uint64, pos Position) (h groupHeader, expected, found string) {
	if got := le.Uint32(b); got != groupMagic {
		return h, fmt.Sprintf("group magic %08x", groupMagic), fmt.Sprintf("%08x", got)
	}
	if want, got := checksum(b[:44]), le.Uint32(b[44:]); want != got {
		return h, fmt.Sprintf("group header checksum %08x", want), fmt.Sprintf("%08x", got)
	}
	h = groupHeader{
		flags:   b[5],
		use:     le.Uint64(b[8:]),
		pos:     Position(le.Uint64(b[16:])),
		length:  le.Uint32(b[24:]),
		records: le.Uint32(b[28:]),
		synced:  Position(le.Uint64(b[32:])),
	}
	if h.use != use || h.pos != pos {
		return h, fmt.Sprintf("use %d, position %d", use, pos), fmt.Sprintf("use %d, position %d", h.use, h.pos)
	}
	if b[4] != formatVersion {
		return h, versionExpected, fmt.Sprintf("version %d", b[4])
	}
	if h.length < groupHeaderLen || uint64(h.records)*recordHeaderLen > uint64(h.length) {
		return h, "a length that holds the records", fmt.Sprintf("length %d for %d records", h.length, h.records)
	}
	return h, "", ""
}

// record is one record's header, and its descriptor.
type record struct {
	kind        kind
	flags       uint8
	entryType   uint8
	shard       ShardID
	index, term uint64
	desc        []byte
	payloadLen  uint32
	payloadCRC  uint32
}

func (r *record) size() int64 {
	return recordHeaderLen + int64(len(r.desc)) + int64(r.payloadLen)
}

// encode writes the header into b, which has room for it and the descriptor;
// place is scratch of 16 bytes for what the checksum covers and the file does
// not hold.
func (r *record) encode(b []byte, use uint64, pos Position, place *[16]byte) {
	b[4], b[5], b[6], b[7] = byte(r.kind), r.flags, r.entryType, 0
	le.PutUint32(b[8:], uint32(r.shard))
	le.PutUint32(b[12:], uint32(len(r.desc)))
	le.PutUint64(b[16:], r.index)
	le.PutUint64(b[24:], r.term)
	le.PutUint32(b[32:], r.payloadLen)
	le.PutUint32(b[36:], r.payloadCRC)
	copy(b[recordHeaderLen:], r.desc)
	le.PutUint32(b, recordChecksum(b[:recordHeaderLen+len(r.desc)], use, pos, place))
}

// recordChecksum covers use number, position, header and descriptor, and by the
// header's own field the payload.
func recordChecksum(b []byte, use uint64, pos Position, place *[16]byte) uint32 {
	le.PutUint64(place[:], use)
	le.PutUint64(place[8:], uint64(pos))
	return crc32.Update(crc32.Checksum(place[:], castagnoli), castagnoli, b[4:])
}

// decodeRecord reads the record at the start of b, which reaches to the end of
// its group, and checks header, descriptor and payload. Descriptor and payload
// alias b. found is empty when all is good.
func decodeRecord(b []byte, use uint64, pos Position) (r record, payload []byte, expected, found string) {
	if len(b) < recordHeaderLen {
		return r, nil, "a record header", fmt.Sprintf("%d bytes", len(b))
	}
	descLen, payloadLen := le.Uint32(b[12:]), le.Uint32(b[32:])
	total := recordHeaderLen + uint64(descLen) + uint64(payloadLen)
	if descLen > maxDescriptor || total > uint64(len(b)) {
		return r, nil, fmt.Sprintf("a record of at most %d bytes", len(b)), fmt.Sprintf("%d", total)
	}
	var place [16]byte
	if want, got := recordChecksum(b[:recordHeaderLen+descLen], use, pos, &place), le.Uint32(b); want != got {
		return r, nil, fmt.Sprintf("record checksum %08x", want), fmt.Sprintf("%08x", got)
	}
	r, payload = splitRecord(b)
	if payloadLen > 0 {
		if got := crc32.Checksum(payload, castagnoli); got != r.payloadCRC {
			return r, nil, fmt.Sprintf("payload checksum %08x", r.payloadCRC), fmt.Sprintf("%08x", got)
		}
	}
	return r, payload, "", ""
}

// splitRecord takes apart a record that was checked.
func splitRecord(b []byte) (r record, payload []byte) {
	head := recordHeaderLen + le.Uint32(b[12:])
	r = record{
		kind: kind(b[4]), flags: b[5], entryType: b[6],
		shard: ShardID(le.Uint32(b[8:])),
		index: le.Uint64(b[16:]), term: le.Uint64(b[24:]),
		desc:       b[recordHeaderLen:head:head],
		payloadLen: le.Uint32(b[32:]), payloadCRC: le.Uint32(b[36:]),
	}
	return r, b[head : head+r.payloadLen]
}

// hardRecord and pointerRecord fit the two small kinds into a record; body is
// scratch that the record's descriptor aliases.
func hardRecord(s ShardID, h HardState, flags uint8, body []byte) record {
	body = le.AppendUint64(body[:0], h.Vote)
	return record{kind: kindHard, flags: flags, shard: s, index: h.Commit, term: h.Term, desc: body}
}

func (r *record) hard() (HardState, bool) {
	if len(r.desc) != hardBodyLen {
		return HardState{}, false
	}
	return HardState{Term: r.term, Vote: le.Uint64(r.desc), Commit: r.index}, true
}

func pointerRecord(s ShardID, p *SnapshotPointer, flags uint8, body []byte) record {
	body = le.AppendUint64(body[:0], p.Trimmed)
	body = le.AppendUint64(body, p.TrimmedTerm)
	body = append(body, p.File...)
	return record{kind: kindPointer, flags: flags, shard: s, index: p.Index, term: p.Term, desc: body}
}

func (r *record) pointer() (SnapshotPointer, bool) {
	if len(r.desc) < pointerBodyLen {
		return SnapshotPointer{}, false
	}
	return SnapshotPointer{
		Index: r.index, Term: r.term,
		Trimmed: le.Uint64(r.desc), TrimmedTerm: le.Uint64(r.desc[8:]),
		File: string(r.desc[pointerBodyLen:]),
	}, true
}

// File names. The number is the file's use number; of a free file the last one
// that it had or was to get.
const (
	livePrefix = "wal-"
	freePrefix = "free-"
	logSuffix  = ".log"
	lockName   = "LOCK"
)

func liveName(use uint64) string { return fmt.Sprintf("%s%016x%s", livePrefix, use, logSuffix) }
func freeName(use uint64) string { return fmt.Sprintf("%s%016x%s", freePrefix, use, logSuffix) }

// parseName reads the use number from a file name.
func parseName(name, prefix string) (use uint64, ok bool) {
	digits, ok := strings.CutPrefix(name, prefix)
	if !ok {
		return 0, false
	}
	digits, ok = strings.CutSuffix(digits, logSuffix)
	if !ok || len(digits) != 16 {
		return 0, false
	}
	use, err := strconv.ParseUint(digits, 16, 64)
	return use, err == nil
}

func roundUp(n int64) int64 { return (n + blockSize - 1) / blockSize * blockSize }

func checksum(b []byte) uint32 { return crc32.Checksum(b, castagnoli) }
