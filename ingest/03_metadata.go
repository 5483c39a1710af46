package ingest

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"thermocline/metadata"
)

// Metadata v0-13.
//
// v0: an empty list means all topics; v1+: null means all, empty none.
// v0-3 have no AllowAutoTopicCreation: it is taken as true. v1 adds rack and
// controller, v2 the cluster id, v5 offline replicas, v7 leader epochs, v8
// authorized operations (the cluster's until v10), v10 topic ids, v12 look-up
// by id with a null name, v13 an error code for the whole answer.
// Reserved names (__consumer_offsets, __transaction_state) are not listed.
func metadataAPI() api {
	h, n := serve(kmsg.NewPtrMetadataRequest, (*Server).handleMetadata)
	return api{key: 3, name: "Metadata", max: 13, handle: h, newRequest: n}
}

func (s *Server) handleMetadata(r *request, req *kmsg.MetadataRequest) {
	if r.version < byIDMetadata && namesByID(req) {
		r.finish(metadataRefused(req))
		return
	}
	all := req.Topics == nil || r.version == 0 && len(req.Topics) == 0
	missing := s.toCreate(r, req)
	if len(missing) == 0 {
		r.finish(s.metadataAnswer(req, all, nil))
		return
	}
	r.conn.goAsync(r, func() {
		failed := map[string]error{}
		ctx, cancel := context.WithTimeout(r.conn.ctx, autoCreateWait)
		defer cancel()
		for _, name := range missing {
			_, err := s.cluster.CreateTopic(ctx, NewTopic{
				Name: name, Partitions: int(s.cfg.NumPartitions), ReplicationFactor: s.cfg.replicationFactor(),
			})
			if err != nil && !errors.Is(err, metadata.ErrExists) {
				failed[name] = err
			}
		}
		r.finish(s.metadataAnswer(req, all, failed))
	})
}

// byIDMetadata is the first version that may name topics by id.
const byIDMetadata = 12

// namesByID tells whether a request names a topic by id, or not at all.
func namesByID(req *kmsg.MetadataRequest) bool {
	return slices.ContainsFunc(req.Topics, func(t kmsg.MetadataRequestTopic) bool { return t.Topic == nil || t.TopicID != [16]byte{} })
}

// metadataRefused is the answer to a request that makes no sense: no brokers,
// and the error on each topic, where clients look for it.
func metadataRefused(req *kmsg.MetadataRequest) kmsg.Response {
	resp := kmsg.NewPtrMetadataResponse()
	resp.Version = req.Version
	for _, t := range req.Topics {
		mt := kmsg.NewMetadataResponseTopic()
		if mt.Topic = t.Topic; mt.Topic == nil {
			mt.Topic = new(string)
		}
		mt.TopicID, mt.ErrorCode = t.TopicID, kerr.InvalidRequest.Code
		resp.Topics = append(resp.Topics, mt)
	}
	return resp
}

// toCreate lists the topics that the request asks for, that do not exist, and
// that may be created on first use.
func (s *Server) toCreate(r *request, req *kmsg.MetadataRequest) []string {
	if !s.cfg.AutoCreateTopics || r.version >= 4 && !req.AllowAutoTopicCreation {
		return nil
	}
	var missing []string
	for _, t := range req.Topics {
		if t.Topic == nil || metadata.CheckTopicName(*t.Topic) != nil {
			continue
		}
		if _, ok := s.cluster.TopicByName(*t.Topic); !ok && !slices.Contains(missing, *t.Topic) && len(missing) < maxAutoCreate {
			missing = append(missing, *t.Topic)
		}
	}
	return missing
}

// metadataAnswer builds the answer from the cached view.
func (s *Server) metadataAnswer(req *kmsg.MetadataRequest, all bool, failed map[string]error) kmsg.Response {
	resp := kmsg.NewPtrMetadataResponse()
	resp.Version = req.Version
	resp.ControllerID = s.controller()
	if id := s.cluster.ClusterID(); id != "" {
		resp.ClusterID = &id
	}
	for _, b := range s.cluster.Brokers() {
		resp.Brokers = append(resp.Brokers, kmsg.MetadataResponseBroker{
			NodeID: int32(b.ID), Host: b.KafkaHost, Port: b.KafkaPort, Rack: rackOf(b),
		})
	}
	if req.IncludeClusterAuthorizedOperations {
		resp.AuthorizedOperations = clusterOperations
	}
	m := metadataTopics{view: s.cluster, place: newPlacement(s.cluster), operations: req.IncludeTopicAuthorizedOperations, failed: failed}
	if all {
		for _, t := range s.sortedTopics() {
			resp.Topics = append(resp.Topics, m.found(t))
		}
		return resp
	}
	asked := make(map[partKey]bool, len(req.Topics)) // naming a topic a million times is no way to get a million answers
	for i := range req.Topics {
		t := &req.Topics[i]
		k := partKey{topicID: t.TopicID}
		if t.Topic != nil {
			k.topic = *t.Topic
		}
		if !asked[k] {
			asked[k] = true
			resp.Topics = append(resp.Topics, m.asked(t))
		}
	}
	return resp
}

// controller names a live broker: every one of them takes admin requests.
func (s *Server) controller() int32 {
	c := s.cluster.Controller()
	for _, b := range s.cluster.Brokers() {
		if b.ID == c {
			return int32(c)
		}
	}
	return int32(s.cluster.Self())
}

func rackOf(b metadata.Broker) *string {
	if b.Rack == "" {
		return nil
	}
	return &b.Rack
}

func (s *Server) sortedTopics() []*metadata.Topic {
	topics := slices.Clone(s.cluster.Topics())
	topics = slices.DeleteFunc(topics, func(t *metadata.Topic) bool { return metadata.ReservedTopic(t.Name) })
	slices.SortFunc(topics, func(a, b *metadata.Topic) int { return strings.Compare(a.Name, b.Name) })
	return topics
}

// metadataTopics builds the topics of one answer.
type metadataTopics struct {
	view       View
	place      *placement
	operations bool
	failed     map[string]error // topics whose creation failed
}

func (m *metadataTopics) asked(t *kmsg.MetadataRequestTopic) kmsg.MetadataResponseTopic {
	if t.Topic == nil || t.TopicID != [16]byte{} {
		if found, ok := m.view.TopicByID(t.TopicID); ok && t.TopicID != [16]byte{} {
			return m.found(found)
		}
		mt := kmsg.NewMetadataResponseTopic()
		mt.TopicID, mt.Topic, mt.ErrorCode = t.TopicID, nil, kerr.UnknownTopicID.Code
		return mt
	}
	if found, ok := m.view.TopicByName(*t.Topic); ok && !metadata.ReservedTopic(*t.Topic) {
		return m.found(found)
	}
	mt := kmsg.NewMetadataResponseTopic()
	mt.Topic, mt.ErrorCode = t.Topic, kerr.UnknownTopicOrPartition.Code
	if m.operations {
		mt.AuthorizedOperations = topicOperations
	}
	switch err, tried := m.failed[*t.Topic]; {
	case metadata.ReservedTopic(*t.Topic):
		mt.IsInternal = true
	case metadata.CheckTopicName(*t.Topic) != nil:
		mt.ErrorCode = kerr.InvalidTopicException.Code
	case tried && errors.Is(err, metadata.ErrInvalidTopic): // collides with another one
		mt.ErrorCode = kerr.InvalidTopicException.Code
	case m.failed != nil:
		// Created just now or about to be: clients ask again.
		mt.ErrorCode = kerr.LeaderNotAvailable.Code
	}
	return mt
}

func (m *metadataTopics) found(t *metadata.Topic) kmsg.MetadataResponseTopic {
	mt := kmsg.NewMetadataResponseTopic()
	mt.Topic, mt.TopicID = &t.Name, t.ID
	mt.Partitions = make([]kmsg.MetadataResponseTopicPartition, len(t.Shards))
	for i, shard := range t.Shards {
		at := m.place.of(shard)
		p := &mt.Partitions[i]
		p.Default()
		p.Partition, p.Leader, p.LeaderEpoch = int32(i), at.leader, at.epoch
		p.Replicas, p.ISR, p.OfflineReplicas = at.replicas, at.live, at.offline
		if at.leader < 0 {
			p.ErrorCode = kerr.LeaderNotAvailable.Code
		}
	}
	if m.operations {
		mt.AuthorizedOperations = topicOperations
	}
	return mt
}
