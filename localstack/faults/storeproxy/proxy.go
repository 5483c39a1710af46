// Package storeproxy stands between brokers and their object store and does
// what networks and stores do: answers 503 in bursts, hangs, cuts bodies, loses
// the answer to a write that was carried out, or is away.
package storeproxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"sync"
	"time"
)

// Mode is what happens to requests.
type Mode int

// The modes.
const (
	// Pass forwards.
	Pass Mode = iota
	// SlowDown answers 503 without forwarding.
	SlowDown
	// Hang answers nothing until the mode changes, then drops the connection.
	Hang
	// CutBody drops the connection within the body: of a request before it is
	// forwarded, of an answer on its way back.
	CutBody
	// LoseAnswer carries a request out and drops the connection instead of
	// answering, if it was a write and succeeded.
	LoseAnswer
	modes
)

// String names the mode.
func (m Mode) String() string {
	return [...]string{"pass", "slow down", "hang", "cut body", "lose answer"}[m]
}

// Proxy is a running proxy.
type Proxy struct {
	addr   string
	target *url.URL

	mu      sync.Mutex
	server  *http.Server // nil while away
	mode    Mode
	changed chan struct{} // closed when the mode changes
	hits    [modes]int64
	reads   int64
}

// errLost marks an answer that is lost on purpose.
var errLost = errors.New("storeproxy: the answer is lost")

// Start forwards from a free port on loopback to target (host:port).
func Start(target string) (*Proxy, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("storeproxy: %w", err)
	}
	p := &Proxy{addr: l.Addr().String(), target: &url.URL{Scheme: "http", Host: target}, changed: make(chan struct{})}
	p.serve(l)
	return p, nil
}

// Addr is where clients connect.
func (p *Proxy) Addr() string { return p.addr }

// Set changes the mode for requests that begin from now on.
func (p *Proxy) Set(m Mode) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mode = m
	close(p.changed)
	p.changed = make(chan struct{})
}

// Hits is how many requests met a mode.
func (p *Proxy) Hits(m Mode) int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.hits[m]
}

// Reads is how many GETs of objects there were.
func (p *Proxy) Reads() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.reads
}

// Away refuses connections and cuts those that are open, until Back.
func (p *Proxy) Away() error {
	p.mu.Lock()
	s := p.server
	p.server = nil
	p.mu.Unlock()
	if s == nil {
		return nil
	}
	return s.Close()
}

// Back listens again on the same port.
func (p *Proxy) Back() error {
	l, err := net.Listen("tcp", p.addr)
	if err != nil {
		return fmt.Errorf("storeproxy: %w", err)
	}
	p.serve(l)
	return nil
}

// Close ends it.
func (p *Proxy) Close() error {
	p.Set(Pass) // those who hang go
	return p.Away()
}

func (p *Proxy) serve(l net.Listener) {
	s := &http.Server{Handler: p.handler(), ReadHeaderTimeout: time.Minute}
	p.mu.Lock()
	p.server = s
	p.mu.Unlock()
	go func() { _ = s.Serve(l) }() // ends by Close
}

// handler forwards requests as they are: signatures cover the host's name.
func (p *Proxy) handler() http.Handler {
	forward := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(p.target)
			r.Out.Host = r.In.Host
		},
		Transport:      &http.Transport{MaxIdleConnsPerHost: 32, DisableCompression: true},
		ModifyResponse: p.answer,
		// Whatever went wrong: the client sees a dropped connection.
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
		ErrorLog:     nil,
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mode, changed := p.take(r)
		switch mode {
		case SlowDown:
			w.Header().Set("Content-Type", "application/xml")
			w.WriteHeader(http.StatusServiceUnavailable)
			_, _ = io.WriteString(w, `<?xml version="1.0" encoding="UTF-8"?><Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>`)
			return
		case Hang:
			select {
			case <-changed:
			case <-r.Context().Done():
			}
			panic(http.ErrAbortHandler)
		case CutBody:
			if r.ContentLength > 0 {
				_, _ = io.CopyN(io.Discard, r.Body, r.ContentLength/2)
				panic(http.ErrAbortHandler)
			}
		}
		forward.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), modeKey{}, mode)))
	})
}

type modeKey struct{}

// take counts a request under the mode that it meets.
func (p *Proxy) take(r *http.Request) (Mode, <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if r.Method == http.MethodGet && r.Header.Get("Range") != "" {
		p.reads++
	}
	if p.mode != LoseAnswer && p.mode != CutBody { // those count when they bite
		p.hits[p.mode]++
	} else if p.mode == CutBody && r.ContentLength > 0 {
		p.hits[CutBody]++
	}
	return p.mode, p.changed
}

func (p *Proxy) hit(m Mode) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hits[m]++
}

// answer spoils answers on their way back.
func (p *Proxy) answer(resp *http.Response) error {
	mode, _ := resp.Request.Context().Value(modeKey{}).(Mode)
	method := resp.Request.Method
	switch {
	case mode == LoseAnswer && method != http.MethodGet && method != http.MethodHead && resp.StatusCode < 300:
		p.hit(LoseAnswer)
		_ = resp.Body.Close()
		return errLost
	case mode == CutBody && method == http.MethodGet && resp.ContentLength > 1:
		p.hit(CutBody)
		resp.Body = &cutBody{resp.Body, resp.ContentLength / 2}
	}
	return nil
}

// cutBody fails after its first half.
type cutBody struct {
	io.ReadCloser
	left int64
}

// Read implements io.Reader.
func (c *cutBody) Read(b []byte) (int, error) {
	if c.left <= 0 {
		return 0, errLost
	}
	n, err := c.ReadCloser.Read(b[:min(int64(len(b)), c.left)])
	c.left -= int64(n)
	return n, err
}
