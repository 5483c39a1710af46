// Package object is what Thermocline needs of an object store: a small Store
// interface, its errors, and what every adapter shares (keys, counting, the
// check that a broker runs at start-up).
//
// Adapters live below, one package each, so that a library for one store is
// linked only where it is used:
//
//	s3        AWS and whatever speaks S3, by aws-sdk-go-v2
//	minio     MinIO and whatever speaks S3, by minio-go
//	file      a directory of this machine, crash-safe
//	memory    the process's memory, for tests and for a bench without uploads
//	remote    what s3 and minio have in common: retries, resumption, multipart
//	faulty    any of them with faults, or with the speed of a far store
//	storeurl  opens a store by its URL
//	objecttest one acceptance test for all
//
// # What is assumed of a store
//
// A Put that was acknowledged is durable and seen by every later Get, Head and
// List (strong consistency, as S3 has it since 2020). A Put is seen whole or
// not at all. Of several create-only Puts of one key exactly one wins.
// Everything else (ranged GET, LIST in byte order and in pages, DELETE of many
// keys, multipart, CRC32C) is checked by SelfCheck.
//
// # Unclear outcomes
//
// A request can fail after the store has carried it out. Overwriting Puts and
// Deletes are simply sent again. For a create-only Put an adapter that sends
// again and then finds the key taken looks at the object: if size and CRC32C
// are those of its own body, the Put has succeeded. Bodies of create-only
// objects must therefore differ between writers, for example by naming them.
package object
