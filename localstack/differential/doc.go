// Package differential sends the same random sequence of Kafka requests, valid
// and invalid, of every version, to Thermocline and to Apache Kafka, and
// compares the answers field by field. What differs and may is a short list
// with reasons (rules.go).
//
// Each step is one request that a generator makes from the step's own seed,
// once for each side, since topic ids differ. An answer is flattened to paths
// and values, with lists in order of their keys; ids become topic names.
// Requests that only read are asked again for a while when they differ: a
// Kafka broker learns of metadata a moment after the controller has answered.
//
// Members of groups have one name for both sides (groups.go); what each side
// gave them, ids, generations and epochs, is kept apart and used in the next
// requests. A classic group has one member, so that nothing waits for others.
//
// `make differential` runs it; it needs Java 17 and Maven.
package differential
