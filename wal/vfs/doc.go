// Package vfs is the seam between the log and a disk. It has three file
// systems:
//
//   - OS: real files (one pwritev per write of up to 1,024 pieces, fdatasync,
//     flock).
//   - Mem: files in memory that can be crashed. It tracks every 4 KiB block that
//     was written and not synced, and every directory change that was not made
//     durable by SyncDir; Crash builds what a power cut might have left.
//   - Faulty: a wrapper that makes chosen operations of another file system fail.
//
// # What the log assumes of a disk
//
// These are the assumptions that Mem breaks as far as they allow, and no
// further:
//
//  1. After Sync returned nil, the blocks written before it read back as
//     written, whatever happens to the power, until they are written again.
//  2. A block that was written and not yet synced may, after a power cut, hold
//     its old content, its new content, any mixture of both in sectors of 512
//     bytes, or garbage in some of its sectors: the drive was writing it. It
//     follows that a block with data that must survive is never written again.
//  3. Blocks reach the disk in any order. A file's size may lag behind.
//  4. Creations, renames and removals are durable after SyncDir of their
//     directory. Before that each one may have happened or not; a rename is
//     atomic. A file is unreachable until its name is durable, also when its
//     contents were synced.
//  5. After a failed write or Sync nothing is known of the blocks concerned:
//     the kernel may have dropped the pages and marked them clean. Nobody
//     retries on the same file.
package vfs
