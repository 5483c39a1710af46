package s3

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"thermocline/tiering/object"
	"thermocline/tiering/object/objecttest"
	"thermocline/tiering/object/storeurl"
)

// network is a proxy before the server that fails the first requests of a
// method in one way, then lets all through.
type network struct {
	mu   sync.Mutex
	mode string
	left int
	seen int // requests of the method
	verb string
	fwd  *httputil.ReverseProxy
}

func (n *network) set(verb, mode string, times int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.verb, n.mode, n.left, n.seen = verb, mode, times, 0
}

func (n *network) requests() int { n.mu.Lock(); defer n.mu.Unlock(); return n.seen }

// next returns what is to happen to a request.
func (n *network) next(verb string) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	if verb != n.verb {
		return ""
	}
	n.seen++
	if n.left == 0 {
		return ""
	}
	n.left--
	return n.mode
}

const slowDown = `<?xml version="1.0" encoding="UTF-8"?><Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>`

// ServeHTTP implements http.Handler.
func (n *network) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch n.next(r.Method) {
	case "":
		n.fwd.ServeHTTP(w, r)
	case "503":
		w.WriteHeader(http.StatusServiceUnavailable)
		_, _ = io.WriteString(w, slowDown)
	case "503 without a body":
		w.WriteHeader(http.StatusServiceUnavailable)
	case "reset":
		panic(http.ErrAbortHandler)
	case "lost answer":
		n.fwd.ServeHTTP(httptest.NewRecorder(), r)
		panic(http.ErrAbortHandler)
	case "hang":
		_, _ = io.Copy(io.Discard, r.Body)
		<-r.Context().Done()
	case "cut":
		answer := httptest.NewRecorder()
		n.fwd.ServeHTTP(answer, r)
		for k, v := range answer.Header() {
			w.Header()[k] = v
		}
		w.WriteHeader(answer.Code)
		_, _ = w.Write(answer.Body.Bytes()[:answer.Body.Len()/3])
		panic(http.ErrAbortHandler)
	}
}

// far returns a store behind a network.
func far(t *testing.T, adapter string) (object.Store, *network) {
	t.Helper()
	target, err := url.Parse(server.Endpoint())
	if err != nil {
		t.Fatal(err)
	}
	n := &network{fwd: &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(target)
		r.Out.Host = r.In.Host // it is signed
	}}}
	web := httptest.NewServer(n)
	t.Cleanup(web.Close)
	access, secret := server.Credentials()
	c := Config{Addr: strings.TrimPrefix(web.URL, "http://"), AccessKey: access, SecretKey: secret, Bucket: server.Bucket()}
	raw := c.MinioURL("far-" + adapter)
	if adapter == "s3" {
		t.Setenv("AWS_ACCESS_KEY_ID", access)
		t.Setenv("AWS_SECRET_ACCESS_KEY", secret)
		raw = c.S3URL("far-" + adapter)
	}
	s, err := storeurl.Open(t.Context(), raw, object.Options{Attempts: 3, Backoff: time.Millisecond, Timeout: 500 * time.Millisecond, PartBytes: object.PartBytesMin})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := object.Close(s); err != nil {
			t.Error(err)
		}
	})
	return s, n
}

func TestTroublesOfTheNetwork(t *testing.T) {
	for _, adapter := range adapters {
		t.Run(adapter, func(t *testing.T) {
			s, n := far(t, adapter)
			body := objecttest.Random(2, 300_000)
			for _, mode := range []string{"503", "503 without a body", "reset", "hang", "lost answer"} {
				n.set("PUT", mode, 2)
				key := "put/" + strings.ReplaceAll(mode, " ", "-")
				err := s.Put(t.Context(), key, bytes.NewReader(body), object.PutOptions{CRC32C: object.CRC32C(body), IfAbsent: true})
				if err != nil || n.requests() != 3 {
					t.Errorf("PUT, %s twice: expected success with the third of three requests, got %v after %d", mode, err, n.requests())
				}
				if mode != "lost answer" {
					n.set("GET", mode, 2)
				} else {
					n.set("GET", "cut", 1)
				}
				p := make([]byte, len(body))
				if got, err := s.GetRange(t.Context(), key, 0, p); err != nil || !bytes.Equal(p[:got], body) {
					t.Errorf("GET, %s: got %d bytes, %v", mode, got, err)
				}
			}
			for verb, try := range map[string]func() error{
				"PUT":  func() error { return s.Put(t.Context(), "x", bytes.NewReader(nil), object.PutOptions{}) },
				"GET":  func() error { _, err := s.GetRange(t.Context(), "x", 0, make([]byte, 5)); return err },
				"HEAD": func() error { _, err := s.Head(t.Context(), "x"); return err },
				"POST": func() error { _, err := s.Delete(t.Context(), []string{"x"}); return err },
			} {
				for _, mode := range []string{"503", "503 without a body", "reset"} {
					n.set(verb, mode, 100)
					if err := try(); !object.Retryable(err) || n.requests() < 3 || n.requests() > 6 { // net/http itself repeats a GET when an idle connection turns out to be dead
						t.Errorf("%s, %s for ever: expected a retryable error after 3 requests, got %v after %d", verb, mode, err, n.requests())
					}
				}
			}
			n.set("", "", 0)
		})
	}
}

func TestMultipartOverABadNetwork(t *testing.T) {
	for _, adapter := range adapters {
		s, n := far(t, adapter)
		body := objecttest.Random(3, 2*object.PartBytesMin+1)
		n.set("PUT", "lost answer", 2) // parts
		if err := s.Put(t.Context(), "parts", bytes.NewReader(body), object.PutOptions{CRC32C: object.CRC32C(body)}); err != nil {
			t.Errorf("%s: %v", adapter, err)
		}
		n.set("POST", "lost answer", 1) // the creation
		if err := s.Put(t.Context(), "parts2", bytes.NewReader(body), object.PutOptions{CRC32C: object.CRC32C(body), IfAbsent: true}); err != nil {
			t.Errorf("%s: %v", adapter, err)
		}
		n.set("", "", 0)
		for _, key := range []string{"parts", "parts2"} {
			if !bytes.Equal(objecttest.Get(t, s, key), body) {
				t.Errorf("%s: %s: other bytes", adapter, key)
			}
		}
		n.set("PUT", "503", 100)
		err := s.Put(t.Context(), "never", bytes.NewReader(body), object.PutOptions{CRC32C: object.CRC32C(body)})
		if !object.Retryable(err) {
			t.Errorf("%s: expected a retryable error, got %v", adapter, err)
		}
		n.set("", "", 0)
		if _, err := s.Head(t.Context(), "never"); !errors.Is(err, object.ErrNotFound) {
			t.Errorf("%s: half an upload is there: %v", adapter, err)
		}
	}
}
