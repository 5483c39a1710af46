package ingest

import (
	"context"
	"errors"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"thermocline/metadata"
)

// errNotHosted has Kafka's own words, which clients show; those of the metadata
// store tell of its rows.
var errNotHosted = refuse(kerr.UnknownTopicOrPartition, kerr.UnknownTopicOrPartition.Description)

// DeleteTopics v1-6.
//
// v5 adds error messages, v6 deletes by name or by id.
func deleteTopicsAPI() api {
	h, n := serve(kmsg.NewPtrDeleteTopicsRequest, (*Server).handleDeleteTopics)
	return api{key: 20, name: "DeleteTopics", min: 1, max: 6, handle: h, newRequest: n}
}

func (s *Server) handleDeleteTopics(r *request, req *kmsg.DeleteTopicsRequest) {
	topics := req.Topics
	for i := range req.TopicNames {
		topics = append(topics, kmsg.DeleteTopicsRequestTopic{Topic: &req.TopicNames[i]})
	}
	r.conn.goAsync(r, func() {
		ctx, cancel := context.WithTimeout(r.conn.ctx, adminWait(req.TimeoutMillis))
		defer cancel()
		resp := kmsg.NewPtrDeleteTopicsResponse()
		resp.Version = r.version
		twice := duplicates(topics, s.nameOrID)
		names := make([]string, len(topics)) // before any of them goes
		ids := map[string][16]byte{}         // that the request gives
		for i := range topics {
			names[i] = s.nameOrID(&topics[i])
			if topics[i].Topic == nil {
				ids[names[i]] = topics[i].TopicID
			}
		}
		for i := range topics {
			dt := kmsg.NewDeleteTopicsResponseTopic()
			dt.Topic, dt.TopicID = topics[i].Topic, topics[i].TopicID
			row, err := s.topicToDelete(ctx, &topics[i])
			if again, told := twice[names[i]]; again {
				twice[names[i]] = false // one answer for all that name it, with the id if one gave it
				err = errNamedTwice
				if id, given := ids[names[i]]; given {
					dt.TopicID = id
				}
			} else if told {
				continue
			}
			if err == nil {
				dt.Topic, dt.TopicID = &row.Name, row.ID
				err = s.cluster.DeleteTopic(ctx, row.ID)
			}
			if errors.Is(err, metadata.ErrNotFound) {
				err = errNotHosted
			}
			dt.ErrorCode, dt.ErrorMessage = code(err), message(err)
			resp.Topics = append(resp.Topics, dt)
		}
		r.finish(resp)
	})
}

// nameOrID is what a topic is called; its name, whatever the request calls it,
// where that is known.
func (s *Server) nameOrID(t *kmsg.DeleteTopicsRequestTopic) string {
	if t.Topic != nil {
		return "name " + *t.Topic
	}
	if row, ok := s.cluster.TopicByID(t.TopicID); ok {
		return "name " + row.Name
	}
	return "id " + metadata.TopicID(t.TopicID).String()
}

func (s *Server) topicToDelete(ctx context.Context, t *kmsg.DeleteTopicsRequestTopic) (*metadata.Topic, error) {
	if !s.cfg.DeleteTopics {
		return nil, refuse(kerr.TopicDeletionDisabled, "delete.topic.enable is false")
	}
	if t.Topic != nil && t.TopicID != [16]byte{} {
		return nil, refuse(kerr.InvalidRequest, "a topic is named by name or by id, not both")
	}
	if t.Topic == nil && t.TopicID == [16]byte{} {
		return nil, refuse(kerr.InvalidRequest, "a topic is named by name or by id: neither is there")
	}
	if t.Topic != nil {
		return s.cluster.FindTopic(ctx, *t.Topic)
	}
	if row, ok := s.cluster.TopicByID(t.TopicID); ok {
		return row, nil
	}
	return nil, kerr.UnknownTopicID
}
