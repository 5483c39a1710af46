// Package format holds every layout that tiering writes to the object store
// and index reads back: segments, directory runs with their pages, fences, and
// the rows that shard state keeps of them. It does no I/O.
//
// All numbers are little endian; all checksums are CRC32C (Castagnoli). A
// record batch inside a segment keeps Kafka's own format and its own CRC, which
// covers everything but its base offset, length, leader epoch and magic: those
// follow from the extent (VerifyExtent), and the data checksum in the footer
// covers them too.
//
// # Object names
//
//	cluster.json
//	<cluster>/segments/<shard>/<term>-<first index>-<random>.seg
//	<cluster>/runs/<shard>/<term>-<run id>-<random>.run
//	<cluster>/fences/<shard>/<term>-<run id>-<random>.fen
//	<cluster>/snapshots/<shard>/<term>-<index>-<random>.snp
//
// shard is decimal, the rest are 16 lower-case hexadecimal digits each. term is
// the uploader's Raft term. A name is never used twice: a repeated upload draws
// a new random part. Rows keep keys without the cluster.
//
// # Marker
//
// cluster.json says whose the store is: one line of JSON and a newline. It is
// created once, by a create-only PUT of the first broker that uses the store,
// and never changed. No cluster's listing shows it, and it is no orphan.
//
//	{"v":1,"cluster":"<cluster id>","id":"<the store's own id>"}
//
// The id is drawn with the marker; the cluster's metadata (row "store") names
// it once the marker is there.
//
// # Segment
//
//	 0  header, 16 B          magic "TCSEGMNT" 8, version 1, zero 7
//	16  data                  batches verbatim, contiguous per partition, partitions
//	                          ordered by (topic name, partition number)
//	 .  partition indexes     one block per partition, in the same order
//	 .  directory             32 B per extent, by (partition, first offset)  ─┐
//	 .  epochs                 8 B per epoch run                               │ FooterLen
//	 .  partition table       16 B per partition, by partition reference       │
//	 .  footer, 192 B                                                        ─┘
//
// An object of FooterLen known from its row is opened with one ranged GET; the
// index of a partition takes at most one more. Data and positions inside a
// segment stay below 4 GiB (the writer refuses more), so that an extent fits
// 32 bytes; offsets, indexes and block positions are 64 bits wide.
//
// Extent, 32 B: one for each partition's run of bytes, and one more wherever
// the next batch would make it longer than 1 MiB, has another leader epoch, or
// does not begin at the offset after the last one: inside an extent offsets are
// dense and the epoch is one, so that what a batch's CRC leaves out can be
// verified. It is also a directory page's entry.
//
//	 0  4  partition reference
//	 4  8  first offset
//	12  8  max timestamp of these batches alone (-1: none; control batches do not count)
//	20  4  segment id (0 in a segment's own directory: apply assigns it later)
//	24  4  position in the object
//	28  4  length
//
// Epoch run, 8 B: from this entry on, up to the next run, extents have this
// leader epoch. The first run names entry 0.
//
//	0  4  entry
//	4  4  leader epoch
//
// Partition table row, 16 B: partition reference 4, index length 4, index position 8.
//
// Footer, 192 B:
//
//	  0  8  magic "TCSEGFTR"
//	  8  1  version (1)
//	  9  1  length of the cluster id
//	 10  2  flags (0)
//	 12  4  shard
//	 16  8  uploader's term
//	 24  8  first Raft index inside
//	 32  8  last Raft index inside
//	 40  8  max timestamp (-1: none)
//	 48  8  data length
//	 56  8  partition indexes' length
//	 64  4  extents
//	 68  4  epoch runs
//	 72  4  partitions
//	 76  4  batches
//	 80  8  records
//	 88  8  zero
//	 96 64  cluster id, zero padded
//	160  4  CRC of header and data
//	164  4  CRC of the partition indexes
//	168  4  CRC of the directory
//	172  4  CRC of the epochs
//	176  4  CRC of the partition table
//	180  4  zero
//	184  4  FooterLen
//	188  4  CRC of the footer's first 188 bytes
//
// Partition index, 104 B and lists:
//
//	  0  4  magic "TPIX"
//	  4  1  version (1)
//	  5  1  zero
//	  6  2  length of the topic name
//	  8  4  partition reference
//	 12  4  partition number
//	 16 16  topic id
//	 32  8  first offset
//	 40  8  last offset
//	 48  8  position of the partition's data
//	 56  8  length of the partition's data
//	 64  8  max timestamp (-1: none)
//	 72  8  records
//	 80  4  batches
//	 84  2  attributes of all batches, or-ed
//	 86  2  codecs seen, bit n for codec n
//	 88  4  stretches  s
//	 92  4  epochs     e
//	 96  4  producers  p
//	100  4  aborted    a
//	104     topic name
//	  .  s × 24  stretch: first offset 8, position 8, max timestamp of this stretch alone 8;
//	             a new one begins at the first batch 64 KiB or more into the last
//	  .  e × 16  leader epoch: first offset 8, epoch 4, zero 4
//	  .  p × 40  producer: id 8, epoch 2, zero 2, last sequence 4, last offset 8,
//	             last timestamp 8, batches 4, zero 4; by id; the state after the last batch
//	  .  a × 32  aborted transaction: producer id 8, first offset 8, last offset 8, last stable offset 8
//	  .  4       CRC of all before
//
// # Directory run
//
//	0  pages, 65,536 B each, entries sorted by (partition, first offset)
//	.  segment rows (AppendSegmentRow), by id: every segment the run covers
//	.  footer, 160 B
//
// Page, 65,536 B. It carries the names of the segments that its entries point
// into, so that a page is enough to read data: shard state keeps no row of a
// segment that is in a run.
//
//	  0  4  magic "TPAG"
//	  4  1  version (1)
//	  5  3  zero
//	  8  4  shard
//	 12  4  run id
//	 16  4  page number
//	 20  2  entries     n
//	 22  2  segments    s
//	 24  2  epoch runs  e
//	 26  6  zero
//	 32     n × 32  extents
//	  .     s × 48  segment: id 4, shard 4, term 8, first index 8, random 8, size 8,
//	                FooterLen 4, zero 4; by id
//	  .     e × 8   epoch runs
//	  .     zero
//	65532 4  CRC of the first 65,532 bytes
//
// Run footer, 160 B:
//
//	  0  8  magic "TCRUNFTR"
//	  8  1  version (1)
//	  9  1  length of the cluster id
//	 10  1  level
//	 11  1  zero
//	 12  4  shard
//	 16  4  run id
//	 20  4  pages
//	 24  4  first segment
//	 28  4  last segment
//	 32  8  entries
//	 40  8  segment rows' length
//	 48  4  segment rows
//	 52  4  CRC of the segment rows
//	 56 64  cluster id
//	120 36  zero
//	156  4  CRC of the footer's first 156 bytes
//
// # Fences
//
//	0  blocks, 65,536 B each, fences sorted by (partition, first offset)
//	.  footer, 128 B
//
// Block, 65,536 B: magic "TFEN" 4, version 1, zero 1, fences 2, block number 4,
// shard 4, then 32 B per fence, zero, and in the last 4 bytes the CRC of all
// before. Fence, 32 B: one for each partition in each page of each live run.
//
//	 0  4  partition reference
//	 4  4  leader epoch of the first entry
//	 8  8  first offset
//	16  8  max timestamp of the partition's entries in this page
//	24  4  run
//	28  4  page
//
// Fence footer, 128 B: magic "TCFENFTR" 8, version 1, length of the cluster id
// 1, zero 2, shard 4, blocks 4, zero 4, fences 8, cluster id 64, zero 28, CRC 4.
//
// # Rows
//
// Rows travel in proposals and snapshots: a version byte, then the fields in
// the order of their Go types; strings carry a 16-bit length, lists a 32-bit
// count. See encode.go.
//
// # Changing a format
//
//  1. Raise the format's version constant and draw the new layout here, beside
//     the old one.
//  2. Keep the old parser: objects live as long as retention says.
//  3. Write the new version only once every broker of the cluster knows it.
//  4. Add a golden file for the new version; never rewrite an old one: the
//     tests decode each of them with today's code.
//  5. Extend the fuzz target's seeds.
package format
