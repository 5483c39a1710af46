package ingest

import (
	"encoding/binary"
	"net"

	"thermocline/metadata"
)

// fetchAnswer is a fetch response before its encoding.
type fetchAnswer struct {
	throttle  int32
	err       int16
	sessionID int32
	topics    []fetchAnswerTopic
	brokers   []metadata.Broker // NodeEndpoints, KIP-951
}

type fetchAnswerTopic struct {
	name       string
	id         metadata.TopicID
	partitions []*fetched
}

// fetched is one partition's part of an answer.
type fetched struct {
	part      *fetchPart
	partition int32
	err       int16
	hw, lso   int64
	logStart  int64
	preferred int32
	// committed: the client reads committed only, and gets a list of aborted
	// transactions (empty, until there are transactions).
	committed bool
	// diverging is set if divergingEnd >= 0 (or its epoch is).
	divergingEpoch int32
	divergingEnd   int64
	leader         int32
	leaderEpoch    int32
	// pieces are the stored bytes, bytes their sum.
	pieces [][]byte
	bytes  int
	where  plan
	// news: an incremental answer must list it.
	news bool
}

// newFetched has the values that mean "nothing to tell".
func newFetched(p *fetchPart) fetched {
	return fetched{
		part: p, partition: p.partition, hw: -1, lso: -1, logStart: -1, preferred: -1,
		divergingEpoch: -1, divergingEnd: -1, leader: -1, leaderEpoch: -1,
	}
}

// fetchEncoder writes Fetch responses by hand: stored bytes are not copied,
// but cut in between the bytes that it appends to dst. The layout of every
// version is checked against kmsg's encoder by a test.
type fetchEncoder struct {
	version  int16
	flexible bool
	dst      []byte
	cuts     []fetchCut
	stored   int
}

// fetchCut says that pieces follow dst[:at].
type fetchCut struct {
	at     int
	pieces [][]byte
}

// firstFetchIDs is the first version that names topics by id.
const firstFetchIDs = 13

func (e *fetchEncoder) i8(v int8)   { e.dst = append(e.dst, byte(v)) }
func (e *fetchEncoder) i16(v int16) { e.dst = binary.BigEndian.AppendUint16(e.dst, uint16(v)) }
func (e *fetchEncoder) i32(v int32) { e.dst = binary.BigEndian.AppendUint32(e.dst, uint32(v)) }
func (e *fetchEncoder) i64(v int64) { e.dst = binary.BigEndian.AppendUint64(e.dst, uint64(v)) }
func (e *fetchEncoder) uvarint(v int) {
	e.dst = binary.AppendUvarint(e.dst, uint64(v))
}

func (e *fetchEncoder) length(n int) {
	if e.flexible {
		e.uvarint(n + 1)
	} else {
		e.i32(int32(n))
	}
}

func (e *fetchEncoder) null() {
	if e.flexible {
		e.uvarint(0)
	} else {
		e.i32(-1)
	}
}

func (e *fetchEncoder) string(s string) {
	if e.flexible {
		e.uvarint(len(s) + 1)
	} else {
		e.i16(int16(len(s)))
	}
	e.dst = append(e.dst, s...)
}

// encode appends the body of the answer.
func (e *fetchEncoder) encode(a *fetchAnswer) {
	e.i32(a.throttle)
	if e.version >= 7 {
		e.i16(a.err)
		e.i32(a.sessionID)
	}
	e.length(len(a.topics))
	for i := range a.topics {
		t := &a.topics[i]
		if e.version >= firstFetchIDs {
			e.dst = append(e.dst, t.id[:]...)
		} else {
			e.string(t.name)
		}
		e.length(len(t.partitions))
		for _, f := range t.partitions {
			e.partition(f)
		}
		if e.flexible {
			e.uvarint(0)
		}
	}
	if e.flexible {
		e.endpoints(a.brokers)
	}
}

func (e *fetchEncoder) partition(f *fetched) {
	e.i32(f.partition)
	e.i16(f.err)
	e.i64(f.hw)
	e.i64(f.lso)
	if e.version >= 5 {
		e.i64(f.logStart)
	}
	if f.committed {
		e.length(0)
	} else {
		e.null()
	}
	if e.version >= 11 {
		e.i32(f.preferred)
	}
	e.length(f.bytes)
	if f.bytes > 0 {
		e.cuts = append(e.cuts, fetchCut{at: len(e.dst), pieces: f.pieces})
		e.stored += f.bytes
	}
	if e.flexible {
		e.tags(f)
	}
}

// tags: 0 is the diverging epoch, 1 the current leader. Each is a struct with
// an empty tag section of its own.
func (e *fetchEncoder) tags(f *fetched) {
	diverging := f.divergingEpoch != -1 || f.divergingEnd != -1
	leader := f.leader != -1 || f.leaderEpoch != -1
	n := 0
	if diverging {
		n++
	}
	if leader {
		n++
	}
	e.uvarint(n)
	if diverging {
		e.uvarint(0)
		e.uvarint(4 + 8 + 1)
		e.i32(f.divergingEpoch)
		e.i64(f.divergingEnd)
		e.uvarint(0)
	}
	if leader {
		e.uvarint(1)
		e.uvarint(4 + 4 + 1)
		e.i32(f.leader)
		e.i32(f.leaderEpoch)
		e.uvarint(0)
	}
}

// endpoints writes the answer's tags: 0 is where the current leaders are.
func (e *fetchEncoder) endpoints(brokers []metadata.Broker) {
	if len(brokers) == 0 {
		e.uvarint(0)
		return
	}
	e.uvarint(1)
	e.uvarint(0)
	in := fetchEncoder{version: e.version, flexible: true}
	in.length(len(brokers))
	for _, b := range brokers {
		in.i32(int32(b.ID))
		in.string(b.KafkaHost)
		in.i32(b.KafkaPort)
		if b.Rack == "" {
			in.uvarint(0)
		} else {
			in.string(b.Rack)
		}
		in.uvarint(0)
	}
	e.uvarint(len(in.dst))
	e.dst = append(e.dst, in.dst...)
}

// buffers returns what to write: the first bytes, and all that follows them.
func (e *fetchEncoder) buffers() (head []byte, rest net.Buffers, restSize int) {
	if len(e.cuts) == 0 {
		return e.dst, nil, 0
	}
	n := len(e.cuts)
	for i := range e.cuts {
		n += len(e.cuts[i].pieces)
	}
	rest = make(net.Buffers, 0, n)
	head = e.dst[:e.cuts[0].at]
	for i := range e.cuts {
		rest = append(rest, e.cuts[i].pieces...)
		end := len(e.dst)
		if i+1 < len(e.cuts) {
			end = e.cuts[i+1].at
		}
		if between := e.dst[e.cuts[i].at:end]; len(between) > 0 {
			rest = append(rest, between)
		}
	}
	return head, rest, e.stored + len(e.dst) - len(head)
}
