// Package index finds and reads what is in the object store: by offset, by
// timestamp, by leader epoch. It needs nothing but a store and a manifest.
//
// # From an offset to bytes
//
// A manifest's newest segments are level 0: their directories are loaded once
// and kept (Warm, Learn). Older ones are in runs. There the fence block is
// chosen by the first keys that the manifest keeps, the block names the page,
// the page names object, position and length of a piece of at most 1 MiB (more
// only for one larger batch): three GETs with everything cold. By time it is
// the same path along the entries' own maximum timestamps.
//
// # Memory
//
// Three caches, each bounded in bytes: directories, index blocks (fences,
// pages, partition indexes), and data. Data is admitted by bytes before a GET
// begins. A GET for data fetches a span: contiguous pieces of one segment.
// Spans that a sequential reader has passed are dropped first, then the least
// recently used, and read-ahead that nobody has come for last.
//
// # GETs
//
// Equal requests share one: the first makes the cache entry, the others wait
// for it. The GET belongs to the Reader and not to its caller: a fetch that
// times out leaves it running, within LoadTimeout, and the next fetch finds it.
// Everything that arrives is verified by checksum before anyone sees it.
//
// Goroutines: one for each GET under way or admitted and waiting for a
// connection, and one for each stream that is looking ahead. All end with Close.
package index
