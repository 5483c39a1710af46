package ingest

import (
	"github.com/twmb/franz-go/pkg/kmsg"
)

// maxAPIKey is the largest key that may be registered.
const maxAPIKey = 92

// api is one registered API key: what ApiVersions advertises, and who handles it.
type api struct {
	key  int16
	name string
	// min and max are advertised; versions below served are refused although
	// they are advertised (Produce: clients look for version 0 to find codecs).
	min, served, max int16
	// records: the request carries records and may be as large as
	// socket.request.max.bytes.
	records bool
	// hidden: answered, but not advertised.
	hidden bool
	// handle answers the request, now or later, exactly once. It runs on the
	// connection's reader.
	handle func(s *Server, r *request)
	// newRequest returns an empty request to decode into.
	newRequest func() kmsg.Request
}

// registrations lists the API keys, one file each.
func registrations() []api {
	return []api{
		produceAPI(), fetchAPI(), listOffsetsAPI(), metadataAPI(), apiVersionsAPI(),
		createTopicsAPI(), deleteTopicsAPI(), deleteRecordsAPI(), initProducerIDAPI(),
		offsetForLeaderEpochAPI(), describeConfigsAPI(), alterConfigsAPI(), describeLogDirsAPI(),
		createPartitionsAPI(), incrementalAlterConfigsAPI(), describeClusterAPI(),
		offsetCommitAPI(), offsetFetchAPI(), findCoordinatorAPI(), joinGroupAPI(), heartbeatAPI(),
		leaveGroupAPI(), syncGroupAPI(), describeGroupsAPI(), listGroupsAPI(), deleteGroupsAPI(),
		offsetDeleteAPI(), consumerGroupHeartbeatAPI(), consumerGroupDescribeAPI(),
		describeTopicPartitionsAPI(), listConfigResourcesAPI(), describeProducersAPI(),
		alterPartitionReassignmentsAPI(), listPartitionReassignmentsAPI(), electLeadersAPI(),
		alterReplicaLogDirsAPI(), describeClientQuotasAPI(), alterClientQuotasAPI(),
		describeUserScramCredentialsAPI(), describeACLsAPI(), createACLsAPI(), deleteACLsAPI(),
		describeTransactionsAPI(), listTransactionsAPI(),
		getTelemetrySubscriptionsAPI(), pushTelemetryAPI(),
	}
}

// register turns the list into a table by key.
func register(list []api) [maxAPIKey + 1]*api {
	var table [maxAPIKey + 1]*api
	for i := range list {
		a := &list[i]
		if a.served < a.min {
			a.served = a.min
		}
		table[a.key] = a
	}
	return table
}

// serve adapts a handler of a typed request.
func serve[T kmsg.Request](newRequest func() T, handle func(s *Server, r *request, req T)) (func(*Server, *request), func() kmsg.Request) {
	return func(s *Server, r *request) { handle(s, r, r.msg.(T)) },
		func() kmsg.Request { return newRequest() }
}
