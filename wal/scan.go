package wal

import (
	"fmt"
	"path"

	"thermocline/wal/vfs"
)

// ScanKind says what a ScanRecord shows.
type ScanKind string

// The kinds of ScanRecord.
const (
	ScanFile    ScanKind = "file"    // a file's header
	ScanGroup   ScanKind = "group"   // a group commit's header
	ScanClosing ScanKind = "closing" // the closing record of an idle log
	ScanEntry   ScanKind = "entry"
	ScanHard    ScanKind = "hard-state"
	ScanPointer ScanKind = "snapshot-pointer"
	ScanRemove  ScanKind = "remove-shard"
	// ScanDamage is a place where something good was expected: Problem says what.
	// Behind the last group of the last file it may be a torn tail; see Torn.
	ScanDamage ScanKind = "damage"
)

// ScanRecord is one thing found in a log file, for inspection.
type ScanRecord struct {
	Kind     ScanKind
	File     string
	Use      uint64
	Offset   int64
	Position Position

	// Of files and groups.
	Length  int64
	Records int
	Synced  Position // the synced end that it names

	// Of records.
	Shard                     ShardID
	Index, Term               uint64
	Type                      uint8
	DescriptorLen, PayloadLen int
	Copy, Staged, Install     bool
	Hard                      *HardState
	Snapshot                  *SnapshotPointer

	// Of damage.
	Problem string
	// Torn: nothing later names a synced end above it, so recovery cuts it, or
	// has cut it: then another file was begun behind it.
	Torn bool
}

// Scan shows every file, group and record of the log in dir, in order, with all
// checksums verified, and goes on behind damage where it can. It takes no lock
// and changes nothing; beside a running broker the end may look torn. An error
// of each ends it and is returned.
func Scan(fs vfs.FS, dir string, each func(ScanRecord) error) error {
	live, _, err := listFiles(fs, dir)
	if err != nil {
		return err
	}
	for i, use := range live {
		b := bounds{last: i == len(live)-1}
		if !b.last {
			if b.to, err = syncedBefore(fs, dir, liveName(live[i+1])); err != nil {
				return err
			}
		}
		if err := scanFile(fs, dir, liveName(use), b, each); err != nil {
			return err
		}
	}
	return nil
}

// bounds are what the next file says of a file: the synced end at which that
// one was begun, 0 if it cannot be known.
type bounds struct {
	to   Position
	last bool
}

// syncedBefore reads the synced end that a file's header names, 0 if the header
// is damaged.
func syncedBefore(fs vfs.FS, dir, name string) (synced Position, err error) {
	err = withScanner(fs, dir, name, func(s *scanner, d *damage) error {
		if d == nil {
			synced = s.head.synced
		}
		return nil
	})
	return synced, err
}

func withScanner(fs vfs.FS, dir, name string, use func(s *scanner, d *damage) error) error {
	file, err := fs.Open(path.Join(dir, name))
	if err != nil {
		return fmt.Errorf("wal: open: %w", err)
	}
	s, d, err := openScanner(file, name)
	if err == nil {
		err = use(s, d)
	}
	return withClose(err, file)
}

func scanFile(fs vfs.FS, dir, name string, b bounds, each func(ScanRecord) error) error {
	return withScanner(fs, dir, name, func(s *scanner, d *damage) error { return s.scanFile(name, b, d, each) })
}

func (s *scanner) scanFile(name string, b bounds, d *damage, each func(ScanRecord) error) error {
	if d != nil {
		return each(ScanRecord{Kind: ScanDamage, File: name, Problem: d.String()})
	}
	if err := each(ScanRecord{
		Kind: ScanFile, File: name, Use: s.head.use, Position: s.head.start,
		Length: s.head.length, Synced: s.head.synced,
	}); err != nil {
		return err
	}
	return s.scan(b, each)
}

// String puts what was expected and found into words.
func (d *damage) String() string {
	return fmt.Sprintf("at offset %d: expected %s, found %s", d.off, d.expected, d.found)
}

func (s *scanner) scan(b bounds, each func(ScanRecord) error) error {
	off, end := int64(blockSize), s.head.synced
	for {
		if b.to > 0 && end >= b.to {
			return s.showCut(off, each) // recovery reads no further either
		}
		pending := []ScanRecord{{}}
		h, d, err := s.group(off, func(r *record, at int64) error {
			pending = append(pending, s.show(r, at))
			return nil
		})
		if err != nil {
			return err
		}
		if d != nil {
			next, torn, err := s.showDamage(off, d, b.last, each)
			if err != nil || next == 0 || torn {
				return err
			}
			off = next
			continue
		}
		pending[0] = ScanRecord{
			Kind: ScanGroup, File: s.name, Use: s.use, Offset: off, Position: h.pos,
			Length: int64(h.length), Records: int(h.records), Synced: h.synced,
		}
		if h.flags&groupClosing != 0 {
			pending[0].Kind = ScanClosing
		}
		for _, r := range pending {
			if err := each(r); err != nil {
				return err
			}
		}
		end = s.start + Position(off) + Position(h.length)
		off = roundUp(off + int64(h.length))
	}
}

// showCut tells of a torn group behind the synced end at which the next file
// was begun: an earlier start has cut it.
func (s *scanner) showCut(off int64, each func(ScanRecord) error) error {
	_, d, err := s.group(off, func(*record, int64) error { return nil })
	if err != nil || d == nil || !d.header {
		return err
	}
	return each(ScanRecord{
		Kind: ScanDamage, File: s.name, Use: s.use, Offset: d.off, Position: s.start + Position(d.off),
		Problem: d.String(), Torn: true,
	})
}

// showDamage reports damage at off unless it is simply the end of the file's
// groups, and returns where the next group is, if there is one.
func (s *scanner) showDamage(off int64, d *damage, last bool, each func(ScanRecord) error) (next int64, torn bool, err error) {
	next, _, found, err := s.findHeader(off, blockSize)
	if err != nil {
		return 0, false, err
	}
	if !found && !d.header {
		return 0, false, nil
	}
	torn = last && !found
	return next, torn, each(ScanRecord{
		Kind: ScanDamage, File: s.name, Use: s.use, Offset: d.off, Position: s.start + Position(d.off),
		Problem: d.String(), Torn: torn,
	})
}

// show describes one record.
func (s *scanner) show(r *record, at int64) ScanRecord {
	out := ScanRecord{
		Kind: ScanKind(r.kind.String()), File: s.name, Use: s.use, Offset: at, Position: s.start + Position(at),
		Length: r.size(), Shard: r.shard, Index: r.index, Term: r.term, Type: r.entryType,
		DescriptorLen: len(r.desc), PayloadLen: int(r.payloadLen),
		Copy: r.flags&flagCopy != 0, Staged: r.flags&flagStaged != 0, Install: r.flags&flagInstall != 0,
	}
	switch r.kind {
	case kindHard:
		if h, ok := r.hard(); ok {
			out.Hard = &h
		}
	case kindPointer:
		if p, ok := r.pointer(); ok {
			out.Snapshot = &p
		}
	}
	return out
}
