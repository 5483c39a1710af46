package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"thermocline/tiering/format"
	"thermocline/tiering/object"
	"thermocline/tiering/object/storeurl"
)

const (
	// inspectConns bounds connections to the store: looking must not hurt who works.
	inspectConns = 8
	// fetchChunk is how much of an object one GET of a download asks for.
	fetchChunk = 4 << 20
	// clustersMax bounds the clusters that are looked for in one bucket.
	clustersMax = 1000
)

// bucket is where inspect finds objects.
type bucket struct{ url, cluster string }

func (b *bucket) addFlags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&b.url, "store", "", "the bucket: a broker's store.url (s3://…, minio://…, file:///…)")
	cmd.Flags().StringVar(&b.cluster, "cluster", "", "cluster id, if the bucket holds several")
}

func (b *bucket) open(ctx context.Context) (object.Store, error) {
	target, err := storeurl.Parse(b.url)
	if err == nil && target.File != "" {
		err = readsAsStore(target.File)
	}
	if err != nil {
		return nil, fmt.Errorf("--store: %w", err)
	}
	s, err := target.Open(ctx, object.Options{MaxConns: inspectConns})
	if err != nil {
		return nil, fmt.Errorf("--store: %w", err)
	}
	return s, nil
}

// readsAsStore refuses a directory that is no file:// store: opened as one, it
// would be made one, and look empty.
func readsAsStore(dir string) error {
	if _, err := os.Stat(dir); err != nil {
		return err
	}
	served := servedSegment(dir)
	if _, err := os.Stat(filepath.Join(dir, serverMark)); err == nil || served != "" {
		text := fmt.Sprintf("%s is the directory of an S3 server (thermocline dev, thermocline s3), and no file:// store: "+
			"while the server runs, write --store minio://host:port/bucket/prefix (for dev: minio://127.0.0.1:9645/thermocline/cluster, with MINIO_ACCESS_KEY and MINIO_SECRET_KEY set)", dir)
		if served != "" {
			text += "; a segment can be read without it: thermocline inspect segment " + served
		}
		return errors.New(text)
	}
	if _, err := os.Stat(filepath.Join(dir, ".uploads")); err != nil {
		return fmt.Errorf("%s is no file:// store: a broker that has it as its store.url makes a folder .uploads in it, which is missing", dir)
	}
	return nil
}

// serverMark is a folder that the S3 server of a local stack makes.
const serverMark = ".vgwlocks"

// walkMax bounds the search for what an S3 server keeps.
const walkMax = 100_000

// servedSegment finds a segment under its plain name; in a file:// store names
// of objects end in .o.
func servedSegment(dir string) string {
	found, seen := "", 0
	_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error { // what cannot be read is not the answer
		seen++
		if err == nil && d.Type().IsRegular() && strings.HasSuffix(path, ".seg") {
			found = path
		}
		if found != "" || seen > walkMax {
			return fs.SkipAll
		}
		return nil
	})
	return found
}

// find returns the cluster to look at: the one named, or the only one.
func (b *bucket) find(ctx context.Context, s object.Store) (string, error) {
	if b.cluster != "" {
		return b.cluster, nil
	}
	all, err := clusters(ctx, s)
	switch {
	case err != nil:
		return "", err
	case len(all) == 0:
		return "", fmt.Errorf("%s holds no segment, run or fence object of a cluster", s)
	case len(all) > 1:
		return "", fmt.Errorf("%s holds %d clusters: choose one with --cluster (%s)", s, len(all), strings.Join(all, ", "))
	}
	return all[0], nil
}

// clusters lists the clusters with objects in the bucket, with one page of
// LIST for each: a cluster id is a key's first part.
func clusters(ctx context.Context, s object.Store) ([]string, error) {
	var out []string
	for after := ""; len(out) < clustersMax; {
		first := ""
		if err := s.List(ctx, "", after, func(i object.Info) bool { first = i.Key; return false }); err != nil {
			return nil, err
		}
		if first == "" {
			return out, nil
		}
		id, rest, ok := strings.Cut(first, "/")
		if !ok {
			after = first
			continue
		}
		if _, err := format.ParseName(rest); err == nil {
			out = append(out, id)
		}
		after = id + "0" // '0' follows '/': behind everything of this cluster
	}
	return out, nil
}

// key completes a row's key with the cluster; a whole key stays as it is.
func (b *bucket) key(ctx context.Context, s object.Store, arg string) (string, error) {
	if _, err := format.ParseName(arg); err != nil {
		return arg, nil
	}
	cluster, err := b.find(ctx, s)
	if err != nil {
		return "", err
	}
	return format.ObjectKey(cluster, arg), nil
}

// fetched is a whole object or file to read.
type fetched struct {
	*os.File
	name string
	size int64
	temp bool
}

// Close closes it, and removes what was downloaded.
func (f *fetched) Close() error {
	err := f.File.Close()
	if f.temp {
		err = errors.Join(err, os.Remove(f.File.Name()))
	}
	return err
}

// fetch opens a file of this machine, or downloads an object into a temporary
// file and compares it with the checksum that the store has.
func (b *bucket) fetch(ctx context.Context, arg string) (*fetched, error) {
	if b.url == "" {
		return openLocal(arg)
	}
	s, err := b.open(ctx)
	if err != nil {
		return nil, err
	}
	defer object.Close(s)
	key, err := b.key(ctx, s, arg)
	if err != nil {
		return nil, err
	}
	info, err := s.Head(ctx, key)
	if err != nil {
		return nil, err
	}
	tmp, err := os.CreateTemp("", "thermocline-inspect-*")
	if err != nil {
		return nil, err
	}
	f := &fetched{File: tmp, name: key, size: info.Size, temp: true}
	if err := download(ctx, s, key, info, tmp); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

func openLocal(path string) (*fetched, error) {
	file, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("%w (to read an object, name its bucket with --store)", err)
	}
	if err != nil {
		return nil, err
	}
	info, err := file.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is not a file", path)
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return &fetched{File: file, name: path, size: info.Size()}, nil
}

func download(ctx context.Context, s object.Store, key string, info object.Info, to io.Writer) error {
	buf := make([]byte, min(fetchChunk, max(info.Size, 1)))
	var crc uint32
	for at := int64(0); at < info.Size; {
		n, err := s.GetRange(ctx, key, at, buf[:min(int64(len(buf)), info.Size-at)])
		if err != nil {
			return err
		}
		if n == 0 {
			return fmt.Errorf("%s: expected %d bytes, found %d: %w", key, info.Size, at, object.ErrCorrupt)
		}
		crc = object.UpdateCRC32C(crc, buf[:n])
		if _, err := to.Write(buf[:n]); err != nil {
			return err
		}
		at += int64(n)
	}
	if info.HasCRC && crc != info.CRC32C {
		return fmt.Errorf("%s: expected crc %08x as the store says, found %08x: %w", key, info.CRC32C, crc, object.ErrCorrupt)
	}
	return nil
}

// fileTrailer begins the trailer of objects in a file:/// store.
var fileTrailer = []byte("TCOBJECT")

const fileTrailerLen = 32

// withoutTrailer is the size of the object in a file: a file:/// store keeps a
// trailer of its own behind it.
func (f *fetched) withoutTrailer() int64 {
	p := make([]byte, len(fileTrailer))
	if f.size < fileTrailerLen {
		return f.size
	}
	if _, err := f.ReadAt(p, f.size-fileTrailerLen); err != nil || !bytes.Equal(p, fileTrailer) {
		return f.size
	}
	return f.size - fileTrailerLen
}
