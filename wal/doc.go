// Package wal is a broker's write-ahead log: one sequential, fsynced log that
// all its shard replicas share. Log is the log itself, synchronous and
// deterministic; Writer is the goroutine that owns it in a broker and groups
// what comes into commits. Scan reads a log's files for inspection. Snapshot
// files (WriteSnapshot, OpenSnapshot) lie in the same directory.
//
// # What it promises
//
//  1. An append whose Done got nil is on the disk, with every append of its shard
//     before it, and is found by every later Open.
//  2. What Open returns is what a prefix of the submitted appends comes to: all
//     acked ones and perhaps some that were not answered; nothing else. It is
//     durable when Open returns.
//  3. Damage to bytes that a later record says were synced is reported as a
//     *CorruptionError with file, offset, and what was expected and found. It is
//     never taken for a torn tail. A torn tail is cut and logged.
//  4. After a failed write or fdatasync the log is out of service for good: that
//     append, all that share its group, and all later ones get the error.
//  5. The files take at most Options.MaxBytes and one file (and one more for each
//     crash in the middle of recycling, until the next recycling).
//  6. A read returns the bytes that were appended, or an error.
//
// # Files
//
// In the log's directory:
//
//	LOCK                       flock: one process at a time
//	wal-<use, 16 hex>.log      a file of the log
//	free-<use, 16 hex>.log     a file to be recycled; its contents mean nothing
//	<name>.snap                a snapshot file; <name>.snap.tmp while it is written
//
// Positions are byte positions in the log as a whole. Each use of a file is given
// the next use number and the next stretch of positions, as long as the file;
// neither is ever given twice. The numbers in names count too, so that a crash
// cannot bring one back. Files are read in order of use number. Integers are
// little-endian; checksums are CRC32C (Castagnoli).
//
// A file of length L (Options.FileBytes; longer when one append needs it):
//
//	offset
//	0        file header, the rest of the block is zero
//	4096     group, padded with zeroes to a whole block
//	...      group, padded
//	         anything: never written, or left from an earlier use
//	L
//
// File header, 64 bytes:
//
//	 0  8  magic "thermwal"
//	 8  1  version = 1
//	 9  3  zero
//	12  4  block size = 4096
//	16  8  use number, as in the file's name
//	24  8  start: the position of the file's first byte
//	32  8  L
//	40  8  synced end: the position where the last group before this file ends
//	48 12  zero
//	60  4  checksum of bytes 0 to 59
//
// Group header, 48 bytes, always at the start of a block:
//
//	 0  4  magic "TCWG"
//	 4  1  version = 1
//	 5  1  flags: 1 = closing record (of an idle log)
//	 6  2  zero
//	 8  8  use number
//	16  8  position of this header
//	24  4  length of header and records, without the padding
//	28  4  number of records; they follow without gaps
//	32  8  synced end: the position where the group before this one ends
//	40  4  zero
//	44  4  checksum of bytes 0 to 43
//
// Record, 40 bytes, descriptor, payload:
//
//	 0  4  checksum, see below
//	 4  1  kind: 1 entry, 2 hard state, 3 snapshot pointer, 4 shard removed
//	 5  1  flags: 1 copy, 2 staged, 4 install, 8 first of a run
//	 6  1  entry type (Raft's)
//	 7  1  zero
//	 8  4  shard
//	12  4  length of the descriptor, at most 64 KiB
//	16  8  index (of a hard state: the commit index)
//	24  8  term
//	32  4  length of the payload
//	36  4  CRC32C of the payload, as the entry's proposer computed it
//	40     descriptor, payload
//
// The record's checksum covers, in this order: use number (8 bytes), the record's
// position (8), bytes 4 to 39, the descriptor. The payload is covered through its
// CRC in bytes 36 to 39, so a payload is check-summed once in its life and not
// again for each log it goes through. Not covered by anything: the padding, the
// rest of a header block, and what lies behind the last group; damage there
// harms nothing.
//
// The descriptor of a hard state is its vote (8 bytes). That of a snapshot pointer
// is trimmed index (8), trimmed term (8), file name.
//
// To change the format: raise the version byte of file and group header, keep
// reading version 1, add golden files beside testdata/v1 (which never change), and
// say here what differs. A version that is not known is refused by name (ErrVersion).
//
// Snapshot file: a header of 16 bytes, then chunks.
//
//	 0  8  magic "thermsnp"      chunk:  0  4  length n, at most 256 KiB
//	 8  1  version = 1                   4  4  checksum of (bytes of all chunks so
//	 9  3  zero                                far with this one, 8 bytes; the data)
//	12  4  checksum of 0 to 11           8  n  data; n = 0 ends the file
//
// # What the records mean
//
// Records are applied in order of position. An entry replaces the entries of its
// shard from its index on. A hard state or pointer replaces the last one. A
// pointer takes away the entries up to its trimmed index; with the install flag
// it replaces the shard's whole log by the staged entries between its trimmed and
// its own index. Staged entries count for nothing else. A copy is what recycling
// rewrote: it takes its own place and takes nothing away, since later entries of
// its shard may stand before it in the log. Gaps are therefore no error while
// reading; at the end every shard must be whole from its trimmed index to its
// snapshot and commit index.
//
// # Committing
//
// A group goes to the disk by one vectored write and one fdatasync. Since a group
// starts on a block of its own, a block with acked bytes is never written again,
// whatever the drive does to the block it is writing when the power fails. At any
// time at most one group is written and not synced: the one behind the last synced
// end. Hence recovery's rule. It reads groups as long as each is whole and names
// the end of the one before it as synced. Where it stops,
//
//   - if a later file's header or, in the last file, a later group header of this
//     use of the file exists, the damage lies below a synced end: corruption;
//   - else it is the group that was being written, or the end: cut.
//
// A last group that was acked is protected only once something names its end: the
// next group, the next file, or the closing record that an idle log writes within
// 100 ms (Writer: after 50 ms).
//
// # Recycling
//
// When another file would exceed the budget, the oldest one is emptied: its live
// entries, and the newest hard states and pointers that are stored in it, are
// written as copies into the newest file, and synced. Then:
//
//	retire   rename wal-N to free-N, sync the directory
//	rotate   write the new header into free-N, fdatasync, rename to wal-M, sync the
//	         directory; a first use creates free-M instead
//
// The same is done early, when there is no free file and next to nothing lives in
// the oldest of more than a few: an fdatasync on a file that was written before
// waits for no journal and takes about half the time. While there are none to
// recycle, the Writer writes zeroes into a new free-N in the background
// (Options.FillPerSecond); a crash leaves a free file that is shorter. A file that
// was not written before grows in steps of 512 KiB, in zeroes behind the group
// that begins a step, unless the group is a large one.
//
// Only the oldest file goes, so no record is lost that an older one would need
// (an entry that replaced others, a trim). The exception is a file without groups.
//
// Crash points, each tested by a crash before every operation with several
// outcomes (TestCrashBeforeEveryOperation, TestCrashLives), a failure of every
// operation (TestFailEveryOperation) and where named:
//
//	1  a group is written and not synced: whole, or torn and cut (TestTornTail)
//	2  copies are synced, the oldest file is still there: both are read, the copy
//	   says the same
//	3  retire's rename is not durable: the old file is read, nothing in it counts
//	   any more or it says the same as the copies
//	4  rotate wrote half a header: the file is a free one, its contents mean nothing
//	5  rotate's rename is not durable: as 4, and the number is used up
//	6  the new file has no group: it names the synced end, and is retired with the
//	   next start's first file (TestRestartsUseUpNothing)
//	7  kill -9: what is in the page cache is read, and synced before it is handed out
//	8  a snapshot file is written, its pointer is not durable: removed at the next
//	   start (TestStaleSnapshotsGo)
//
// What is assumed of the disk and the file system is written in package vfs.
package wal
