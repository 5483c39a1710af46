// Package file is an object store in a directory: for one machine, or for
// several that mount the same POSIX file system with atomic link and rename.
//
// # Layout
//
//	<dir>/.uploads/<random>       objects being written; nothing else reads them
//	<dir>/a/b/<name>.o            the object "a/b/<name>"
//
// Bytes of a segment that are not letters, digits or one of "-_=+,@" are
// written as %XX, but for dots that are not the first character; a folder whose
// name would end in ".o" has that dot written as %2E. So "x" and "x/y" are both
// possible, no key leaves the directory, and no key is a file of our own.
//
// # An object's file
//
//	body                 the object's bytes
//	trailer, 32 bytes    magic "TCOBJECT" | version u32 = 1 | CRC32C of body u32 |
//	                     size of body u64 | reserved u32 = 0 | CRC32C of the 28 bytes before u32
//
// Integers are little-endian. The checksum travels in the same file, since two
// files cannot change at once. A trailer of a newer version is refused by name.
//
// # Crash safety
//
// A Put writes a file in .uploads, fsyncs it, creates missing folders (each
// fsynced in its parent), gives the file its name by rename (by link when
// create-only: that fails if the name is taken), and fsyncs the folder. After
// a crash the name has the whole old object, or the whole new one. What is
// left in .uploads is removed when the store is opened, once it is a day old.
//
// A Delete leaves empty folders; they cost nothing, and removing one could race
// with a Put into it.
package file
