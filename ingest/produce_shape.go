package ingest

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// shape walks over encoded Kafka fields without decoding them.
type shape struct {
	b        []byte
	flexible bool
	bad      bool
}

var errShape = errors.New("request is truncated")

func (s *shape) skip(n int) {
	if n < 0 || n > len(s.b) {
		s.bad, s.b = true, nil
		return
	}
	s.b = s.b[n:]
}

func (s *shape) uvarint() uint64 {
	v, n := binary.Uvarint(s.b)
	if n <= 0 {
		s.bad, s.b = true, nil
		return 0
	}
	s.b = s.b[n:]
	return v
}

// length reads a length of 2 or 4 bytes, or a compact one; null is 0.
func (s *shape) length(width int) int {
	if s.flexible {
		n := s.uvarint()
		if n > uint64(len(s.b))+1 {
			s.bad = true
			return 0
		}
		return max(int(n)-1, 0)
	}
	if len(s.b) < width {
		s.bad, s.b = true, nil
		return 0
	}
	var n int
	if width == 2 {
		n = int(int16(binary.BigEndian.Uint16(s.b)))
	} else {
		n = int(int32(binary.BigEndian.Uint32(s.b)))
	}
	s.b = s.b[width:]
	return max(n, 0)
}

func (s *shape) tags() {
	if !s.flexible || s.bad {
		return
	}
	rest, err := skipTags(s.b)
	s.b, s.bad = rest, err != nil
}

// checkProduceShape bounds what a produce request lists before anything is
// allocated for it: a frame of 100 MiB could name 30 million topics, each of
// which costs the decoder 70 bytes.
func checkProduceShape(body []byte, version int16) error {
	s := shape{b: body, flexible: version >= 9}
	s.skip(s.length(2)) // transactional id
	s.skip(6)           // acks, timeout
	topics := s.length(4)
	if topics > maxProduceTopics {
		return fmt.Errorf("produce: expected at most %d topics, found %d", maxProduceTopics, topics)
	}
	total := 0
	for i := 0; i < topics && !s.bad; i++ {
		if version >= 13 {
			s.skip(16)
		} else {
			s.skip(s.length(2))
		}
		partitions := s.length(4)
		if total += partitions; total > maxProducePartitions {
			return fmt.Errorf("produce: expected at most %d partitions, found more", maxProducePartitions)
		}
		for j := 0; j < partitions && !s.bad; j++ {
			s.skip(4)
			s.skip(s.length(4)) // records
			s.tags()
		}
		s.tags()
	}
	if s.bad {
		return errShape
	}
	return nil
}
