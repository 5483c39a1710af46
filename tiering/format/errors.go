package format

import (
	"errors"
	"fmt"
	"hash/crc32"
)

// Why bytes are refused; every error of this package's parsers wraps one.
var (
	// ErrCorrupt: a checksum, length, order or count is wrong.
	ErrCorrupt = errors.New("format: damaged")
	// ErrVersion: written by a newer version than this binary knows.
	ErrVersion = errors.New("format: unknown version")
	// ErrName: not the name of an object of ours.
	ErrName = errors.New("format: not an object name of ours")
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Checksum is the CRC32C of p.
func Checksum(p []byte) uint32 { return crc32.Checksum(p, castagnoli) }

// UpdateChecksum extends a CRC32C by p.
func UpdateChecksum(crc uint32, p []byte) uint32 { return crc32.Update(crc, castagnoli, p) }

func corrupt(what string, args ...any) error {
	return fmt.Errorf("%s: %w", fmt.Sprintf(what, args...), ErrCorrupt)
}

func checkMagic(what string, p []byte, magic string) error {
	if len(p) < len(magic) || string(p[:len(magic)]) != magic {
		return corrupt("%s: expected magic %q, found %q", what, magic, p[:min(len(p), len(magic))])
	}
	return nil
}

func checkVersion(what string, found, known uint8) error {
	if found == 0 || found > known {
		return fmt.Errorf("%s: expected version 1 to %d, found %d: %w", what, known, found, ErrVersion)
	}
	return nil
}

func checkCRC(what string, p []byte, stored uint32) error {
	if found := Checksum(p); found != stored {
		return corrupt("%s: expected crc %08x, found %08x", what, stored, found)
	}
	return nil
}
