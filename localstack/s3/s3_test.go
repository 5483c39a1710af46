package s3

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"thermocline/tiering/object"
	"thermocline/tiering/object/objecttest"
	"thermocline/tiering/object/storeurl"
)

// One server per process: this one is shared by all tests.
var (
	server *Server
	synced recorder
)

// recorder stands in for fsync: it records, and fails when told to. It does
// not sync, which would only make the acceptance test slow.
type recorder struct {
	mu    sync.Mutex
	on    bool
	paths []string
	fail  func(path string) error
}

func (r *recorder) sync(f *os.File) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	name := f.Name()
	if strings.HasPrefix(name, "/proc/self/fd") {
		name = "unnamed"
	}
	if r.on {
		r.paths = append(r.paths, name)
	}
	if r.fail != nil {
		return r.fail(name)
	}
	return nil
}

// serveAsChild is what a child of TestServeAsAProcess does instead of testing.
func serveAsChild(dir string) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	err := Serve(ctx, Config{Dir: dir, Addr: os.Getenv(childAddr), AccessKey: "key", SecretKey: "secret", Bucket: "bucket"}, os.Stdout)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func TestMain(m *testing.M) {
	if dir := os.Getenv(childDir); dir != "" {
		os.Exit(serveAsChild(dir))
	}
	dir, err := os.MkdirTemp("", "s3-test-*")
	if err == nil {
		server, err = Start(context.Background(), Config{Dir: dir, Sync: synced.sync})
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	if err := errors.Join(server.Close(), os.RemoveAll(dir)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// open returns a store with a prefix of its own.
func open(t *testing.T, adapter string, o object.Options) object.Store {
	t.Helper()
	prefix := strings.ToLower(strings.NewReplacer("/", "-", " ", "-").Replace(t.Name())) + "/below"
	raw := server.MinioURL(prefix)
	if adapter == "s3" {
		access, secret := server.Credentials()
		t.Setenv("AWS_ACCESS_KEY_ID", access)
		t.Setenv("AWS_SECRET_ACCESS_KEY", secret)
		raw = server.S3URL(prefix)
	}
	s, err := storeurl.Open(t.Context(), raw, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := object.Close(s); err != nil {
			t.Error(err)
		}
	})
	return s
}

var adapters = []string{"s3", "minio"}

func TestAcceptance(t *testing.T) {
	for _, adapter := range adapters {
		t.Run(adapter, func(t *testing.T) {
			objecttest.Acceptance(t, func(t *testing.T) object.Store {
				return open(t, adapter, object.Options{PartBytes: object.PartBytesMin, MaxConns: 16})
			}, objecttest.Options{LargeBytes: 3*object.PartBytesMin + 12345, ListKeys: 1010})
		})
	}
}

func TestWithoutChecksums(t *testing.T) {
	for _, adapter := range adapters {
		t.Run(adapter, func(t *testing.T) {
			raw := server.MinioURL("plain-"+adapter) + "&checksum=none"
			if adapter == "s3" {
				access, secret := server.Credentials()
				t.Setenv("AWS_ACCESS_KEY_ID", access)
				t.Setenv("AWS_SECRET_ACCESS_KEY", secret)
				raw = server.S3URL("plain-"+adapter) + "&checksum=none"
			}
			s, err := storeurl.Open(t.Context(), raw, object.Options{})
			if err != nil {
				t.Fatal(err)
			}
			for _, err := range object.SelfCheck(t.Context(), s) {
				t.Error(err)
			}
			objecttest.Put(t, s, "x", []byte("body"))
			if info, err := s.Head(t.Context(), "x"); err != nil || info.HasCRC {
				t.Errorf("expected no CRC32C, got %+v, %v", info, err)
			}
			if err := object.Close(s); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestChecksumsAreStored(t *testing.T) {
	for _, adapter := range adapters {
		s := open(t, adapter, object.Options{PartBytes: object.PartBytesMin})
		for _, n := range []int{10, object.PartBytesMin + 1} {
			body := objecttest.Random(4, n)
			key := fmt.Sprintf("%s/%d", adapter, n)
			objecttest.Put(t, s, key, body)
			if info, err := s.Head(t.Context(), key); err != nil || !info.HasCRC || info.CRC32C != object.CRC32C(body) {
				t.Errorf("%s: expected CRC32C %08x, got %+v, %v", key, object.CRC32C(body), info, err)
			}
		}
	}
}

func TestWrongCredentialsAndBucket(t *testing.T) {
	access, secret := server.Credentials()
	for _, c := range []struct {
		url, says string
		kind      error
	}{
		{"minio://" + access + ":wrong@" + server.Addr() + "/" + server.Bucket(), "writing is denied", object.ErrDenied},
		{"minio://nobody:" + secret + "@" + server.Addr() + "/" + server.Bucket(), "does not know the access key", object.ErrDenied},
		{"minio://" + access + ":" + secret + "@" + server.Addr() + "/nosuchbucket", "create it first", object.ErrNoBucket},
		{"minio://" + access + ":" + secret + "@127.0.0.1:1/" + server.Bucket(), "cannot be reached", object.ErrUnavailable},
	} {
		s, err := storeurl.Open(t.Context(), c.url, object.Options{Attempts: 2, Backoff: time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		wrong := object.SelfCheck(t.Context(), s)
		if len(wrong) != 1 || !errors.Is(wrong[0], c.kind) || !strings.Contains(wrong[0].Error(), c.says) {
			t.Errorf("expected one complaint with %q, got %v", c.says, wrong)
		}
		if strings.Contains(fmt.Sprint(wrong), secret) {
			t.Errorf("the complaint holds the secret: %v", wrong)
		}
		if err := object.Close(s); err != nil {
			t.Error(err)
		}
	}
}

func TestStaleUploadsAreAborted(t *testing.T) {
	for _, adapter := range adapters {
		s := open(t, adapter, object.Options{PartBytes: object.PartBytesMin, Attempts: 1})
		uploads, ok := object.As[object.Uploads](s)
		if !ok {
			t.Fatalf("%s cannot abort uploads", adapter)
		}
		// A store that loses power between parts and completion: here, an upload
		// whose completion and abort are both cut off.
		ctx, cancel := context.WithCancel(t.Context())
		begun := begin(t, ctx, adapter)
		cancel()
		if n, err := uploads.AbortUploads(t.Context(), time.Hour); n != 0 || err != nil {
			t.Errorf("%s: a young upload was aborted: %d, %v", adapter, n, err)
		}
		if n, err := uploads.AbortUploads(t.Context(), 0); n != begun || err != nil {
			t.Errorf("%s: expected %d aborted, got %d, %v", adapter, begun, n, err)
		}
		if n, err := uploads.AbortUploads(t.Context(), 0); n != 0 || err != nil {
			t.Errorf("%s: aborted twice: %d, %v", adapter, n, err)
		}
	}
}

func TestUploadsAreSyncedBeforeTheAnswer(t *testing.T) {
	s := open(t, "minio", object.Options{PartBytes: object.PartBytesMin})
	synced.mu.Lock()
	synced.on, synced.paths = true, nil
	synced.mu.Unlock()
	defer func() { synced.mu.Lock(); synced.on, synced.fail = false, nil; synced.mu.Unlock() }()
	folders := func(key string) []string {
		out := []string{"unnamed"}
		path := filepath.Join(server.c.Dir, server.Bucket(), strings.ToLower(t.Name()), "below", key)
		for ; len(path) >= len(server.c.Dir); path = filepath.Dir(path) {
			out = append(out, path)
		}
		return out
	}
	objecttest.Put(t, s, "a/b", []byte("x"))
	if want := folders("a/b"); !slices.Equal(synced.paths, want) {
		t.Errorf("single PUT: expected %q, got %q", want, synced.paths)
	}
	synced.mu.Lock()
	synced.paths = nil
	synced.mu.Unlock()
	objecttest.Put(t, s, "parts", make([]byte, object.PartBytesMin+1))
	if want := append([]string{"unnamed"}, folders("parts")...); !slices.Equal(synced.paths, want) { // once per part
		t.Errorf("multipart: expected %q, got %q", want, synced.paths)
	}
}

func TestFailedSyncFailsTheUpload(t *testing.T) {
	s := open(t, "minio", object.Options{PartBytes: object.PartBytesMin, Attempts: 1})
	defer func() { synced.mu.Lock(); synced.fail = nil; synced.mu.Unlock() }()
	for _, size := range []int{1, object.PartBytesMin + 1} {
		synced.mu.Lock()
		synced.fail = func(path string) error {
			if path == "unnamed" {
				return errors.New("no fsync today")
			}
			return nil
		}
		synced.mu.Unlock()
		body := objecttest.Random(1, size)
		key := fmt.Sprint(size)
		err := s.Put(t.Context(), key, sectionOf(body), object.PutOptions{CRC32C: object.CRC32C(body)})
		if !errors.Is(err, object.ErrUnavailable) {
			t.Errorf("%d bytes: expected the upload to fail, got %v", size, err)
		}
		if _, err := s.Head(t.Context(), key); !errors.Is(err, object.ErrNotFound) {
			t.Errorf("%d bytes: the object is there: %v", size, err)
		}
		synced.mu.Lock()
		synced.fail = nil
		synced.mu.Unlock()
		objecttest.Put(t, s, key, body)
		if got := objecttest.Get(t, s, key); !slices.Equal(got, body) {
			t.Errorf("%d bytes: after a failed sync another attempt stored other bytes", size)
		}
	}
}

func TestOnlyOneServerPerProcess(t *testing.T) {
	before, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Start(t.Context(), Config{Dir: t.TempDir()}); !errors.Is(err, ErrRunning) {
		t.Errorf("expected %v, got %v", ErrRunning, err)
	}
	if after, err := os.Getwd(); err != nil || after != before {
		t.Errorf("the first server's working directory was changed from %s to %s, %v", before, after, err)
	}
}

func TestBadConfigs(t *testing.T) { // checked before anything is started
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, c := range []Config{{}, {Dir: file}, {Dir: t.TempDir(), Addr: "nonsense"}} {
		if _, err := prepare(c); err == nil {
			t.Errorf("%+v was accepted", c)
		}
	}
}
