// Package batch is Kafka's record batch, format version 2 (magic 2), as a view
// over bytes. A batch keeps this form from the producer's socket to the bucket;
// nothing here copies records out of it.
//
// # The batch
//
// All integers are big endian. The CRC covers everything from the attributes
// on; what lies before it may be stamped without a new CRC.
//
//	offset  size  field
//	     0     8  base offset            stamped by the shard's leader
//	     8     4  batch length           bytes after this field: len(batch)-12
//	    12     4  partition leader epoch stamped by the shard's leader
//	    16     1  magic                  2; older formats (0, 1) are refused by name,
//	                                     and so is any newer one
//	    17     4  CRC32C                 of bytes 21 to the end
//	    21     2  attributes             bits, see below
//	    23     4  last offset delta      count-1 from producers; more after compaction
//	    27     8  first timestamp        what record deltas are added to
//	    35     8  max timestamp          the true maximum (the gate sees to it), or
//	                                     the append time of the whole batch
//	    43     8  producer id            -1: none, and the next two mean nothing
//	    51     2  producer epoch
//	    53     4  base sequence          wraps from 2^31-1 to 0
//	    57     4  record count
//	    61     -  records                one after the other, or all of them compressed
//
// Attributes: bits 0-2 the codec (0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd),
// bit 3 timestamp type (1: log append time), bit 4 transactional, bit 5
// control, bit 6 delete horizon (set by a log cleaner only), 7-15 zero.
//
// # The record
//
// Varints are zigzag, at most 5 bytes for 32 bits and 10 bytes for 64 bits.
//
//	varint   length            bytes after this field
//	byte     attributes        unused, zero
//	varlong  timestamp delta   to the first timestamp
//	varint   offset delta      to the base offset; dense 0..count-1 from producers
//	varint   key length        -1: null
//	bytes    key
//	varint   value length      -1: null
//	bytes    value
//	varint   header count
//	  varint   header key length   never null
//	  bytes    header key          UTF-8
//	  varint   header value length -1: null
//	  bytes    header value
//
// # Compressed records
//
// gzip and zstd are their own stream formats; lz4 is the LZ4 frame format.
// snappy is the block format, either one raw block or the framing that Java's
// snappy library made Kafka's own, which is also what this package writes:
//
//	0   8  0x82 'S' 'N' 'A' 'P' 'P' 'Y' 0
//	8   4  version 1
//	12  4  compatible version 1
//	then, to the end: 4 bytes length, and a snappy block of that length
//
// # The gate
//
// Gate is the only way for a client's bytes into the log. After it a batch has
// a true length, CRC, record count, dense offset deltas and max timestamp, and
// readers need not repeat those checks. Compressed records are walked as a
// stream through a small window: what is held is the decoder's own window and
// 32 KiB, whatever size the batch claims to have. Iterate, FindTime and
// FindMaxTime are as strict about bounds as the gate, since damage on a disk is
// as hostile as a client.
//
// The recipe to change the format: there is none; it is Kafka's. A magic 3
// would be a second package beside this one.
package batch
