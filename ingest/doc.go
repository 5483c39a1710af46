// Package ingest speaks the Kafka protocol: listener, connections, and one
// file per API key (NN_name.go).
//
// A connection has a reader that goes on while earlier requests are being
// worked on, a bounded FIFO of requests whose answers leave in order, and a
// writer:
//
//	reader ── frame (byte budget, pooled buffer) ── header ── FIFO ──► handler
//	writer ◄── waits for the FIFO's head ── encodes or sends stored bytes
//
// Handlers that may wait (long polls, metadata writes) run on a goroutine of
// their own, bounded per connection; the others run on the reader. A request
// is answered exactly once, by one of the finish methods of request.
//
// What ingest needs of the other parts is declared in backend.go. Kafka error
// codes appear in this package only; kerrOf maps every error of the parts
// below. Every bound is in limits.go.
package ingest
