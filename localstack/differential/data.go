package differential

import (
	"encoding/binary"
	"hash/crc32"

	"github.com/twmb/franz-go/pkg/kmsg"

	"thermocline/wal/batch"
)

// recordTime is the timestamp of all records, so that both sides store the same.
const recordTime = 1_790_000_000_000

// records are one batch, mostly a sound one.
func (g *generator) records() []byte {
	o := batch.BuilderOptions{Codec: pick(g, batch.None, batch.None, batch.Gzip, batch.Snappy, batch.LZ4, batch.Zstd)}
	if g.one(4) {
		o.Producer = &batch.Producer{ID: 4000 + g.rng.Int64N(2), Epoch: pick[int16](g, 0, 0, 0, 1), Sequence: g.rng.Int32N(3)}
	}
	b := batch.NewBuilder(o)
	for i := range 1 + g.rng.IntN(3) {
		b.Add(recordTime+int64(i), pick(g, []byte("k"), nil), pick(g, []byte("value"), nil, []byte{}))
	}
	raw := b.Build()
	switch g.rng.IntN(16) {
	case 0:
		raw[len(raw)-1] ^= 1 // the checksum is wrong
	case 1:
		raw[16] = pick[byte](g, 0, 1, 3) // magic
	case 2:
		raw = append(raw, raw...)
	case 3:
		raw = raw[:len(raw)-3]
	case 4:
		return []byte{} // null would leave Kafka without an answer
	case 5: // the count of records is wrong, the checksum right
		binary.BigEndian.PutUint32(raw[57:], 77)
		binary.BigEndian.PutUint32(raw[17:], crc32.Checksum(raw[21:], crc32.MakeTable(crc32.Castagnoli)))
	}
	return raw
}

func (g *generator) produce() kmsg.Request {
	req := kmsg.NewPtrProduceRequest()
	req.TimeoutMillis, req.Acks = 10_000, pick[int16](g, -1, -1, -1, 1, 2)
	t := g.topic()
	rt := kmsg.NewProduceRequestTopic()
	rt.Topic, rt.TopicID = t.Name, g.side.ID(t.Name)
	rp := kmsg.NewProduceRequestTopicPartition()
	rp.Partition, rp.Records = g.partition(t), g.records()
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	return req
}

func (g *generator) fetch() kmsg.Request {
	req := kmsg.NewPtrFetchRequest()
	req.MaxWaitMillis, req.MinBytes, req.MaxBytes, req.SessionEpoch = 0, pick(g, int32(1), 0), 8<<20, -1
	req.IsolationLevel, req.ReplicaID = pick[int8](g, 0, 1), -1
	req.ReplicaState.ID = -1
	if g.version >= 7 && g.one(8) {
		req.SessionID, req.SessionEpoch = 77, 3 // there is no such session
	}
	t := g.topic()
	rt := kmsg.NewFetchRequestTopic()
	rt.Topic, rt.TopicID = t.Name, g.side.ID(t.Name)
	fp := kmsg.NewFetchRequestTopicPartition()
	fp.Partition, fp.PartitionMaxBytes, fp.CurrentLeaderEpoch, fp.LastFetchedEpoch = g.partition(t), 1<<20, -1, -1
	fp.FetchOffset = pick(g, int64(0), 1, 2, 3, 5, 10, 1000, -1)
	rt.Partitions = append(rt.Partitions, fp)
	req.Topics = append(req.Topics, rt)
	return req
}

func (g *generator) listOffsets() kmsg.Request {
	req := kmsg.NewPtrListOffsetsRequest()
	req.ReplicaID, req.IsolationLevel, req.TimeoutMillis = -1, pick[int8](g, 0, 1), 10_000
	t := g.topic()
	rt := kmsg.NewListOffsetsRequestTopic()
	rt.Topic = t.Name
	rp := kmsg.NewListOffsetsRequestTopicPartition()
	rp.Partition, rp.CurrentLeaderEpoch = g.partition(t), -1
	rp.Timestamp = pick(g, int64(-1), -2, -3, -4, recordTime, recordTime+1, recordTime+100, 0, -7)
	if rp.Timestamp == -3 && g.world.Trimmed[Partition{t.Name, rp.Partition}] {
		rp.Timestamp = -1 // the record of the largest time may be a deleted one in Kafka
	}
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	return req
}

func (g *generator) deleteRecords() kmsg.Request {
	req := kmsg.NewPtrDeleteRecordsRequest()
	req.TimeoutMillis = 10_000
	t := g.topic()
	rt := kmsg.NewDeleteRecordsRequestTopic()
	rt.Topic = t.Name
	rt.Partitions = append(rt.Partitions, kmsg.DeleteRecordsRequestTopicPartition{Partition: g.partition(t), Offset: pick(g, int64(0), 1, 2, -1, -5, 1000)})
	req.Topics = append(req.Topics, rt)
	return req
}

func (g *generator) describeProducers() kmsg.Request {
	req := kmsg.NewPtrDescribeProducersRequest()
	t := g.topic()
	req.Topics = append(req.Topics, kmsg.DescribeProducersRequestTopic{Topic: t.Name, Partitions: []int32{g.partition(t)}})
	return req
}
