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
	// Torn: nothing later names a synced end above it, so recovery cuts it.
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
		if err := scanFile(fs, dir, liveName(use), i == len(live)-1, each); err != nil {
			return err
		}
	}
	return nil
}

func scanFile(fs vfs.FS, dir, name string, last bool, each func(ScanRecord) error) (err error) {
	file, err := fs.Open(path.Join(dir, name))
	if err != nil {
		return fmt.Errorf("wal: open: %w", err)
	}
	defer func() {
		if cerr := file.Close(); err == nil {
			err = cerr
		}
	}()
	s, d, err := openScanner(file, name)
	if err != nil {
		return err
	}
	if d != nil {
		return each(ScanRecord{Kind: ScanDamage, File: name, Problem: d.String()})
	}
	if err := each(ScanRecord{
		Kind: ScanFile, File: name, Use: s.head.use, Position: s.head.start,
		Length: s.head.length, Synced: s.head.synced,
	}); err != nil {
		return err
	}
	return s.scan(last, each)
}

// String puts what was expected and found into words.
func (d *damage) String() string {
	return fmt.Sprintf("at offset %d: expected %s, found %s", d.off, d.expected, d.found)
}

func (s *scanner) scan(last bool, each func(ScanRecord) error) error {
	off := int64(blockSize)
	for {
		pending := []ScanRecord{{}}
		h, d, err := s.group(off, func(r *record, at int64) error {
			pending = append(pending, s.show(r, at))
			return nil
		})
		if err != nil {
			return err
		}
		if d != nil {
			next, torn, err := s.showDamage(off, d, last, each)
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
		off = roundUp(off + int64(h.length))
	}
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
