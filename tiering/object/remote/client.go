// Package remote is the part that stores behind HTTP have in common: attempts
// with backoff, a watchdog for requests that stall, reads that go on where they
// broke off, multipart uploads with bounded parallelism, pacing, DELETE in
// batches, LIST in pages. An adapter supplies a Client, which does one request
// per call and nothing else; its library's own retries are off.
package remote

import (
	"context"
	"io"
	"net"
	"net/http"
	"time"

	"thermocline/tiering/object"
)

// Client does one request per call. Keys are full ones, with the URL's prefix.
// Errors are *Failure where the store has answered, else as they come.
type Client interface {
	Uploads
	// Put stores body, of which crc is the checksum. The body can be rewound.
	Put(ctx context.Context, key string, body Part, ifAbsent bool) error
	// Get asks for n > 0 bytes from offset on, of the version with that ETag
	// unless it is empty.
	Get(ctx context.Context, key string, offset, n int64, etag string) (*Response, error)
	Head(ctx context.Context, key string) (object.Info, error)
	// ListPage returns up to n keys greater than after; fewer only at the end.
	ListPage(ctx context.Context, prefix, after string, n int) ([]object.Info, error)
	// DeleteBatch removes up to object.BatchKeysMax keys.
	DeleteBatch(ctx context.Context, keys []string) (map[string]error, error)
	String() string
}

// Uploads is multipart upload.
type Uploads interface {
	CreateUpload(ctx context.Context, key string) (id string, err error)
	UploadPart(ctx context.Context, key, id string, number int, body Part) (Uploaded, error)
	// CompleteUpload publishes the object, whose checksum as a whole is crc.
	CompleteUpload(ctx context.Context, key, id string, parts []Uploaded, crc uint32, ifAbsent bool) error
	AbortUpload(ctx context.Context, key, id string) error
	ListUploads(ctx context.Context, prefix string) ([]Upload, error)
}

// Part is a body or a part of one, to be sent as it is.
type Part struct {
	io.ReadSeeker
	Size   int64
	CRC32C uint32
}

// Uploaded is a part that the store has.
type Uploaded struct {
	Number int
	ETag   string
	CRC32C uint32
}

// Upload is one that was begun, and neither completed nor aborted.
type Upload struct {
	Key, ID string
	Begun   time.Time
}

// Response is the answer to a Get.
type Response struct {
	Body io.ReadCloser
	// Range is the Content-Range header; empty when the whole object came.
	Range string
	// Length is the Content-Length header.
	Length int64
	ETag   string
}

// Connection settings. A store that does not accept within dialTimeout is
// away; idle connections are kept for the next seal (30 s) and a bit.
const (
	dialTimeout    = 5 * time.Second
	idleTimeout    = 90 * time.Second
	keepAlive      = 15 * time.Second
	bufferBytes    = 128 << 10
	tlsTimeout     = 10 * time.Second
	headerBytesMax = 1 << 20
)

// Transport returns HTTP connections that belong to one store alone.
func Transport(o object.Options) *http.Transport {
	o = o.WithDefaults()
	return &http.Transport{
		Proxy:                  http.ProxyFromEnvironment,
		DialContext:            (&net.Dialer{Timeout: dialTimeout, KeepAlive: keepAlive}).DialContext,
		TLSHandshakeTimeout:    tlsTimeout,
		MaxConnsPerHost:        o.MaxConns,
		MaxIdleConns:           o.MaxConns,
		MaxIdleConnsPerHost:    o.MaxConns,
		IdleConnTimeout:        idleTimeout,
		MaxResponseHeaderBytes: headerBytesMax,
		ReadBufferSize:         bufferBytes,
		WriteBufferSize:        bufferBytes,
		DisableCompression:     true, // bytes must come as they are
	}
}
