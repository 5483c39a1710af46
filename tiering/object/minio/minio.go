// Package minio is the object store adapter for MinIO and whatever speaks S3,
// by minio-go.
//
// Payloads are unsigned and carry a CRC32C header, trailing checksums are off
// (only MinIO itself takes them without TLS), the library's retries are off
// (package remote has them), and no upload is of unknown size. After a failure
// that it deems worth a retry the library still waits up to 0.2 s before it
// reports it, which adds to the backoff.
package minio

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"thermocline/tiering/object"
	"thermocline/tiering/object/remote"
)

// Config names a bucket.
type Config struct {
	// Host is host:port of the server.
	Host   string
	Bucket string
	// Prefix is put before every key; empty for none.
	Prefix string
	// Secure speaks TLS.
	Secure bool
	// Region is us-east-1 if empty, which is MinIO's own default.
	Region string
	// NoChecksum sends no CRC32C with uploads.
	NoChecksum bool
	// AccessKey and SecretKey must be set.
	AccessKey, SecretKey string
}

const defaultRegion = "us-east-1" // named, so that the library does not ask the server

const checksumHeader = "X-Amz-Checksum-Crc32c"

// Open returns the store. It sends no request.
func Open(c Config, o object.Options) (*remote.Store, error) {
	transport := remote.Transport(o)
	if c.Region == "" {
		c.Region = defaultRegion
	}
	api, err := minio.New(c.Host, &minio.Options{
		Creds:      credentials.NewStaticV4(c.AccessKey, c.SecretKey, ""),
		Secure:     c.Secure,
		Transport:  transport,
		Region:     c.Region,
		MaxRetries: 1,
	})
	if err != nil {
		return nil, fmt.Errorf("minio: %w", err)
	}
	name := "minio://" + c.Host + "/" + c.Bucket
	if c.Prefix != "" {
		name += "/" + strings.Trim(c.Prefix, "/")
	}
	cl := &client{api: minio.Core{Client: api}, bucket: c.Bucket, checksum: !c.NoChecksum, name: name}
	return remote.New(remote.Config{Client: cl, Prefix: c.Prefix, Verify: c.NoChecksum, Transport: transport, Options: o}), nil
}

// client implements remote.Client.
type client struct {
	api      minio.Core
	bucket   string
	checksum bool
	name     string
}

func (c *client) String() string { return c.name }

// failed makes a remote.Failure of an answer, and leaves other errors alone.
func failed(err error) error {
	var answer minio.ErrorResponse
	if errors.As(err, &answer) {
		return &remote.Failure{Status: answer.StatusCode, Code: answer.Code, Err: errors.New(answer.Message)}
	}
	return err
}

func crcHeader(crc uint32) string {
	return base64.StdEncoding.EncodeToString(binary.BigEndian.AppendUint32(nil, crc))
}

func parseCRC(h string) (uint32, bool) {
	b, err := base64.StdEncoding.DecodeString(h) // "…-3", the checksum of three checksums, is refused here
	if err != nil || len(b) != 4 {
		return 0, false
	}
	return binary.BigEndian.Uint32(b), true
}

// put returns the options of an upload; headers that begin with x-amz-checksum-
// go out as they are.
func (c *client) put(headers map[string]string, ifAbsent bool) minio.PutObjectOptions {
	o := minio.PutObjectOptions{DisableContentSha256: true}
	if c.checksum {
		o.UserMetadata = headers
	}
	if ifAbsent {
		o.SetMatchETagExcept("*")
	}
	return o
}

// Put implements remote.Client.
func (c *client) Put(ctx context.Context, key string, body remote.Part, ifAbsent bool) error {
	o := c.put(map[string]string{checksumHeader: crcHeader(body.CRC32C)}, ifAbsent)
	_, err := c.api.PutObject(ctx, c.bucket, key, body, body.Size, "", "", o)
	return failed(err)
}

// Get implements remote.Client.
func (c *client) Get(ctx context.Context, key string, offset, n int64, etag string) (*remote.Response, error) {
	o := minio.GetObjectOptions{}
	if err := o.SetRange(offset, offset+n-1); err != nil {
		return nil, err
	}
	if etag != "" {
		if err := o.SetMatchETag(etag); err != nil {
			return nil, err
		}
	}
	body, info, header, err := c.api.GetObject(ctx, c.bucket, key, o)
	if err != nil {
		return nil, failed(err)
	}
	return &remote.Response{Body: body, Range: header.Get("Content-Range"), Length: info.Size, ETag: info.ETag}, nil
}

// Head implements remote.Client.
func (c *client) Head(ctx context.Context, key string) (object.Info, error) {
	stat, err := c.api.StatObject(ctx, c.bucket, key, minio.StatObjectOptions{Checksum: c.checksum})
	if err != nil {
		return object.Info{}, failed(err)
	}
	info := object.Info{Size: stat.Size, ModifiedUnixMilli: stat.LastModified.UnixMilli()}
	if stat.ChecksumMode != "COMPOSITE" {
		info.CRC32C, info.HasCRC = parseCRC(stat.ChecksumCRC32C)
	}
	return info, nil
}

// ListPage implements remote.Client. The library's own paging is stopped after
// the page, so that the next one is an attempt of its own.
func (c *client) ListPage(ctx context.Context, prefix, after string, n int) ([]object.Info, error) {
	owner := false
	page := make([]object.Info, 0, n)
	for o := range c.api.ListObjectsIter(ctx, c.bucket, minio.ListObjectsOptions{
		Prefix: prefix, Recursive: true, MaxKeys: n, StartAfter: after, FetchOwner: &owner,
	}) {
		if o.Err != nil {
			return nil, failed(o.Err)
		}
		page = append(page, object.Info{Key: o.Key, Size: o.Size, ModifiedUnixMilli: o.LastModified.UnixMilli()})
		if len(page) == n {
			break
		}
	}
	return page, ctx.Err() // the library ends a listing silently when the context has ended
}

// DeleteBatch implements remote.Client.
func (c *client) DeleteBatch(ctx context.Context, keys []string) (map[string]error, error) {
	results, err := c.api.RemoveObjectsWithIter(ctx, c.bucket, func(yield func(minio.ObjectInfo) bool) {
		for _, key := range keys {
			if !yield(minio.ObjectInfo{Key: key}) {
				return
			}
		}
	}, minio.RemoveObjectsOptions{})
	if err != nil {
		return nil, failed(err)
	}
	errs := map[string]error{}
	for r := range results {
		if r.Err == nil {
			continue
		}
		f := &remote.Failure{}
		if !errors.As(failed(r.Err), &f) || f.Status != 0 || r.ObjectName == "" {
			return nil, failed(r.Err) // of the request, given to every key
		}
		errs[r.ObjectName] = f
	}
	return errs, ctx.Err()
}

// CreateUpload implements remote.Client. The checksum's algorithm and type are
// named at once: some stores refuse parts' checksums otherwise.
func (c *client) CreateUpload(ctx context.Context, key string) (string, error) {
	id, err := c.api.NewMultipartUpload(ctx, c.bucket, key, c.put(map[string]string{
		"X-Amz-Checksum-Algorithm": "CRC32C", "X-Amz-Checksum-Type": "FULL_OBJECT",
	}, false))
	return id, failed(err)
}

// UploadPart implements remote.Client.
func (c *client) UploadPart(ctx context.Context, key, id string, number int, body remote.Part) (remote.Uploaded, error) {
	o := minio.PutObjectPartOptions{DisableContentSha256: true}
	if c.checksum {
		o.CustomHeader = http.Header{checksumHeader: {crcHeader(body.CRC32C)}}
	}
	part, err := c.api.PutObjectPart(ctx, c.bucket, key, id, number, body, body.Size, o)
	if err != nil {
		return remote.Uploaded{}, failed(err)
	}
	return remote.Uploaded{Number: number, ETag: part.ETag, CRC32C: body.CRC32C}, nil
}

// CompleteUpload implements remote.Client.
func (c *client) CompleteUpload(ctx context.Context, key, id string, parts []remote.Uploaded, crc uint32, ifAbsent bool) error {
	done := make([]minio.CompletePart, len(parts))
	for i, p := range parts {
		done[i] = minio.CompletePart{PartNumber: p.Number, ETag: p.ETag}
		if c.checksum {
			done[i].ChecksumCRC32C = crcHeader(p.CRC32C)
		}
	}
	o := c.put(map[string]string{checksumHeader: crcHeader(crc), "X-Amz-Checksum-Type": "FULL_OBJECT"}, ifAbsent)
	_, err := c.api.CompleteMultipartUpload(ctx, c.bucket, key, id, done, o)
	return failed(err)
}

// AbortUpload implements remote.Client.
func (c *client) AbortUpload(ctx context.Context, key, id string) error {
	return failed(c.api.AbortMultipartUpload(ctx, c.bucket, key, id))
}

// ListUploads implements remote.Client.
func (c *client) ListUploads(ctx context.Context, prefix string) ([]remote.Upload, error) {
	ctx, cancel := context.WithCancel(ctx) // ends the library's goroutine when we stop early
	defer cancel()
	var all []remote.Upload
	for u := range c.api.ListIncompleteUploads(ctx, c.bucket, prefix, true) {
		if u.Err != nil {
			return nil, failed(u.Err)
		}
		all = append(all, remote.Upload{Key: u.Key, ID: u.UploadID, Begun: u.Initiated})
	}
	return all, ctx.Err()
}
