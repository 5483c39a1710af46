package differential

import (
	"github.com/twmb/franz-go/pkg/kmsg"
)

// makers are the kinds of requests, with the versions of Kafka 4.3.
var makers = []maker{
	{key: 18, max: 4, weight: 1, reads: true, make: func(g *generator) kmsg.Request {
		req := kmsg.NewPtrApiVersionsRequest()
		req.ClientSoftwareName, req.ClientSoftwareVersion = pick(g, "a", "a-b", "", "-a"), pick(g, "1.0", "")
		return req
	}},
	{key: 3, max: 13, weight: 6, reads: true, make: (*generator).metadata},
	{key: 75, weight: 5, reads: true, make: (*generator).topicPartitions},
	{key: 60, max: 2, weight: 1, reads: true, make: func(g *generator) kmsg.Request {
		req := kmsg.NewPtrDescribeClusterRequest()
		req.EndpointType, req.IncludeClusterAuthorizedOperations = pick(g, int8(1), 1, 1, 2, 7), g.one(2)
		return req
	}},
	{key: 19, min: 2, max: 7, weight: 6, changes: true, make: (*generator).createTopics},
	{key: 20, min: 1, max: 6, weight: 2, changes: true, make: (*generator).deleteTopics},
	{key: 37, max: 3, weight: 2, changes: true, make: (*generator).createPartitions},
	{key: 32, min: 1, max: 4, weight: 5, reads: true, make: (*generator).describeConfigs},
	{key: 33, max: 2, weight: 2, configures: true, make: (*generator).alterConfigs},
	{key: 44, max: 1, weight: 4, configures: true, make: (*generator).incrementalAlterConfigs},
	{key: 74, max: 1, weight: 1, reads: true, make: func(g *generator) kmsg.Request {
		req := kmsg.NewPtrListConfigResourcesRequest()
		req.ResourceTypes = pick(g, []int8{2}, []int8{4, 8}, []int8{99}, []int8{2, 4})
		if g.version == 0 {
			req.ResourceTypes = nil
		}
		return req
	}},
	{key: 45, max: 1, weight: 2, make: (*generator).reassign},
	{key: 46, weight: 1, reads: true, make: func(g *generator) kmsg.Request { return kmsg.NewPtrListPartitionReassignmentsRequest() }},
	{key: 43, max: 2, weight: 2, make: (*generator).electLeaders},
	{key: 48, max: 1, weight: 1, reads: true, make: (*generator).describeQuotas},
	{key: 50, weight: 1, reads: true, make: func(g *generator) kmsg.Request {
		req := kmsg.NewPtrDescribeUserSCRAMCredentialsRequest()
		for range g.rng.IntN(3) {
			req.Users = append(req.Users, kmsg.DescribeUserSCRAMCredentialsRequestUser{Name: pick(g, "u", "v")})
		}
		return req
	}},
	{key: 29, min: 1, max: 3, weight: 1, reads: true, make: func(g *generator) kmsg.Request {
		req := kmsg.NewPtrDescribeACLsRequest()
		req.ResourceType, req.ResourcePatternType, req.Operation, req.PermissionType = 1, 1, 1, 1
		return req
	}},
	{key: 65, weight: 1, reads: true, make: func(g *generator) kmsg.Request {
		req := kmsg.NewPtrDescribeTransactionsRequest()
		req.TransactionalIDs = pick(g, []string{"x"}, []string{"", "y"}, nil)
		return req
	}},
	{key: 66, max: 2, weight: 1, reads: true, make: func(g *generator) kmsg.Request {
		req := kmsg.NewPtrListTransactionsRequest()
		req.StateFilters = pick(g, nil, []string{"Ongoing"}, []string{"Nope", "Empty"})
		req.DurationFilterMillis = -1
		if g.version >= 2 {
			req.TransactionalIDPattern = pick(g, nil, ptr("a.*"), ptr("("))
		}
		return req
	}},
	{key: 0, min: 3, max: 13, weight: 14, make: (*generator).produce},
	{key: 1, min: 4, max: 18, weight: 14, reads: true, make: (*generator).fetch},
	{key: 2, min: 1, max: 11, weight: 8, reads: true, make: (*generator).listOffsets},
	{key: 21, max: 2, weight: 2, make: (*generator).deleteRecords},
	{key: 22, max: 4, weight: 1, reads: true, make: func(g *generator) kmsg.Request {
		req := kmsg.NewPtrInitProducerIDRequest()
		req.ProducerID, req.ProducerEpoch, req.TransactionTimeoutMillis = -1, -1, 60_000
		return req
	}},
	{key: 10, max: 6, weight: 2, reads: true, make: (*generator).findCoordinator},
	{key: 11, min: 2, max: 9, weight: 8, make: (*generator).joinGroup},
	{key: 14, max: 5, weight: 6, make: (*generator).syncGroup},
	{key: 12, max: 4, weight: 4, make: (*generator).heartbeat},
	{key: 13, max: 5, weight: 3, make: (*generator).leaveGroup},
	{key: 15, max: 6, weight: 4, reads: true, make: func(g *generator) kmsg.Request {
		req := kmsg.NewPtrDescribeGroupsRequest()
		req.Groups, req.IncludeAuthorizedOperations = g.groups(), g.version >= 3 && g.one(3)
		return req
	}},
	{key: 16, max: 5, weight: 3, reads: true, make: (*generator).listGroups},
	{key: 8, min: 2, max: 10, weight: 8, make: (*generator).offsetCommit},
	{key: 9, min: 1, max: 10, weight: 7, reads: true, make: (*generator).offsetFetch},
	{key: 47, weight: 2, make: (*generator).offsetDelete},
	{key: 42, max: 2, weight: 1, make: func(g *generator) kmsg.Request {
		req := kmsg.NewPtrDeleteGroupsRequest()
		req.Groups = g.groups()
		return req
	}},
	{key: 68, max: 1, weight: 9, make: (*generator).consumerHeartbeat},
	{key: 69, max: 1, weight: 4, reads: true, make: func(g *generator) kmsg.Request {
		req := kmsg.NewPtrConsumerGroupDescribeRequest()
		req.Groups, req.IncludeAuthorizedOperations = g.groups(), g.one(3)
		return req
	}},
	{key: 61, weight: 2, reads: true, make: (*generator).describeProducers},
}

func (g *generator) metadata() kmsg.Request {
	req := kmsg.NewPtrMetadataRequest()
	req.IncludeTopicAuthorizedOperations, req.IncludeClusterAuthorizedOperations = g.one(2), g.one(3)
	req.Topics = []kmsg.MetadataRequestTopic{}
	for range g.rng.IntN(4) {
		t := kmsg.NewMetadataRequestTopic()
		name := g.topic().Name
		if g.version < 4 { // would make what is missing
			name = g.existing().Name
			if len(g.world.Topics) == 0 {
				continue
			}
		}
		t.Topic = &name
		if g.version >= 10 && g.one(3) {
			t.TopicID, t.Topic = g.side.ID(name), nil
			if g.version < 12 {
				t.Topic = &name
			}
		}
		req.Topics = append(req.Topics, t)
	}
	if g.version == 0 && len(req.Topics) == 0 || g.one(8) && g.version > 0 {
		req.Topics = nil
	}
	return req
}

func (g *generator) topicPartitions() kmsg.Request {
	req := kmsg.NewPtrDescribeTopicPartitionsRequest()
	req.ResponsePartitionLimit = pick(g, int32(2000), 1, 2, 3, 0, -1)
	for range g.rng.IntN(4) {
		req.Topics = append(req.Topics, kmsg.DescribeTopicPartitionsRequestTopic{Topic: g.topic().Name})
	}
	if len(req.Topics) == 0 { // all, and Kafka may have internal ones
		req.ResponsePartitionLimit = 2000
	}
	if g.one(3) {
		t := g.topic()
		c := kmsg.NewDescribeTopicPartitionsRequestCursor()
		c.Topic, c.Partition = t.Name, g.partition(t)
		req.Cursor = &c
	}
	return req
}

func (g *generator) createTopics() kmsg.Request {
	req := kmsg.NewPtrCreateTopicsRequest()
	req.TimeoutMillis, req.ValidateOnly = 10_000, g.one(4)
	for i := range 1 + g.rng.IntN(2) {
		t := kmsg.NewCreateTopicsRequestTopic()
		t.Topic, t.NumPartitions, t.ReplicationFactor = g.newName(), 1+g.rng.Int32N(3), 1
		if i > 0 { // Kafka makes two topics that collide, if one request asks for both
			t.Topic = g.world.Prefix + pick(g, "a", "b", "c")
		}
		if g.one(8) {
			t.Topic = pick(g, "bad name!", "..", "")
		}
		if g.one(8) {
			t.NumPartitions = pick(g, int32(0), -2)
		}
		if g.one(8) {
			t.ReplicationFactor = pick(g, int16(0), 9, -2)
		}
		if g.version >= 4 && g.one(6) {
			t.NumPartitions, t.ReplicationFactor = -1, -1
		}
		if g.one(3) {
			name, value := g.config()
			t.Configs = append(t.Configs, kmsg.CreateTopicsRequestTopicConfig{Name: name, Value: &value})
		}
		req.Topics = append(req.Topics, t)
	}
	return req
}

func (g *generator) deleteTopics() kmsg.Request {
	req := kmsg.NewPtrDeleteTopicsRequest()
	req.TimeoutMillis = 10_000
	for range 1 + g.rng.IntN(2) {
		name := pick(g, g.newName(), g.topic().Name)
		t := kmsg.NewDeleteTopicsRequestTopic()
		t.Topic = &name
		if g.one(3) {
			t.Topic, t.TopicID = nil, g.side.ID(name)
		}
		req.Topics, req.TopicNames = append(req.Topics, t), append(req.TopicNames, name)
	}
	return req
}

func (g *generator) createPartitions() kmsg.Request {
	req := kmsg.NewPtrCreatePartitionsRequest()
	req.TimeoutMillis, req.ValidateOnly = 10_000, g.one(3)
	t := g.topic()
	rt := kmsg.NewCreatePartitionsRequestTopic()
	rt.Topic, rt.Count = t.Name, t.Partitions+g.rng.Int32N(3)-1
	if g.one(4) {
		for range pick(g, 1, 2) {
			rt.Assignment = append(rt.Assignment, kmsg.CreatePartitionsRequestTopicAssignment{Replicas: pick(g, []int32{1}, []int32{9}, []int32{1, 1})})
		}
	}
	req.Topics = append(req.Topics, rt)
	return req
}

func (g *generator) reassign() kmsg.Request {
	req := kmsg.NewPtrAlterPartitionAssignmentsRequest()
	req.TimeoutMillis = 10_000
	t := g.topic()
	rt := kmsg.NewAlterPartitionAssignmentsRequestTopic()
	rt.Topic = t.Name
	rt.Partitions = append(rt.Partitions, kmsg.AlterPartitionAssignmentsRequestTopicPartition{
		Partition: g.partition(t), Replicas: pick(g, []int32{1}, nil, []int32{2}, []int32{1, 1}, []int32{}),
	})
	req.Topics = append(req.Topics, rt)
	return req
}

func (g *generator) electLeaders() kmsg.Request {
	req := kmsg.NewPtrElectLeadersRequest()
	req.TimeoutMillis, req.ElectionType = 10_000, pick(g, int8(0), 0, 1, 7)
	for range 1 + g.rng.IntN(2) {
		t := g.topic()
		req.Topics = append(req.Topics, kmsg.ElectLeadersRequestTopic{Topic: t.Name, Partitions: []int32{g.partition(t)}})
	}
	return req
}

func (g *generator) describeQuotas() kmsg.Request {
	req := kmsg.NewPtrDescribeClientQuotasRequest()
	for range g.rng.IntN(3) {
		c := kmsg.DescribeClientQuotasRequestComponent{EntityType: pick(g, "user", "client-id", "ip", "planet"), MatchType: pick[kmsg.QuotasMatchType](g, 0, 1, 2)}
		if c.MatchType == 0 || g.one(4) {
			c.Match = ptr("x")
		}
		req.Components = append(req.Components, c)
	}
	return req
}
