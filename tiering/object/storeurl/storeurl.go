// Package storeurl opens an object store by its URL:
//
//	s3://bucket/prefix?region=eu-central-1           AWS
//	s3://bucket/prefix?endpoint=https://host:port    whatever speaks S3, by the AWS library
//	minio://host:port/bucket/prefix                  MinIO, or whatever speaks S3
//	file:///directory                                one machine only
//	memory:name                                      one process only, for tests
//
// Settings, after the question mark:
//
//	region=NAME            s3, minio
//	endpoint=URL           s3: another server than AWS
//	path_style=true|false  s3: the bucket in the path; true if there is an endpoint
//	secure=true|false      minio: TLS; false unless the port is 443
//	checksum=crc32c|none   s3, minio: what uploads carry; none for stores that refuse it
//	discard=true keep=N    memory: keep only the last N bytes of each object (benches)
//	latency=30ms bandwidth=80MB connections=8
//	                       all: behave like a store so far away, per connection (benches)
//
// Credentials come from the environment: AWS_ACCESS_KEY_ID and
// AWS_SECRET_ACCESS_KEY (or what else the AWS library knows) for s3;
// MINIO_ACCESS_KEY and MINIO_SECRET_KEY, else MINIO_ROOT_USER and
// MINIO_ROOT_PASSWORD, else the AWS ones, for minio. A minio URL may hold them
// as minio://key:secret@host:port/…; nothing here prints them.
package storeurl

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"thermocline/tiering/object"
	"thermocline/tiering/object/faulty"
	"thermocline/tiering/object/file"
	"thermocline/tiering/object/memory"
	"thermocline/tiering/object/minio"
	"thermocline/tiering/object/s3"
)

// Target is a URL that was understood. Exactly one of the pointers is set.
type Target struct {
	S3     *s3.Config
	MinIO  *minio.Config
	File   string
	Memory *Memory
	// Link slows the store down; zero does not.
	Link faulty.Link
}

// Memory is a store in this process.
type Memory struct {
	Name    string
	Options memory.Options
}

// Open parses the URL and opens the store. It sends no request to the store:
// object.SelfCheck does. Each call makes HTTP connections of its own.
func Open(ctx context.Context, rawURL string, o object.Options) (object.Store, error) {
	t, err := Parse(rawURL)
	if err != nil {
		return nil, err
	}
	return t.Open(ctx, o)
}

// Open opens the store.
func (t *Target) Open(ctx context.Context, o object.Options) (object.Store, error) {
	var s object.Store
	var err error
	switch {
	case t.S3 != nil:
		s, err = s3.Open(ctx, *t.S3, o)
	case t.MinIO != nil:
		c := *t.MinIO
		if err := minioCredentials(&c, os.Getenv); err != nil {
			return nil, err
		}
		s, err = minio.Open(c, o)
	case t.File != "":
		s, err = file.Open(t.File)
	case t.Memory != nil:
		s = memory.Shared(t.Memory.Name, t.Memory.Options)
	}
	if err != nil {
		return nil, err
	}
	if t.Link != (faulty.Link{}) {
		slow := faulty.New(s, 0)
		slow.SetLink(t.Link)
		s = slow
	}
	return s, nil
}

func minioCredentials(c *minio.Config, getenv func(string) string) error {
	for _, names := range [][2]string{
		{"MINIO_ACCESS_KEY", "MINIO_SECRET_KEY"}, {"MINIO_ROOT_USER", "MINIO_ROOT_PASSWORD"}, {"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"},
	} {
		if c.AccessKey != "" {
			return nil
		}
		c.AccessKey, c.SecretKey = getenv(names[0]), getenv(names[1])
		if c.AccessKey != "" && c.SecretKey == "" {
			return fmt.Errorf("store URL: %s is set, but %s is not", names[0], names[1])
		}
	}
	if c.AccessKey == "" {
		return errors.New("store URL: no credentials for MinIO: set MINIO_ACCESS_KEY and MINIO_SECRET_KEY")
	}
	return nil
}

const examples = "write s3://bucket/prefix?region=…, minio://host:port/bucket/prefix or file:///directory"

// settings that each scheme takes, beside those that all do.
var settings = map[string][]string{
	"s3":     {"region", "endpoint", "path_style", "checksum"},
	"minio":  {"region", "secure", "checksum"},
	"file":   {},
	"memory": {"discard", "keep"},
}

var everywhere = []string{"latency", "bandwidth", "connections"}

// Parse understands a URL. Its errors say what to write instead, and hold
// nothing that may be secret.
func Parse(rawURL string) (*Target, error) {
	scheme, _, ok := strings.Cut(rawURL, ":")
	known, isKnown := settings[scheme]
	if !ok || !isKnown {
		return nil, fmt.Errorf("store URL: no known scheme: %s", examples)
	}
	u, err := url.Parse(rawURL)
	if err != nil { // its text holds the URL
		return nil, fmt.Errorf("store URL: %s://… is not a URL (special characters in a secret must be percent-encoded, or take it from the environment): %s", scheme, examples)
	}
	values, err := url.ParseQuery(u.RawQuery)
	if err != nil || u.Fragment != "" {
		return nil, fmt.Errorf("store URL: %s://…: what follows the question mark must be name=value&name=value", scheme)
	}
	q := query{values: values, known: append(slices.Clone(known), everywhere...), scheme: scheme}
	t := &Target{}
	switch scheme {
	case "s3":
		t.S3, err = parseS3(u, &q)
	case "minio":
		t.MinIO, err = parseMinIO(u, &q)
	case "file":
		t.File, err = parseFile(u)
	case "memory":
		t.Memory, err = parseMemory(u, &q)
	}
	if err != nil {
		return nil, err
	}
	t.Link = faulty.Link{FirstByte: q.duration("latency"), BytesPerSecond: q.bytes("bandwidth"), Conns: q.count("connections")}
	if err := q.done(); err != nil {
		return nil, err
	}
	return t, nil
}

var bucketName = regexp.MustCompile(`^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$`)

func checkBucket(bucket, example string) error {
	if bucket == "" {
		return fmt.Errorf("store URL: the bucket is missing: write %s", example)
	}
	if !bucketName.MatchString(bucket) || strings.Contains(bucket, "..") {
		return fmt.Errorf("store URL: %q is no bucket name: 3 to 63 of a-z, 0-9, dots and hyphens", bucket)
	}
	return nil
}

// checkPrefix returns a prefix without slashes around it.
func checkPrefix(path string) (string, error) {
	prefix := strings.Trim(path, "/")
	if prefix == "" {
		return "", nil
	}
	if err := object.CheckKey(prefix); err != nil {
		return "", fmt.Errorf("store URL: prefix %q: %w", prefix, err)
	}
	if len(prefix) > prefixBytesMax {
		return "", fmt.Errorf("store URL: the prefix has %d bytes, more than %d", len(prefix), prefixBytesMax)
	}
	return prefix, nil
}

// prefixBytesMax leaves object.KeyBytesMax of S3's 1,024 bytes for the key.
const prefixBytesMax = 1024 - object.KeyBytesMax - 1

func parseS3(u *url.URL, q *query) (*s3.Config, error) {
	const example = "s3://bucket/prefix?region=…"
	if u.User != nil {
		return nil, fmt.Errorf("store URL: credentials do not belong into an s3 URL: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, and write %s", example)
	}
	if u.Port() != "" {
		return nil, fmt.Errorf("store URL: s3://%s names a host where the bucket should be: write s3://bucket/prefix?endpoint=https://%s", u.Host, u.Host)
	}
	if err := checkBucket(u.Host, example); err != nil {
		return nil, err
	}
	prefix, err := checkPrefix(u.Path)
	if err != nil {
		return nil, err
	}
	c := &s3.Config{Bucket: u.Host, Prefix: prefix, Region: q.text("region"), Endpoint: q.text("endpoint"), NoChecksum: q.noChecksum()}
	if c.Endpoint != "" {
		e, err := url.Parse(c.Endpoint)
		if err != nil || e.Scheme != "http" && e.Scheme != "https" || e.Host == "" || e.User != nil || e.RawQuery != "" || strings.Trim(e.Path, "/") != "" {
			return nil, errors.New("store URL: endpoint: write endpoint=https://host:port")
		}
	}
	c.PathStyle = q.flag("path_style", c.Endpoint != "")
	return c, nil
}

func parseMinIO(u *url.URL, q *query) (*minio.Config, error) {
	const example = "minio://host:port/bucket/prefix"
	if u.Host == "" {
		return nil, fmt.Errorf("store URL: the host is missing: write %s", example)
	}
	if host, port, err := net.SplitHostPort(u.Host); err == nil && (host == "" || port == "") {
		return nil, fmt.Errorf("store URL: %q is no host:port: write %s", u.Host, example)
	}
	bucket, rest, _ := strings.Cut(strings.TrimPrefix(u.Path, "/"), "/")
	if err := checkBucket(bucket, example); err != nil {
		return nil, err
	}
	prefix, err := checkPrefix(rest)
	if err != nil {
		return nil, err
	}
	c := &minio.Config{Host: u.Host, Bucket: bucket, Prefix: prefix, Region: q.text("region"), NoChecksum: q.noChecksum()}
	c.Secure = q.flag("secure", u.Port() == "443")
	if u.User != nil {
		c.AccessKey = u.User.Username()
		c.SecretKey, _ = u.User.Password()
		if c.AccessKey == "" || c.SecretKey == "" {
			return nil, errors.New("store URL: write minio://key:secret@host:port/bucket, or no credentials at all and set MINIO_ACCESS_KEY and MINIO_SECRET_KEY")
		}
	}
	return c, nil
}

func parseFile(u *url.URL) (string, error) {
	if u.Host != "" || u.User != nil || u.Opaque != "" || !filepath.IsAbs(u.Path) {
		return "", errors.New("store URL: a file URL needs an absolute path: write file:///directory, with three slashes")
	}
	if strings.ContainsRune(u.Path, 0) {
		return "", errors.New("store URL: the path holds a zero byte")
	}
	return filepath.Clean(u.Path), nil
}

func parseMemory(u *url.URL, q *query) (*Memory, error) {
	if u.Host != "" || u.User != nil || u.Path != "" {
		return nil, errors.New("store URL: write memory: or memory:name, without slashes")
	}
	return &Memory{Name: u.Opaque, Options: memory.Options{Discard: q.flag("discard", false), Keep: q.bytes("keep")}}, nil
}

// query reads settings and remembers the first that is wrong.
type query struct {
	scheme string
	values url.Values
	known  []string
	err    error
}

func (q *query) wrong(name, found, expected string) {
	if q.err == nil {
		q.err = fmt.Errorf("store URL: %s=%q: write %s=%s", name, found, name, expected)
	}
}

func (q *query) text(name string) string { return q.values.Get(name) }

func (q *query) flag(name string, def bool) bool {
	v := q.text(name)
	if v == "" {
		return def
	}
	b, err := strconv.ParseBool(v)
	if err != nil {
		q.wrong(name, v, "true or "+name+"=false")
	}
	return b
}

func (q *query) noChecksum() bool {
	switch v := q.text("checksum"); v {
	case "", "crc32c":
	case "none":
		return true
	default:
		q.wrong("checksum", v, "crc32c or checksum=none")
	}
	return false
}

func (q *query) duration(name string) time.Duration {
	v := q.text(name)
	if v == "" {
		return 0
	}
	d, err := time.ParseDuration(v)
	if err != nil || d < 0 || d > time.Hour {
		q.wrong(name, v, "30ms, for example")
	}
	return d
}

// bytes reads a number with one of the suffixes B, KB, MB, GB, KiB, MiB, GiB.
func (q *query) bytes(name string) int64 {
	v := q.text(name)
	if v == "" {
		return 0
	}
	digits := strings.TrimRight(v, "BKMGi")
	unit, ok := map[string]int64{"": 1, "B": 1, "KB": 1e3, "MB": 1e6, "GB": 1e9, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}[v[len(digits):]]
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || !ok || n <= 0 || n > 1<<40/unit {
		q.wrong(name, v, "80MB, for example")
		return 0
	}
	return n * unit
}

// countMax bounds numbers of things that this process then holds.
const countMax = 4096

func (q *query) count(name string) int {
	v := q.text(name)
	if v == "" {
		return 0
	}
	n, err := strconv.Atoi(v)
	if err != nil || n <= 0 || n > countMax {
		q.wrong(name, v, "8, for example")
		return 0
	}
	return n
}

// done reports what is wrong, and settings that the scheme does not have.
func (q *query) done() error {
	names := make([]string, 0, len(q.values))
	for name := range q.values {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		if !slices.Contains(q.known, name) {
			return fmt.Errorf("store URL: no setting %q for %s; there are %s", name, q.scheme, strings.Join(q.known, ", "))
		}
		if len(q.values[name]) > 1 {
			return fmt.Errorf("store URL: the setting %q is there twice", name)
		}
	}
	return q.err
}

// Redact returns a store URL without what may be secret in it, for logs and
// for showing the configuration.
func Redact(rawURL string) string {
	scheme, rest, ok := strings.Cut(rawURL, "://")
	if !ok {
		if strings.HasPrefix(rawURL, "memory:") && !strings.Contains(rawURL, "@") {
			return rawURL
		}
		return "(not a store URL)"
	}
	// The last @, wherever it is: a secret may hold slashes and question marks.
	if i := strings.LastIndexByte(rest, '@'); i >= 0 {
		rest = "…@" + rest[i+1:]
	}
	return scheme + "://" + rest
}
