package partition

import (
	"encoding/binary"
	"fmt"
	"math"

	"thermocline/metadata"
	"thermocline/tiering/format"
	"thermocline/wal/batch"
)

// itemKind tells what an item's body holds; see the package comment.
type itemKind uint8

const (
	itemProduce itemKind = iota + 1
	itemCreate
	itemDelete
	itemConfig
	itemDeleteRecords
	itemProducerIDs
	itemTier
	itemRun
	itemCoordinator
	itemKinds // one more than the last
)

const (
	itemVersion   = 1
	itemHeaderLen = 12
)

// MaxProducerIDs bounds one AllocateProducerIDs; brokers take 1,000 as Kafka's do.
const MaxProducerIDs = 1 << 20

// Producer ids are the shard's number above this many bits of its own count:
// unique across shards without asking anyone.
const producerIDBits = 40

// MaxShard is one more than the largest shard number: producer ids stay positive.
const MaxShard = 1 << (63 - producerIDBits)

// item is one parsed item; body points into the payload at position pos.
type item struct {
	kind itemKind
	ref  format.PartitionRef
	body []byte
	pos  int
}

// nextItem parses the item at pos of payload.
func nextItem(payload []byte, pos int) (it item, next int, err error) {
	rest := payload[pos:]
	if len(rest) < itemHeaderLen {
		return it, 0, fmt.Errorf("item at %d: expected %d bytes, found %d: %w", pos, itemHeaderLen, len(rest), ErrCorrupt)
	}
	n := uint64(binary.LittleEndian.Uint32(rest))
	it = item{
		kind: itemKind(rest[4]),
		ref:  format.PartitionRef(binary.LittleEndian.Uint32(rest[8:])),
		pos:  pos + itemHeaderLen,
	}
	if it.kind == 0 || it.kind >= itemKinds || rest[5] > itemVersion {
		return it, 0, fmt.Errorf("item at %d: kind %d version %d: %w", pos, it.kind, rest[5], ErrNewerVersion)
	}
	if rest[5] != itemVersion || rest[6] != 0 || rest[7] != 0 {
		return it, 0, fmt.Errorf("item at %d: version %d, reserved % x: %w", pos, rest[5], rest[6:8], ErrCorrupt)
	}
	if n > uint64(len(rest)-itemHeaderLen) {
		return it, 0, fmt.Errorf("item at %d: expected %d bytes of body, found %d: %w", pos, n, len(rest)-itemHeaderLen, ErrCorrupt)
	}
	it.body = rest[itemHeaderLen : itemHeaderLen+int(n)]
	return it, it.pos + int(n), nil
}

// beginItem appends an item's header; endItem sets its length.
func beginItem(b []byte, kind itemKind, ref format.PartitionRef) []byte {
	b = append(b, 0, 0, 0, 0, byte(kind), itemVersion, 0, 0)
	return binary.LittleEndian.AppendUint32(b, uint32(ref))
}

func endItem(b []byte, start int) []byte {
	binary.LittleEndian.PutUint32(b[start:], uint32(len(b)-start-itemHeaderLen))
	return b
}

// itemBatch returns a produce item's batch: exactly one, with a sound header.
func itemBatch(body []byte) (batch.Batch, error) {
	b, rest, err := batch.Next(body)
	if err != nil {
		return nil, fmt.Errorf("produce item: %w: %w", ErrCorrupt, err)
	}
	if len(rest) != 0 || b.LastOffsetDelta() < 0 || b.BaseOffset() < 0 || b.BaseOffset() > math.MaxInt64-math.MaxInt32-1 {
		return nil, fmt.Errorf("produce item: %d bytes too many, offset %d+%d: %w", len(rest), b.BaseOffset(), b.LastOffsetDelta(), ErrCorrupt)
	}
	return b, nil
}

// CheckPayload verifies a payload's structure and the CRC of every batch in
// it. A follower calls it before it appends the entry.
func CheckPayload(payload []byte) error {
	for pos := 0; pos < len(payload); {
		it, next, err := nextItem(payload, pos)
		if err != nil {
			return err
		}
		if it.kind == itemProduce {
			b, err := itemBatch(it.body)
			if err != nil {
				return fmt.Errorf("item at %d: %w", pos, err)
			}
			if err := b.CheckCRC(); err != nil {
				return fmt.Errorf("item at %d: %w: %w", pos, ErrCorrupt, err)
			}
		} else if _, err := decodeCommand(it); err != nil {
			return fmt.Errorf("item at %d: %w", pos, err)
		}
		pos = next
	}
	return nil
}

// appendCommand appends the body of every command but Produce, and returns
// its kind.
func appendCommand(b []byte, cmd any) ([]byte, itemKind, error) {
	switch c := cmd.(type) {
	case *CreatePartition:
		b = append(b, c.Key.Topic[:]...)
		b = binary.AppendVarint(b, int64(c.Key.Partition))
		b = binary.AppendVarint(b, int64(c.EpochBase))
		return appendConfig(appendString(b, c.Name), c.Config), itemCreate, nil
	case *DeletePartition:
		return b, itemDelete, nil
	case *SetConfig:
		b = append(b, c.Topic[:]...)
		b = binary.AppendVarint(b, c.Revision)
		return appendConfig(b, c.Config), itemConfig, nil
	case *DeleteRecords:
		return binary.AppendVarint(b, c.Offset), itemDeleteRecords, nil
	case *AllocateProducerIDs:
		return binary.AppendVarint(b, c.Count), itemProducerIDs, nil
	case *TierSegment:
		return format.AppendSegmentRow(b, &c.Row), itemTier, nil
	case *CommitRun:
		b = format.AppendRunRow(b, &c.Run)
		b = binary.AppendUvarint(b, uint64(len(c.Replaces)))
		for _, id := range c.Replaces {
			b = binary.AppendUvarint(b, uint64(id))
		}
		return format.AppendFenceRow(b, &c.Fence), itemRun, nil
	case *CoordinatorWrite:
		return appendCoordinatorWrite(b, c), itemCoordinator, nil
	}
	return b, 0, fmt.Errorf("command %T: %w", cmd, ErrInvalidCommand)
}

// decodeCommand parses what appendCommand wrote. The keys of commands on one
// partition are not in the body: the item's header names the partition.
func decodeCommand(it item) (cmd any, err error) {
	d := &decoder{buf: it.body}
	switch it.kind {
	case itemCreate:
		c := &CreatePartition{}
		copy(c.Key.Topic[:], d.bytes(len(metadata.TopicID{})))
		c.Key.Partition, c.EpochBase = d.int32("partition"), d.int32("epoch base")
		c.Name = d.string(maxName, "topic name")
		c.Config = d.config()
		cmd = c
	case itemDelete:
		cmd = &DeletePartition{}
	case itemConfig:
		c := &SetConfig{}
		copy(c.Topic[:], d.bytes(len(metadata.TopicID{})))
		c.Revision = d.varint()
		c.Config = d.config()
		cmd = c
	case itemDeleteRecords:
		cmd = &DeleteRecords{Offset: d.varint()}
	case itemProducerIDs:
		cmd = &AllocateProducerIDs{Count: d.varint()}
	case itemTier:
		row, rest, err := format.DecodeSegmentRow(d.rest())
		d.after(rest, err)
		cmd = &TierSegment{Row: row}
	case itemRun:
		c := &CommitRun{}
		var rest []byte
		c.Run, rest, err = format.DecodeRunRow(d.rest())
		d.after(rest, err)
		n := int(d.u32("replaced runs"))
		for i := 0; i < n && d.err == nil; i++ {
			c.Replaces = append(c.Replaces, d.u32("replaced run"))
		}
		c.Fence, rest, err = format.DecodeFenceRow(d.rest())
		d.after(rest, err)
		cmd = c
	case itemCoordinator:
		cmd = d.coordinatorWrite()
	default:
		d.fail("item kind %d", it.kind)
	}
	return cmd, d.end()
}

// checkCommand checks what needs no state.
func checkCommand(cmd any) error {
	bad := func(what string, found any) error {
		return fmt.Errorf("%T: %s %v: %w", cmd, what, found, ErrInvalidCommand)
	}
	switch c := cmd.(type) {
	case *CreatePartition:
		switch {
		case c.Name == "" || len(c.Name) > maxName:
			return bad("topic name", c.Name)
		case c.Key.Partition < 0:
			return bad("partition", c.Key.Partition)
		case c.EpochBase < 0:
			return bad("epoch base", c.EpochBase)
		}
		return checkConfig(c.Config)
	case *SetConfig:
		return checkConfig(c.Config)
	case *DeleteRecords:
		if c.Offset < -1 {
			return fmt.Errorf("delete records: offset %d: %w", c.Offset, ErrOffsetOutOfRange)
		}
	case *AllocateProducerIDs:
		if c.Count < 1 || c.Count > MaxProducerIDs {
			return bad("count", c.Count)
		}
	case *TierSegment:
		if c.Row.Key == "" || len(c.Row.Key) > maxObjectKey || c.Row.Size < 0 {
			return bad("row", c.Row.Key)
		}
	case *CommitRun:
		if c.Run.Key == "" || len(c.Run.Key) > maxObjectKey || len(c.Fence.Key) > maxObjectKey {
			return bad("run", c.Run.Key)
		}
	case *CoordinatorWrite:
		return checkCoordinatorWrite(c)
	}
	return nil
}
