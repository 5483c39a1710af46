// Package s3 is the object store adapter for AWS S3 and whatever speaks its
// protocol, by aws-sdk-go-v2.
//
// The library's defaults are not used where they cost or break: payloads are
// unsigned and carry a CRC32C header instead (signing reads and hashes every
// body once more, at 1.4 GB/s); no trailing checksums (some stores keep their
// framing as content); no validation of answers to ranged GETs (some stores
// send the whole object's checksum with a part); no retries (package remote
// has them).
package s3

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/aws/smithy-go"

	"thermocline/tiering/object"
	"thermocline/tiering/object/remote"
)

// Config names a bucket.
type Config struct {
	Bucket string
	// Prefix is put before every key; empty for none.
	Prefix string
	// Region is asked of the environment and the shared config when empty, and
	// is us-east-1 when they do not know, which other stores than AWS accept.
	Region string
	// Endpoint is the store's URL; empty is AWS.
	Endpoint string
	// PathStyle puts the bucket into the path rather than the host name.
	PathStyle bool
	// NoChecksum sends no CRC32C with uploads.
	NoChecksum bool
	// AccessKey and SecretKey; empty: the SDK's usual places (environment,
	// shared config, the machine's role).
	AccessKey, SecretKey string
}

const defaultRegion = "us-east-1"

// Open returns the store. It sends no request to the bucket.
func Open(ctx context.Context, c Config, o object.Options) (*remote.Store, error) {
	transport := remote.Transport(o)
	load := []func(*config.LoadOptions) error{}
	if c.Region != "" {
		load = append(load, config.WithRegion(c.Region))
	}
	if c.AccessKey != "" {
		load = append(load, config.WithCredentialsProvider(credentials.NewStaticCredentialsProvider(c.AccessKey, c.SecretKey, "")))
	}
	cfg, err := config.LoadDefaultConfig(ctx, load...)
	if err != nil {
		return nil, fmt.Errorf("s3: AWS configuration: %w", err)
	}
	if cfg.Region == "" {
		cfg.Region = defaultRegion
	}
	api := s3.NewFromConfig(cfg, func(so *s3.Options) {
		so.HTTPClient = &http.Client{Transport: transport}
		so.Retryer = aws.NopRetryer{}
		so.RequestChecksumCalculation = aws.RequestChecksumCalculationWhenRequired
		so.ResponseChecksumValidation = aws.ResponseChecksumValidationWhenRequired
		so.UsePathStyle = c.PathStyle
		so.DisableLogOutputChecksumValidationSkipped = true
		if c.Endpoint != "" {
			so.BaseEndpoint = aws.String(c.Endpoint)
		}
	})
	cl := &client{api: api, bucket: c.Bucket, checksum: !c.NoChecksum, name: name(c)}
	return remote.New(remote.Config{Client: cl, Prefix: c.Prefix, Verify: c.NoChecksum, Transport: transport, Options: o}), nil
}

func name(c Config) string {
	n := "s3://" + c.Bucket
	if c.Prefix != "" {
		n += "/" + strings.Trim(c.Prefix, "/")
	}
	if c.Endpoint != "" {
		n += " at " + c.Endpoint
	}
	return n
}

// client implements remote.Client.
type client struct {
	api      *s3.Client
	bucket   string
	checksum bool
	name     string
}

func (c *client) String() string { return c.name }

// failed makes a remote.Failure of an answer, and leaves other errors alone.
func failed(err error) error {
	if err == nil {
		return nil
	}
	f := &remote.Failure{Err: err}
	var answer *awshttp.ResponseError
	if errors.As(err, &answer) {
		f.Status = answer.HTTPStatusCode()
	}
	var api smithy.APIError
	if errors.As(err, &api) {
		f.Code = api.ErrorCode()
		f.Err = errors.New(api.ErrorMessage())
	}
	if f.Status == 0 && f.Code == "" {
		if strings.Contains(err.Error(), "get credentials") || strings.Contains(err.Error(), "refresh cached credentials") {
			return &remote.Failure{Code: "InvalidAccessKeyId", Err: fmt.Errorf("no credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY: %w", err)}
		}
		return err
	}
	return f
}

// crcHeader is S3's form of a checksum: base64 of the big-endian bytes.
func crcHeader(crc uint32) *string {
	return aws.String(base64.StdEncoding.EncodeToString(binary.BigEndian.AppendUint32(nil, crc)))
}

func parseCRC(h *string) (uint32, bool) {
	if h == nil {
		return 0, false
	}
	b, err := base64.StdEncoding.DecodeString(*h) // "…-3", the checksum of three checksums, is refused here
	if err != nil || len(b) != 4 {
		return 0, false
	}
	return binary.BigEndian.Uint32(b), true
}

// unsigned replaces the payload's hash in the signature, which the SDK would
// compute by reading the body once more.
func unsigned(o *s3.Options) {
	o.APIOptions = append(o.APIOptions, v4.SwapComputePayloadSHA256ForUnsignedPayloadMiddleware)
}

func anyETag(ifAbsent bool) *string {
	if !ifAbsent {
		return nil
	}
	return aws.String("*")
}

// Put implements remote.Client.
func (c *client) Put(ctx context.Context, key string, body remote.Part, ifAbsent bool) error {
	in := &s3.PutObjectInput{Bucket: &c.bucket, Key: &key, Body: body, ContentLength: &body.Size, IfNoneMatch: anyETag(ifAbsent)}
	if c.checksum {
		in.ChecksumCRC32C = crcHeader(body.CRC32C)
	}
	_, err := c.api.PutObject(ctx, in, unsigned)
	return failed(err)
}

// Get implements remote.Client.
func (c *client) Get(ctx context.Context, key string, offset, n int64, etag string) (*remote.Response, error) {
	in := &s3.GetObjectInput{Bucket: &c.bucket, Key: &key, Range: aws.String(fmt.Sprintf("bytes=%d-%d", offset, offset+n-1))}
	if etag != "" {
		in.IfMatch = &etag
	}
	out, err := c.api.GetObject(ctx, in)
	if err != nil {
		return nil, failed(err)
	}
	return &remote.Response{Body: out.Body, Range: aws.ToString(out.ContentRange), Length: aws.ToInt64(out.ContentLength), ETag: aws.ToString(out.ETag)}, nil
}

// Head implements remote.Client.
func (c *client) Head(ctx context.Context, key string) (object.Info, error) {
	in := &s3.HeadObjectInput{Bucket: &c.bucket, Key: &key}
	if c.checksum {
		in.ChecksumMode = types.ChecksumModeEnabled
	}
	out, err := c.api.HeadObject(ctx, in)
	if err != nil {
		return object.Info{}, failed(err)
	}
	info := object.Info{Size: aws.ToInt64(out.ContentLength), ModifiedUnixMilli: aws.ToTime(out.LastModified).UnixMilli()}
	if out.ChecksumType != types.ChecksumTypeComposite {
		info.CRC32C, info.HasCRC = parseCRC(out.ChecksumCRC32C)
	}
	return info, nil
}

// ListPage implements remote.Client.
func (c *client) ListPage(ctx context.Context, prefix, after string, n int) ([]object.Info, error) {
	in := &s3.ListObjectsV2Input{Bucket: &c.bucket, MaxKeys: aws.Int32(int32(n))}
	if prefix != "" {
		in.Prefix = &prefix
	}
	if after != "" {
		in.StartAfter = &after
	}
	out, err := c.api.ListObjectsV2(ctx, in)
	if err != nil {
		return nil, failed(err)
	}
	page := make([]object.Info, len(out.Contents))
	for i, o := range out.Contents {
		page[i] = object.Info{Key: aws.ToString(o.Key), Size: aws.ToInt64(o.Size), ModifiedUnixMilli: aws.ToTime(o.LastModified).UnixMilli()}
	}
	return page, nil
}

// DeleteBatch implements remote.Client.
func (c *client) DeleteBatch(ctx context.Context, keys []string) (map[string]error, error) {
	ids := make([]types.ObjectIdentifier, len(keys))
	for i := range keys {
		ids[i].Key = &keys[i]
	}
	out, err := c.api.DeleteObjects(ctx, &s3.DeleteObjectsInput{Bucket: &c.bucket, Delete: &types.Delete{Objects: ids, Quiet: aws.Bool(true)}})
	if err != nil {
		return nil, failed(err)
	}
	errs := map[string]error{}
	for _, e := range out.Errors {
		errs[aws.ToString(e.Key)] = &remote.Failure{Code: aws.ToString(e.Code), Err: errors.New(aws.ToString(e.Message))}
	}
	return errs, nil
}

// CreateUpload implements remote.Client. The checksum's algorithm and type are
// named at once: some stores refuse parts' checksums otherwise.
func (c *client) CreateUpload(ctx context.Context, key string) (string, error) {
	in := &s3.CreateMultipartUploadInput{Bucket: &c.bucket, Key: &key}
	if c.checksum {
		in.ChecksumAlgorithm = types.ChecksumAlgorithmCrc32c
		in.ChecksumType = types.ChecksumTypeFullObject
	}
	out, err := c.api.CreateMultipartUpload(ctx, in)
	if err != nil {
		return "", failed(err)
	}
	return aws.ToString(out.UploadId), nil
}

// UploadPart implements remote.Client.
func (c *client) UploadPart(ctx context.Context, key, id string, number int, body remote.Part) (remote.Uploaded, error) {
	in := &s3.UploadPartInput{Bucket: &c.bucket, Key: &key, UploadId: &id, PartNumber: aws.Int32(int32(number)), Body: body, ContentLength: &body.Size}
	if c.checksum {
		in.ChecksumCRC32C = crcHeader(body.CRC32C)
	}
	out, err := c.api.UploadPart(ctx, in, unsigned)
	if err != nil {
		return remote.Uploaded{}, failed(err)
	}
	return remote.Uploaded{Number: number, ETag: aws.ToString(out.ETag), CRC32C: body.CRC32C}, nil
}

// CompleteUpload implements remote.Client.
func (c *client) CompleteUpload(ctx context.Context, key, id string, parts []remote.Uploaded, crc uint32, ifAbsent bool) error {
	done := make([]types.CompletedPart, len(parts))
	for i, p := range parts {
		done[i] = types.CompletedPart{PartNumber: aws.Int32(int32(p.Number)), ETag: aws.String(p.ETag)}
		if c.checksum {
			done[i].ChecksumCRC32C = crcHeader(p.CRC32C)
		}
	}
	in := &s3.CompleteMultipartUploadInput{Bucket: &c.bucket, Key: &key, UploadId: &id, IfNoneMatch: anyETag(ifAbsent),
		MultipartUpload: &types.CompletedMultipartUpload{Parts: done}}
	if c.checksum {
		in.ChecksumCRC32C, in.ChecksumType = crcHeader(crc), types.ChecksumTypeFullObject
	}
	_, err := c.api.CompleteMultipartUpload(ctx, in)
	return failed(err)
}

// AbortUpload implements remote.Client.
func (c *client) AbortUpload(ctx context.Context, key, id string) error {
	_, err := c.api.AbortMultipartUpload(ctx, &s3.AbortMultipartUploadInput{Bucket: &c.bucket, Key: &key, UploadId: &id})
	return failed(err)
}

// ListUploads implements remote.Client.
func (c *client) ListUploads(ctx context.Context, prefix string) ([]remote.Upload, error) {
	in := &s3.ListMultipartUploadsInput{Bucket: &c.bucket}
	if prefix != "" {
		in.Prefix = &prefix
	}
	var all []remote.Upload
	for {
		out, err := c.api.ListMultipartUploads(ctx, in)
		if err != nil {
			return nil, failed(err)
		}
		for _, u := range out.Uploads {
			all = append(all, remote.Upload{Key: aws.ToString(u.Key), ID: aws.ToString(u.UploadId), Begun: aws.ToTime(u.Initiated)})
		}
		if !aws.ToBool(out.IsTruncated) {
			return all, nil
		}
		in.KeyMarker, in.UploadIdMarker = out.NextKeyMarker, out.NextUploadIdMarker
	}
}
