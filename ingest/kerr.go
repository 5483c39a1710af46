package ingest

import (
	"context"
	"errors"

	"github.com/twmb/franz-go/pkg/kerr"

	"thermocline/ingest/brokerconfig"
	"thermocline/ingest/partition"
	"thermocline/ingest/topicconfig"
	"thermocline/metadata"
	"thermocline/tiering/object"
	"thermocline/wal/batch"
	"thermocline/wal/shard"
)

// kerrTable maps the errors of the parts below to Kafka's, first match wins.
// It is the only place where that is decided.
var kerrTable = []struct {
	err   error
	kafka *kerr.Error
}{
	// Kafka 4 says so of every magic but 2.
	{batch.ErrMagic, kerr.InvalidRecord},
	{batch.ErrTooLarge, kerr.MessageTooLarge},
	{batch.ErrInvalidRecord, kerr.InvalidRecord},
	{batch.ErrTimestamp, kerr.InvalidTimestamp},
	{batch.ErrCodec, kerr.UnsupportedCompressionType},
	{batch.ErrCorrupt, kerr.CorruptMessage},
	{batch.ErrTruncated, kerr.CorruptMessage},

	{partition.ErrNotNextOffset, kerr.NotLeaderForPartition},
	{partition.ErrUnknownPartition, kerr.UnknownTopicOrPartition},
	{partition.ErrOutOfOrderSequence, kerr.OutOfOrderSequenceNumber},
	{partition.ErrFencedProducer, kerr.InvalidProducerEpoch},
	{partition.ErrUnknownProducer, kerr.UnknownProducerID},
	{partition.ErrDuplicateSequence, kerr.DuplicateSequenceNumber},
	{partition.ErrOffsetOutOfRange, kerr.OffsetOutOfRange},

	// Nothing is known to be written, or it may be: either way the producer
	// asks for the leader and sends again; sequences keep it exactly once.
	{shard.ErrNotLeader, kerr.NotLeaderForPartition},
	{shard.ErrNotReady, kerr.NotLeaderForPartition},
	{shard.ErrDropped, kerr.NotLeaderForPartition},
	{shard.ErrUnknownFate, kerr.NotLeaderForPartition},
	{shard.ErrStopped, kerr.NotLeaderForPartition},
	// Retriable, and clients wait before they send again.
	{shard.ErrLogFull, kerr.NotEnoughReplicas},
	{shard.ErrBusy, kerr.NotEnoughReplicas},

	{topicconfig.ErrInvalid, kerr.InvalidConfig},
	{brokerconfig.ErrNotDynamic, kerr.InvalidRequest},
	{metadata.ErrExists, kerr.TopicAlreadyExists},
	{metadata.ErrNotFound, kerr.UnknownTopicOrPartition},
	{metadata.ErrInvalidTopic, kerr.InvalidTopicException},
	{metadata.ErrTooLarge, kerr.InvalidPartitions},
	{metadata.ErrFenced, kerr.RequestTimedOut},
	{metadata.ErrUnavailable, kerr.RequestTimedOut},
	{ErrNoShards, kerr.BrokerNotAvailable},

	{object.ErrUnavailable, kerr.KafkaStorageError},
	{object.ErrDenied, kerr.KafkaStorageError},
	{object.ErrNotFound, kerr.KafkaStorageError},
	{object.ErrCorrupt, kerr.KafkaStorageError},
	{context.DeadlineExceeded, kerr.RequestTimedOut},
	{context.Canceled, kerr.RequestTimedOut},
}

// kerrOf returns the Kafka error for err; nil for nil.
func kerrOf(err error) *kerr.Error {
	if err == nil {
		return nil
	}
	var k *kerr.Error
	if errors.As(err, &k) {
		return k
	}
	for i := range kerrTable {
		if errors.Is(err, kerrTable[i].err) {
			return kerrTable[i].kafka
		}
	}
	return kerr.UnknownServerError
}

// code returns the Kafka error code for err; 0 for nil.
func code(err error) int16 {
	if k := kerrOf(err); k != nil {
		return k.Code
	}
	return 0
}

// message returns err's text for an answer's message field; nil for nil.
func message(err error) *string {
	if err == nil {
		return nil
	}
	s := err.Error()
	return &s
}

// refusal is a Kafka error with a text of our own.
type refusal struct {
	kafka *kerr.Error
	text  string
}

func refuse(k *kerr.Error, text string) error { return &refusal{kafka: k, text: text} }

// Error implements error.
func (r *refusal) Error() string { return r.text }

// Unwrap returns the Kafka error.
func (r *refusal) Unwrap() error { return r.kafka }
