package object

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// KeyBytesMax is S3's limit of 1,024 less room for the prefix of the URL.
const KeyBytesMax = 768

// CheckKey says why a key is not one that every store takes: MinIO refuses
// empty and dot segments, a file system cannot have them, and XML listings
// cannot carry control characters.
func CheckKey(key string) error {
	switch {
	case key == "":
		return errors.New("the key is empty")
	case len(key) > KeyBytesMax:
		return fmt.Errorf("the key has %d bytes, more than %d", len(key), KeyBytesMax)
	case !utf8.ValidString(key):
		return errors.New("the key is not UTF-8")
	}
	for segment := range strings.SplitSeq(key, "/") {
		if segment == "" || segment == "." || segment == ".." {
			return fmt.Errorf("the key has the segment %q", segment)
		}
	}
	for _, r := range key {
		if r < 0x20 || r == 0x7f || r == '\\' || r == utf8.RuneError || r == 0xfffe || r == 0xffff {
			return fmt.Errorf("the key has the character %q", r)
		}
	}
	return nil
}
