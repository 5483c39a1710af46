package file

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"thermocline/tiering/object"
)

const (
	objectSuffix = ".o"
	hexDigits    = "0123456789ABCDEF"
	// nameBytesMax is what file systems take in one name.
	nameBytesMax = 255
)

// path is the file of an object.
func (s *Store) path(key string) (string, error) {
	var b strings.Builder
	b.WriteString(s.dir)
	rest := key
	for {
		segment, after, more := strings.Cut(rest, "/")
		name := fileName(segment)
		if more {
			name = folderName(segment)
		}
		if len(name) > nameBytesMax {
			return "", fmt.Errorf("the segment %.40q... is longer than a file name may be", segment)
		}
		b.WriteByte(filepath.Separator)
		b.WriteString(name)
		if !more {
			return b.String(), nil
		}
		rest = after
	}
}

func fileName(segment string) string { return escape(segment) + objectSuffix }

func folderName(segment string) string {
	name := escape(segment)
	if stem, ok := strings.CutSuffix(name, objectSuffix); ok {
		return stem + "%2Eo"
	}
	return name
}

func plain(c byte, first bool) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' ||
		c == '.' && !first || strings.IndexByte("-_=+,@", c) >= 0
}

func escape(segment string) string {
	var b strings.Builder
	for i := range len(segment) {
		if c := segment[i]; plain(c, i == 0) {
			b.WriteByte(c)
		} else {
			b.WriteByte('%')
			b.WriteByte(hexDigits[c>>4])
			b.WriteByte(hexDigits[c&15])
		}
	}
	return b.String()
}

// unescape reports false for a name that no segment has.
func unescape(name string) (string, bool) {
	out := make([]byte, 0, len(name))
	for i := 0; i < len(name); i++ {
		if name[i] != '%' {
			out = append(out, name[i])
			continue
		}
		if i+2 >= len(name) {
			return "", false
		}
		hi, lo := strings.IndexByte(hexDigits, name[i+1]), strings.IndexByte(hexDigits, name[i+2])
		if hi < 0 || lo < 0 {
			return "", false
		}
		out = append(out, byte(hi<<4|lo))
		i += 2
	}
	return string(out), true
}

// listed is an entry of a folder: a key, or a folder's keys' common prefix.
type listed struct {
	key    string
	folder string // path; empty for an object
}

// List implements object.Store. Keys that appear or vanish while it runs may
// or may not be seen.
func (s *Store) List(ctx context.Context, prefix, after string, fn func(object.Info) bool) error {
	_, err := s.walk(ctx, s.dir, "", prefix, after, fn)
	return err
}

// walk lists one folder, whose keys begin with base; going is false when fn
// has had enough.
func (s *Store) walk(ctx context.Context, folder, base, prefix, after string, fn func(object.Info) bool) (going bool, err error) {
	if err := object.Ended(ctx, "list", prefix); err != nil {
		return false, err
	}
	entries, err := s.read(folder, base)
	if err != nil {
		return false, object.NewError("list", prefix, kind(err, object.ErrNoBucket), err)
	}
	for _, e := range entries {
		if e.folder != "" {
			// Neither its keys nor what is before them can be wanted.
			if !strings.HasPrefix(e.key, prefix) && !strings.HasPrefix(prefix, e.key) || after > e.key && !strings.HasPrefix(after, e.key) {
				continue
			}
			if going, err := s.walk(ctx, e.folder, e.key, prefix, after, fn); err != nil || !going {
				return going, err
			}
			continue
		}
		if e.key <= after || !strings.HasPrefix(e.key, prefix) {
			continue
		}
		info, err := s.describe(e.key)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return false, object.NewError("list", e.key, kind(err, object.ErrNotFound), err)
		}
		if !fn(info) {
			return false, nil
		}
	}
	return true, nil
}

// read returns a folder's entries in the byte order of their keys, which is
// that of the whole listing: a folder's keys all begin with its own, slash
// included, so none of its siblings' can lie between them.
func (s *Store) read(folder, base string) ([]listed, error) {
	names, err := os.ReadDir(folder)
	if err != nil {
		if base != "" && (errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR)) {
			return nil, nil // removed by hand meanwhile
		}
		return nil, err
	}
	out := make([]listed, 0, len(names))
	for _, n := range names {
		stem, isObject := strings.CutSuffix(n.Name(), objectSuffix)
		if strings.HasPrefix(n.Name(), ".") || isObject == n.IsDir() {
			continue // our own, or nobody's
		}
		segment, ok := unescape(stem)
		switch {
		case !ok:
		case isObject:
			out = append(out, listed{key: base + segment})
		default:
			out = append(out, listed{key: base + segment + "/", folder: filepath.Join(folder, n.Name())})
		}
	}
	slices.SortFunc(out, func(a, b listed) int { return strings.Compare(a.key, b.key) })
	return out, nil
}

func (s *Store) describe(key string) (object.Info, error) {
	name, err := s.path(key)
	if err != nil {
		return object.Info{}, err
	}
	info, err := os.Lstat(name)
	if err != nil {
		return object.Info{}, err
	}
	return object.Info{Key: key, Size: max(0, info.Size()-trailerBytes), ModifiedUnixMilli: info.ModTime().UnixMilli()}, nil
}
