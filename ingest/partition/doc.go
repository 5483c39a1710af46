// Package partition is the pure state machine of a shard: its partitions,
// producers and segment rows. Set implements shard.StateMachine, and answers
// many concurrent readers.
//
// It has no clock, no I/O, no goroutine and no randomness, and nothing in it
// depends on the order of a map: two Sets that apply the same entries have
// equal images, byte for byte.
//
// # The payload of an entry
//
// A payload is a sequence of items, without padding. Numbers are little endian.
//
//	item    0  u32  length of the body
//	        4  u8   kind
//	        5  u8   version, 1
//	        6  u16  reserved, 0
//	        8  u32  number of the partition in this shard; 0 where there is none
//	       12  ...  body
//
//	kind    body
//	1 produce         one record batch v2, verbatim, stamped with its base offset
//	                  and leader epoch; a TailRef's Pos and Len name exactly these bytes
//	2 create          topic id 16 B, partition z, epoch base z, name s, config
//	3 delete          empty
//	4 config          topic id 16 B, revision z, config
//	5 delete records  offset z: the log start to be
//	6 producer ids    count z
//	7 tier segment    segment row (its id is ignored: apply assigns it)
//	8 run             run row, count v, count x run id v, fence row
//	9 coordinator     slot v, after v, count v, count x record: key s, value;
//	  write           a value is 0 (the key is deleted), or its length + 1 (v)
//	                  and that many bytes
//
// Within bodies: v is an unsigned varint, z a zigzag varint, s a length (v) and
// that many bytes. A config is a count (v) and that many pairs of s, by key
// ascending. Rows are as package tiering/format draws them.
//
// Nothing in the payload checks itself but the batches, which carry Kafka's
// CRC32C of their own: the entry's descriptor has a CRC32C of the whole
// payload. The stamped fields of a batch lie outside its CRC; apply checks them
// against the state.
//
// An item of an unknown kind or a higher version stops the replica with
// ErrNewerVersion: an older binary cannot skip what changes the state. A change
// of a body takes a new version of its kind, and old versions stay readable
// for as long as logs may hold them.
//
// # The image of a Set
//
//	0  4 B  "TCPI"
//	4  u8   version, 1 or 2
//	5  3 B  reserved, 0
//	8  ...  shard v, index v, term v, next partition v, next segment v, next run v,
//	        producer ids used z
//	        manifest    length v, then as package tiering/format draws it
//	        topics      count v, by id: id 16 B, revision z, name s, config
//	        partitions  count v, by number:
//	                    number v, topic v (its place in the list above), partition z,
//	                    epoch base z, log start z, tiered end z, log end z, cold bytes z,
//	                    epochs count v: epoch z, first offset z
//	                    producers count v, by id: id z, last time z, epoch z,
//	                      batches u8 (0 to 5): first sequence z, last sequence z, offset z
//	                    open transactions count v: always 0 in version 1
//	                    tail rows count v; if any: first offset z; then each as its
//	                      difference from the row before: index v, term v, position v,
//	                      length v, offset delta v, max timestamp z, epoch z
//	        entries     count v, of entries with rows in a tail: index v as the
//	                    difference from the one before, time z
//	        slots       only in version 2: count v, by number: number v, writes v,
//	                    records count v, by key: key s, value s
//	   u32  CRC32C of everything before
//
// Version 2 is written once a coordinator slot has been written to; a binary
// that does not know it could not have applied the write either. A newer
// version is refused with ErrNewerVersion. High watermarks are not in
// the image: they follow from the rows and the shard's acknowledgement bound.
//
// # Coordinator slots
//
// Group coordinators keep their state in slots: maps from keys to values that
// change by whole writes. Each write names the number of the write that it was
// made upon, and is refused if that is not the newest one, at Prepare (counting
// what is in flight) and again at apply. So whatever becomes of a proposal, the
// records of a slot are what its writes 1 to n say, without a hole, and two
// coordinators of one slot cannot both be believed. Slots have no data in the
// object store: an entry with nothing but coordinator writes can be trimmed as
// soon as a snapshot covers it.
//
// # How a producer's batches are checked
//
// As Kafka 4 does (storage's ProducerAppendInfo and ProducerStateEntry): five
// batches per producer are remembered; a batch with exactly the sequences of one of
// them is a duplicate and gets the original offset. A producer of whom the
// partition knows nothing may begin at any sequence, since its state may have
// expired while it was idle. A leader that had to drop a new producer's first
// batch remembers its sequence until it comes back, so that the second one does
// not slip in before it.
package partition
