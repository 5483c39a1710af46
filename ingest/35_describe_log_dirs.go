package ingest

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"thermocline/ingest/partition"
	"thermocline/metadata"
)

// DescribeLogDirs v1-5.
//
// Two directories: the data directory with what each replica here holds in its
// log, and the object store with what is tiered, told by the leader only, so
// that the sum over brokers is what it costs. v3 adds an error code, v4 total
// and usable bytes of the volume, v5 whether a directory is cordoned.
func describeLogDirsAPI() api {
	h, n := serve(kmsg.NewPtrDescribeLogDirsRequest, (*Server).handleDescribeLogDirs)
	return api{key: 35, name: "DescribeLogDirs", min: 1, max: 5, handle: h, newRequest: n}
}

func (s *Server) handleDescribeLogDirs(r *request, req *kmsg.DescribeLogDirsRequest) {
	local, store := kmsg.NewDescribeLogDirsResponseDir(), kmsg.NewDescribeLogDirsResponseDir()
	local.Dir, store.Dir = s.cfg.DataDir, s.cfg.StoreName
	local.TotalBytes, local.UsableBytes, store.TotalBytes, store.UsableBytes = -1, -1, -1, -1
	if s.cfg.Volume != nil {
		local.TotalBytes, local.UsableBytes = s.cfg.Volume()
	}
	if req.Topics == nil {
		for _, row := range s.sortedTopics() {
			s.sizes(row, nil, &local, &store)
		}
	}
	asked := map[string]bool{}
	for i := range req.Topics {
		if asked[req.Topics[i].Topic] {
			continue
		}
		asked[req.Topics[i].Topic] = true
		if row, ok := s.cluster.TopicByName(req.Topics[i].Topic); ok {
			s.sizes(row, req.Topics[i].Partitions, &local, &store)
		}
	}
	resp := kmsg.NewPtrDescribeLogDirsResponse()
	resp.Version = r.version
	resp.Dirs = append(resp.Dirs, local)
	if s.cfg.StoreName != "" {
		resp.Dirs = append(resp.Dirs, store)
	}
	r.finish(resp)
}

// sizes adds a topic's partitions, all if none are named.
func (s *Server) sizes(row *metadata.Topic, asked []int32, local, store *kmsg.DescribeLogDirsResponseDir) {
	hot, cold := kmsg.NewDescribeLogDirsResponseDirTopic(), kmsg.NewDescribeLogDirsResponseDirTopic()
	hot.Topic, cold.Topic = row.Name, row.Name
	add := func(p int32) {
		t, err := s.locate(row, p)
		if err != nil {
			return
		}
		v, ok := t.replica.State().View(partition.Key{Topic: row.ID, Partition: p})
		if !ok {
			return
		}
		entry := kmsg.NewDescribeLogDirsResponseDirTopicPartition()
		entry.Partition, entry.Size = p, v.HotBytes
		hot.Partitions = append(hot.Partitions, entry)
		if t.leads() == nil {
			entry.Size = v.ColdBytes
			cold.Partitions = append(cold.Partitions, entry)
		}
	}
	if asked == nil {
		for p := range row.Shards {
			add(int32(p))
		}
	}
	for _, p := range asked {
		add(p)
	}
	if len(hot.Partitions) > 0 {
		local.Topics = append(local.Topics, hot)
	}
	if len(cold.Partitions) > 0 {
		store.Topics = append(store.Topics, cold)
	}
}
