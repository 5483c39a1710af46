package ingest

import (
	"math/bits"
	"sync/atomic"
	"time"
)

// LatencyBuckets is the number of buckets of a latency histogram: bucket i
// counts latencies below 2^i microseconds, the last one all others.
const LatencyBuckets = 28

// keyStats counts one API key's requests.
type keyStats struct {
	requests, errors, bytesIn, bytesOut atomic.Int64
	latencyMicros                       atomic.Int64
	latency                             [LatencyBuckets]atomic.Int64
}

func (k *keyStats) observe(d time.Duration) {
	us := max(d.Microseconds(), 0)
	k.latencyMicros.Add(us)
	k.latency[min(bits.Len64(uint64(us)), LatencyBuckets-1)].Add(1)
}

// serverStats are the counters of one server.
type serverStats struct {
	connections, accepted, rejected, closedOnError atomic.Int64
	recordsIn, batchesIn, recordBytesIn            atomic.Int64
	recordBytesOut, hotBytesOut, coldBytesOut      atomic.Int64
	keys                                           [maxAPIKey + 1]keyStats
}

// KeyStats is a snapshot of one API key's counters.
type KeyStats struct {
	Key                                 int16
	Name                                string
	Requests, Errors, BytesIn, BytesOut int64
	// LatencyMicros is the sum, Latency the histogram, of the time from the
	// last byte of a request to the last byte of its answer.
	LatencyMicros int64
	Latency       [LatencyBuckets]int64
}

// Stats is a snapshot of a server's counters.
type Stats struct {
	// Connections are open now; the others only rise.
	Connections, Accepted, Rejected, ClosedOnError int64
	RecordsIn, BatchesIn, RecordBytesIn            int64
	RecordBytesOut, HotBytesOut, ColdBytesOut      int64
	FetchSessions                                  int64
	Keys                                           []KeyStats
}

// Stats returns a snapshot of the counters.
func (s *Server) Stats() Stats {
	st := &s.stats
	out := Stats{
		Connections: st.connections.Load(), Accepted: st.accepted.Load(),
		Rejected: st.rejected.Load(), ClosedOnError: st.closedOnError.Load(),
		RecordsIn: st.recordsIn.Load(), BatchesIn: st.batchesIn.Load(), RecordBytesIn: st.recordBytesIn.Load(),
		RecordBytesOut: st.recordBytesOut.Load(), HotBytesOut: st.hotBytesOut.Load(), ColdBytesOut: st.coldBytesOut.Load(),
		FetchSessions: int64(s.sessions.len()),
	}
	for key := range st.keys {
		a := s.apis[key]
		if a == nil {
			continue
		}
		k := &st.keys[key]
		ks := KeyStats{
			Key: a.key, Name: a.name, Requests: k.requests.Load(), Errors: k.errors.Load(),
			BytesIn: k.bytesIn.Load(), BytesOut: k.bytesOut.Load(), LatencyMicros: k.latencyMicros.Load(),
		}
		for i := range k.latency {
			ks.Latency[i] = k.latency[i].Load()
		}
		out.Keys = append(out.Keys, ks)
	}
	return out
}
