package bench

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"net"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Sink speaks just enough of the Kafka protocol to answer a producer, and
// keeps nothing: what a client reaches against it is the client's own limit.
type Sink struct {
	ln         net.Listener
	topic      string
	partitions int
}

// NewSink listens on loopback for producers of one topic.
func NewSink(topic string, partitions int) (*Sink, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s := &Sink{ln: ln, topic: topic, partitions: partitions}
	go s.accept()
	return s, nil
}

// Addr is where it listens.
func (s *Sink) Addr() string { return s.ln.Addr().String() }

// Close stops it; connections end when their clients close them.
func (s *Sink) Close() error { return s.ln.Close() }

func (s *Sink) accept() {
	for {
		c, err := s.ln.Accept()
		if err != nil {
			return
		}
		go func() {
			defer c.Close()
			_ = s.serve(c) // the client's own error tells of a broken connection
		}()
	}
}

func (s *Sink) serve(c net.Conn) error {
	r := bufio.NewReaderSize(c, 1<<20)
	var buf []byte
	for {
		var head [4]byte
		if _, err := io.ReadFull(r, head[:]); err != nil {
			return err
		}
		n := int(binary.BigEndian.Uint32(head[:]))
		if n < 8 || n > 100<<20 {
			return fmt.Errorf("bench: sink: a frame of %d bytes", n)
		}
		if cap(buf) < n {
			buf = make([]byte, n)
		}
		buf = buf[:n]
		if _, err := io.ReadFull(r, buf); err != nil {
			return err
		}
		answer, err := s.answer(buf)
		if err != nil {
			return err
		}
		if _, err := c.Write(answer); err != nil {
			return err
		}
	}
}

func (s *Sink) answer(frame []byte) ([]byte, error) {
	key, version := int16(binary.BigEndian.Uint16(frame)), int16(binary.BigEndian.Uint16(frame[2:]))
	correlation := frame[4:8]
	req := kmsg.RequestForKey(key)
	if req == nil {
		return nil, fmt.Errorf("bench: sink: unknown key %d", key)
	}
	req.SetVersion(version)
	body := frame[8:]
	clientID := int16(binary.BigEndian.Uint16(body))
	body = body[2+max(clientID, 0):]
	if req.IsFlexible() {
		body = body[1:] // no tags in the header
	}
	if err := req.ReadFrom(body); err != nil {
		return nil, err
	}
	resp := s.respond(req)
	resp.SetVersion(version)
	out := append(make([]byte, 4, 256), correlation...)
	if resp.IsFlexible() && key != int16(kmsg.ApiVersions) {
		out = append(out, 0)
	}
	out = resp.AppendTo(out)
	binary.BigEndian.PutUint32(out, uint32(len(out)-4))
	return out, nil
}

func (s *Sink) respond(req kmsg.Request) kmsg.Response {
	resp := req.ResponseKind()
	switch req := req.(type) {
	case *kmsg.ApiVersionsRequest:
		for key, upTo := range map[kmsg.Key]int16{kmsg.Produce: 9, kmsg.Metadata: 9, kmsg.ApiVersions: 3, kmsg.InitProducerID: 4} {
			k := kmsg.NewApiVersionsResponseApiKey()
			k.ApiKey, k.MaxVersion = int16(key), upTo
			resp.(*kmsg.ApiVersionsResponse).ApiKeys = append(resp.(*kmsg.ApiVersionsResponse).ApiKeys, k)
		}
	case *kmsg.MetadataRequest:
		s.metadata(resp.(*kmsg.MetadataResponse))
	case *kmsg.InitProducerIDRequest:
		resp.(*kmsg.InitProducerIDResponse).ProducerID = 1
	case *kmsg.ProduceRequest:
		for _, t := range req.Topics {
			rt := kmsg.NewProduceResponseTopic()
			rt.Topic = t.Topic
			for _, p := range t.Partitions {
				rp := kmsg.NewProduceResponseTopicPartition()
				rp.Partition = p.Partition
				rt.Partitions = append(rt.Partitions, rp)
			}
			resp.(*kmsg.ProduceResponse).Topics = append(resp.(*kmsg.ProduceResponse).Topics, rt)
		}
	}
	return resp
}

func (s *Sink) metadata(resp *kmsg.MetadataResponse) {
	addr := s.ln.Addr().(*net.TCPAddr)
	b := kmsg.NewMetadataResponseBroker()
	b.NodeID, b.Host, b.Port = 1, addr.IP.String(), int32(addr.Port)
	resp.Brokers, resp.ControllerID = append(resp.Brokers, b), 1
	t := kmsg.NewMetadataResponseTopic()
	t.Topic = kmsg.StringPtr(s.topic)
	for p := range s.partitions {
		mp := kmsg.NewMetadataResponseTopicPartition()
		mp.Partition, mp.Leader, mp.Replicas, mp.ISR = int32(p), 1, []int32{1}, []int32{1}
		t.Partitions = append(t.Partitions, mp)
	}
	resp.Topics = append(resp.Topics, t)
}
