package differential

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"net"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	apiVersionsKey = 18
	askTimeout     = 10 * time.Second
	answerMax      = 64 << 20
)

// errClosed: the broker has closed the connection in place of an answer.
var errClosed = errors.New("connection closed")

// errSilent: no answer has come. Kafka gives none when something fails inside
// it, and then there is nothing to compare with.
var errSilent = errors.New("no answer")

// Side is one of the two brokers.
type Side struct {
	Name, Addr string

	nc          net.Conn
	correlation int32
	ids         map[string][16]byte // of topics, by name
	names       map[[16]byte]string
	seats       map[GroupMember]seat
	memberNames map[string]string // of ids that this side has drawn
	logs        string            // the folder of its processes' logs, if it was started here
}

// NewSide names a broker; it connects when it is asked.
func NewSide(name, addr string) *Side {
	return &Side{Name: name, Addr: addr, ids: map[string][16]byte{}, names: map[[16]byte]string{}, seats: map[GroupMember]seat{}, memberNames: map[string]string{}}
}

// Close ends the connection.
func (s *Side) Close() {
	if s.nc != nil {
		s.nc.Close()
		s.nc = nil
	}
}

// ID is a topic's id on this side; unknown topics have one that nobody gave.
func (s *Side) ID(topic string) [16]byte {
	if id, ok := s.ids[topic]; ok {
		return id
	}
	var id [16]byte
	h := fnv.New64a()
	h.Write([]byte(topic)) // never fails
	copy(id[:], "no topic")
	binary.BigEndian.PutUint64(id[8:], h.Sum64())
	return id
}

// topicOf is the topic of an id, as it stands in a flattened answer.
func (s *Side) topicOf(id [16]byte) string {
	if name, ok := s.names[id]; ok {
		return name
	}
	if id == [16]byte{} {
		return "none"
	}
	return "an id"
}

// Ask sends a request and reads its answer; errClosed when there is none.
func (s *Side) Ask(ctx context.Context, req kmsg.Request) (kmsg.Response, error) {
	if s.nc == nil {
		var d net.Dialer
		nc, err := d.DialContext(ctx, "tcp", s.Addr)
		if err != nil {
			return nil, err
		}
		s.nc = nc
	}
	resp, err := s.exchange(req)
	if err != nil {
		s.Close()
	}
	return resp, err
}

func (s *Side) exchange(req kmsg.Request) (kmsg.Response, error) {
	if err := s.nc.SetDeadline(time.Now().Add(askTimeout)); err != nil {
		return nil, err
	}
	s.correlation++
	f := kmsg.NewRequestFormatter(kmsg.FormatterClientID("differential"))
	if _, err := s.nc.Write(f.AppendRequest(nil, req, s.correlation)); err != nil {
		return nil, errClosed
	}
	var size [4]byte
	if _, err := io.ReadFull(s.nc, size[:]); err != nil {
		var ne net.Error
		if errors.As(err, &ne) && ne.Timeout() {
			return nil, errSilent
		}
		return nil, errClosed
	}
	n := binary.BigEndian.Uint32(size[:])
	if n < 4 || n > answerMax {
		return nil, fmt.Errorf("%s: answer of %d bytes", s.Name, n)
	}
	b := make([]byte, n)
	if _, err := io.ReadFull(s.nc, b); err != nil {
		return nil, err
	}
	resp := req.ResponseKind()
	resp.SetVersion(req.GetVersion())
	b = b[4:]
	if resp.IsFlexible() && req.Key() != apiVersionsKey {
		b = b[1:]
	}
	if err := resp.ReadFrom(b); err != nil {
		return nil, fmt.Errorf("%s: answer to %s v%d: %w", s.Name, kmsg.NameForKey(req.Key()), req.GetVersion(), err)
	}
	return resp, nil
}

// Learn asks for all topics, and remembers their ids.
func (s *Side) Learn(ctx context.Context) ([]Topic, error) {
	req := kmsg.NewPtrMetadataRequest()
	req.Version = 12
	resp, err := s.Ask(ctx, req)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", s.Name, err)
	}
	var out []Topic
	s.ids = map[string][16]byte{}
	for _, t := range resp.(*kmsg.MetadataResponse).Topics {
		s.ids[*t.Topic], s.names[t.TopicID] = t.TopicID, *t.Topic
		out = append(out, Topic{*t.Topic, int32(len(t.Partitions))})
	}
	slices.SortFunc(out, func(a, b Topic) int { return cmp.Compare(a.Name, b.Name) })
	return out, nil
}

// Serves tells whether every partition can be read and written: its leader
// knows that it leads.
func (s *Side) Serves(ctx context.Context, topics []Topic) (bool, error) {
	req := kmsg.NewPtrListOffsetsRequest()
	req.Version, req.ReplicaID = 4, -1
	for _, t := range topics {
		rt := kmsg.NewListOffsetsRequestTopic()
		rt.Topic = t.Name
		for p := range t.Partitions {
			rp := kmsg.NewListOffsetsRequestTopicPartition()
			rp.Partition, rp.CurrentLeaderEpoch, rp.Timestamp = p, -1, -1
			rt.Partitions = append(rt.Partitions, rp)
		}
		req.Topics = append(req.Topics, rt)
	}
	resp, err := s.Ask(ctx, req)
	if err != nil {
		return false, fmt.Errorf("%s: %w", s.Name, err)
	}
	for _, t := range resp.(*kmsg.ListOffsetsResponse).Topics {
		for _, p := range t.Partitions {
			if p.ErrorCode != 0 {
				return false, nil
			}
		}
	}
	return true, nil
}

// Coordinates tells whether the coordinators of all groups are there: Kafka
// makes their topic when one is asked for first.
func (s *Side) Coordinates(groups []string) (bool, error) {
	find := kmsg.NewPtrFindCoordinatorRequest()
	find.Version, find.CoordinatorKeys = 4, groups
	if _, err := s.exchange(find); err != nil {
		return false, fmt.Errorf("%s: %w", s.Name, err)
	}
	req := kmsg.NewPtrDescribeGroupsRequest()
	req.Version, req.Groups = 5, groups
	resp, err := s.exchange(req)
	if err != nil {
		return false, fmt.Errorf("%s: %w", s.Name, err)
	}
	for _, g := range resp.(*kmsg.DescribeGroupsResponse).Groups {
		if g.ErrorCode != 0 {
			return false, nil
		}
	}
	return true, nil
}

// Create makes topics of three partitions.
func (s *Side) Create(ctx context.Context, topics ...string) error {
	req := kmsg.NewPtrCreateTopicsRequest()
	req.Version, req.TimeoutMillis = 5, 10_000
	for _, name := range topics {
		t := kmsg.NewCreateTopicsRequestTopic()
		t.Topic, t.NumPartitions, t.ReplicationFactor = name, 3, 1
		req.Topics = append(req.Topics, t)
	}
	resp, err := s.Ask(ctx, req)
	if err != nil {
		return fmt.Errorf("%s: %w", s.Name, err)
	}
	for _, t := range resp.(*kmsg.CreateTopicsResponse).Topics {
		if err := kerr.ErrorForCode(t.ErrorCode); err != nil && err != kerr.TopicAlreadyExists {
			return fmt.Errorf("%s: making topic %s: %w", s.Name, t.Topic, err)
		}
	}
	return nil
}
