package shard

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
)

// DescriptorLen is the size of a normal entry's Raft data.
const DescriptorLen = 56

const descriptorVersion = 1

// ErrDescriptor marks entry data that is not a descriptor this binary reads.
var ErrDescriptor = errors.New("shard: bad entry descriptor")

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// PayloadID names a payload before Raft has given it an index: the proposing
// replica and a number that it uses once in its process's life.
type PayloadID struct {
	Replica ReplicaID
	Seq     uint64
}

// Descriptor is what Raft sees of an entry; the payload travels beside it.
type Descriptor struct {
	Kind       Kind
	PayloadLen uint32
	// Term is the proposer's: apply refuses the entry unless it equals the
	// entry's Raft term.
	Term uint64
	// HW is the proposer's high watermark when it proposed.
	HW            uint64
	ID            PayloadID
	TimeUnixMilli int64
	PayloadCRC    uint32
}

// Append appends the descriptor's encoding to b.
func (d Descriptor) Append(b []byte) []byte {
	n := len(b)
	b = append(b, descriptorVersion, byte(d.Kind), 0, 0)
	b = binary.LittleEndian.AppendUint32(b, d.PayloadLen)
	b = binary.LittleEndian.AppendUint64(b, d.Term)
	b = binary.LittleEndian.AppendUint64(b, d.HW)
	b = binary.LittleEndian.AppendUint64(b, uint64(d.ID.Replica))
	b = binary.LittleEndian.AppendUint64(b, d.ID.Seq)
	b = binary.LittleEndian.AppendUint64(b, uint64(d.TimeUnixMilli))
	b = binary.LittleEndian.AppendUint32(b, d.PayloadCRC)
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(b[n:n+DescriptorLen-4], castagnoli))
}

// ParseDescriptor reads entry data. A newer version is refused by name.
func ParseDescriptor(b []byte) (Descriptor, error) {
	if len(b) != DescriptorLen {
		return Descriptor{}, fmt.Errorf("length: expected %d, found %d: %w", DescriptorLen, len(b), ErrDescriptor)
	}
	if b[0] != descriptorVersion {
		return Descriptor{}, fmt.Errorf("version: expected %d, found %d: %w", descriptorVersion, b[0], ErrDescriptor)
	}
	want := binary.LittleEndian.Uint32(b[DescriptorLen-4:])
	if got := crc32.Checksum(b[:DescriptorLen-4], castagnoli); got != want {
		return Descriptor{}, fmt.Errorf("checksum: expected %08x, found %08x: %w", want, got, ErrDescriptor)
	}
	return Descriptor{
		Kind:          Kind(b[1]),
		PayloadLen:    binary.LittleEndian.Uint32(b[4:]),
		Term:          binary.LittleEndian.Uint64(b[8:]),
		HW:            binary.LittleEndian.Uint64(b[16:]),
		ID:            PayloadID{ReplicaID(binary.LittleEndian.Uint64(b[24:])), binary.LittleEndian.Uint64(b[32:])},
		TimeUnixMilli: int64(binary.LittleEndian.Uint64(b[40:])),
		PayloadCRC:    binary.LittleEndian.Uint32(b[48:]),
	}, nil
}

// CheckPayload compares a payload with what its descriptor says.
func (d Descriptor) CheckPayload(p []byte) error {
	if uint32(len(p)) != d.PayloadLen {
		return fmt.Errorf("payload length: expected %d, found %d: %w", d.PayloadLen, len(p), ErrPayload)
	}
	if got := crc32.Checksum(p, castagnoli); got != d.PayloadCRC {
		return fmt.Errorf("payload checksum: expected %08x, found %08x: %w", d.PayloadCRC, got, ErrPayload)
	}
	return nil
}
