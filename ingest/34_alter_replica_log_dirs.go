package ingest

import (
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// AlterReplicaLogDirs v1-2. A broker has one data directory: a replica can only
// be asked to be where it is; any other directory is not found.
func alterReplicaLogDirsAPI() api {
	h, n := serve(kmsg.NewPtrAlterReplicaLogDirsRequest, (*Server).handleAlterReplicaLogDirs)
	return api{key: 34, name: "AlterReplicaLogDirs", min: 1, max: 2, handle: h, newRequest: n}
}

func (s *Server) handleAlterReplicaLogDirs(r *request, req *kmsg.AlterReplicaLogDirsRequest) {
	resp := kmsg.NewPtrAlterReplicaLogDirsResponse()
	resp.Version = r.version
	at := map[string]int{}
	for i := range req.Dirs {
		for _, t := range req.Dirs[i].Topics {
			k, ok := at[t.Topic]
			if !ok {
				k = len(resp.Topics)
				at[t.Topic] = k
				rt := kmsg.NewAlterReplicaLogDirsResponseTopic()
				rt.Topic = t.Topic
				resp.Topics = append(resp.Topics, rt)
			}
			for _, p := range t.Partitions {
				rp := kmsg.NewAlterReplicaLogDirsResponseTopicPartition()
				rp.Partition, rp.ErrorCode = p, code(s.moveDir(req.Dirs[i].Dir, t.Topic, p))
				resp.Topics[k].Partitions = append(resp.Topics[k].Partitions, rp)
			}
		}
	}
	r.finish(resp)
}

func (s *Server) moveDir(dir, topic string, p int32) error {
	if dir != s.cfg.DataDir {
		return kerr.LogDirNotFound
	}
	row, ok := s.cluster.TopicByName(topic)
	if !ok {
		return kerr.UnknownTopicOrPartition
	}
	if _, err := s.locate(row, p); err != nil {
		return kerr.UnknownTopicOrPartition
	}
	return nil
}
