// Package s3 runs an S3 server on loopback inside the process that keeps its
// data on disk: versitygw as a library, over a directory in which every object
// is a file. It checks signatures and checksums, lists in byte order and has
// atomic create-only uploads, so that both S3 adapters run against the real
// protocol on a machine without any server.
//
// As it comes, versitygw syncs nothing. Here an acknowledged upload is durable:
// its bytes are fsynced before the name appears, its attributes and the folders
// above it before the answer (see durable).
//
// What to know before use:
//   - One server per process: the library keeps its state in globals.
//   - It changes the process's working directory to Config.Dir, where the
//     library resolves all names. Relative paths elsewhere in the process must
//     be made absolute before Start; a child process (Serve) avoids the question.
//   - The file system must have user extended attributes (ext4, xfs, btrfs and
//     a recent tmpfs do).
//   - A key cannot be there beside one that continues it ("x" and "x/y").
package s3

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/versity/versitygw/auth"
	"github.com/versity/versitygw/backend/meta"
	"github.com/versity/versitygw/backend/posix"
	"github.com/versity/versitygw/embedgw"
)

// Config says where the data is and who may see it. All but Dir may be empty.
type Config struct {
	// Dir holds the data; it is created if need be.
	Dir string
	// Addr is host:port to listen on; empty, or with port 0, picks a free port
	// of 127.0.0.1.
	Addr string
	// AccessKey and SecretKey are "thermocline" and a random one if empty.
	AccessKey, SecretKey string
	// Bucket is created if need be; "thermocline" if empty.
	Bucket string
	// Sync replaces the fsync of files and folders; only tests set it.
	Sync func(*os.File) error
}

const (
	defaultName = "thermocline"
	region      = "us-east-1"

	// Bounds of the server: a cluster on one machine has dozens of connections.
	connectionsMax = 2048
	requestsMax    = 1024
	partsMax       = 10_000
	copyBytesMax   = 5 << 30 // S3's own; the library refuses all copies when it is unset

	startWithin = 10 * time.Second
	// closeWithin is how long Close waits for requests under way.
	closeWithin = 900 * time.Millisecond
	probeEvery  = 5 * time.Millisecond
)

// Server is a running server.
type Server struct {
	c      Config
	cancel context.CancelFunc
	done   chan struct{} // closed when the library has returned
	err    error         // why; valid after done
	close  sync.Once
}

// running: the library would notice a second server only after that has
// changed the working directory, away from under the first.
var running atomic.Bool

// ErrRunning: this process runs a server already.
var ErrRunning = errors.New("s3 server: only one per process")

// Start returns when the server answers. It runs until Close, or until ctx ends.
func Start(ctx context.Context, c Config) (*Server, error) {
	if !running.CompareAndSwap(false, true) {
		return nil, ErrRunning
	}
	c, files, err := prepareFiles(c)
	if err != nil {
		running.Store(false)
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	s := &Server{c: c, cancel: cancel, done: make(chan struct{})}
	go func() { // ends with ctx
		defer close(s.done)
		defer running.Store(false)
		s.err = embedgw.RunVersityGW(ctx, &durable{Posix: files, root: c.Dir, sync: c.Sync}, &embedgw.Config{
			RootUserAccess: c.AccessKey, RootUserSecret: c.SecretKey, Region: region,
			Ports:          []string{c.Addr},
			MaxConnections: connectionsMax, MaxRequests: requestsMax, MultipartMaxParts: partsMax,
			Quiet: true, KeepAlive: true, DisableACLs: true,
			// Its own choice of the same prints a line.
			IAMService: auth.NewIAMServiceSingle(auth.Account{Access: c.AccessKey, Secret: c.SecretKey, Role: auth.RoleAdmin}),
		})
	}()
	if err := s.wait(ctx); err != nil {
		cancel()
		<-s.done
		return nil, err
	}
	return s, nil
}

func prepareFiles(c Config) (Config, *posix.Posix, error) {
	c, err := prepare(c)
	if err != nil {
		return c, nil, err
	}
	files, err := posix.New(c.Dir, meta.XattrMeta{}, posix.PosixOpts{CopyObjectThreshold: copyBytesMax, ValidateBucketNames: true})
	if err != nil {
		return c, nil, fmt.Errorf("s3 server: %w", err)
	}
	return c, files, nil
}

// prepare fills what is unset and makes the directory and the bucket, which is
// a folder in it.
func prepare(c Config) (Config, error) {
	def := func(v *string, d string) {
		if *v == "" {
			*v = d
		}
	}
	def(&c.AccessKey, defaultName)
	def(&c.SecretKey, rand.Text())
	def(&c.Bucket, defaultName)
	def(&c.Addr, "127.0.0.1:0")
	if c.Sync == nil {
		c.Sync = (*os.File).Sync
	}
	if c.Dir == "" {
		return c, errors.New("s3 server: no directory for the data")
	}
	dir, err := filepath.Abs(c.Dir)
	if err != nil {
		return c, fmt.Errorf("s3 server: %w", err)
	}
	c.Dir = dir
	if err := os.MkdirAll(filepath.Join(dir, c.Bucket), 0o755); err != nil {
		return c, fmt.Errorf("s3 server: %w", err)
	}
	if err := (meta.XattrMeta{}).Test(dir); err != nil {
		return c, fmt.Errorf("s3 server: %s: %w", dir, err)
	}
	for _, folder := range []string{filepath.Dir(dir), dir} {
		if err := syncPath(folder, c.Sync); err != nil {
			return c, fmt.Errorf("s3 server: %w", err)
		}
	}
	c.Addr, err = freeAddr(c.Addr)
	return c, err
}

// freeAddr replaces port 0: the library does not say which port it got. It binds
// any other port too, and lets go of it: the library tells late that it is taken,
// when whoever has it has answered the first probe already.
func freeAddr(addr string) (string, error) {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return "", fmt.Errorf("s3 server: address %q, expected host:port: %w", addr, err)
	}
	l, err := net.Listen("tcp", net.JoinHostPort(host, port))
	if errors.Is(err, syscall.EADDRINUSE) {
		return "", fmt.Errorf("s3 server: %s is in use by another process: end it, or listen on another port", addr)
	}
	if err != nil {
		return "", fmt.Errorf("s3 server: %w", err)
	}
	return l.Addr().String(), l.Close()
}

// wait returns when the server accepts connections.
func (s *Server) wait(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startWithin)
	defer cancel()
	tick := time.NewTicker(probeEvery)
	defer tick.Stop()
	for {
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", s.c.Addr)
		if err == nil {
			if err := conn.Close(); err != nil {
				return fmt.Errorf("s3 server: %w", err)
			}
			select {
			case <-s.done: // somebody else's port
			default:
				return nil
			}
		}
		select {
		case <-s.done:
			return fmt.Errorf("s3 server on %s: %w", s.c.Addr, s.err)
		case <-ctx.Done():
			return fmt.Errorf("s3 server on %s does not answer: %w", s.c.Addr, errors.Join(err, ctx.Err()))
		case <-tick.C:
		}
	}
}

// Addr is host:port of the server.
func (s *Server) Addr() string { return s.c.Addr }

// Endpoint is the server's URL.
func (s *Server) Endpoint() string { return "http://" + s.c.Addr }

// Bucket is the bucket's name.
func (s *Server) Bucket() string { return s.c.Bucket }

// Credentials are the server's only ones.
func (s *Server) Credentials() (accessKey, secretKey string) { return s.c.AccessKey, s.c.SecretKey }

// MinioURL is what opens the bucket by the minio adapter, secret included.
func (s *Server) MinioURL(prefix string) string { return s.c.MinioURL(prefix) }

// MinioURL is what opens the bucket by the minio adapter, secret included.
func (c Config) MinioURL(prefix string) string {
	return fmt.Sprintf("minio://%s:%s@%s/%s/%s?secure=false", c.AccessKey, c.SecretKey, c.Addr, c.Bucket, prefix)
}

// S3URL is what opens the bucket by the s3 adapter, given AWS_ACCESS_KEY_ID
// and AWS_SECRET_ACCESS_KEY in the environment.
func (s *Server) S3URL(prefix string) string { return s.c.S3URL(prefix) }

// S3URL is what opens the bucket by the s3 adapter, given AWS_ACCESS_KEY_ID
// and AWS_SECRET_ACCESS_KEY in the environment.
func (c Config) S3URL(prefix string) string {
	return fmt.Sprintf("s3://%s/%s?region=%s&endpoint=http://%s&path_style=true", c.Bucket, prefix, region, c.Addr)
}

// Done is closed when the server has stopped, whatever the reason.
func (s *Server) Done() <-chan struct{} { return s.done }

// Close stops the server; requests under way have a second to end.
func (s *Server) Close() error {
	s.close.Do(s.cancel)
	select {
	case <-s.done:
		if s.err != nil && !errors.Is(s.err, context.Canceled) {
			return fmt.Errorf("s3 server: %w", s.err)
		}
		return nil
	case <-time.After(closeWithin):
		return fmt.Errorf("s3 server: requests were still under way after %v", closeWithin)
	}
}

// Serve runs a server until ctx ends: all there is to do for a process of its
// own. Once it answers, it writes one line with its endpoint to ready.
func Serve(ctx context.Context, c Config, ready io.Writer) error {
	s, err := Start(ctx, c)
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintln(ready, s.Endpoint()); err != nil {
		return errors.Join(err, s.Close())
	}
	select {
	case <-ctx.Done():
	case <-s.Done():
	}
	return s.Close()
}

func syncPath(path string, sync func(*os.File) error) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	err = sync(f)
	if errors.Is(err, syscall.EINVAL) { // a file system that cannot sync folders
		err = nil
	}
	return errors.Join(err, f.Close())
}
