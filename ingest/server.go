package ingest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"
)

// Server serves the Kafka protocol on listeners. Its goroutines: one per
// Serve call (the caller's), two per connection, and those of waiting requests
// (conn.goAsync); all have ended when Close returns.
type Server struct {
	cfg      Config
	log      *slog.Logger
	cluster  Cluster
	replicas Replicas
	cold     Cold
	// coordinators answers for the groups whose coordinators are here.
	coordinators Coordinators
	apis         [maxAPIKey + 1]*api
	pool         buffers
	sessions     *sessionCache
	stats        serverStats

	requestBytes *budget
	fetchBytes   *budget // of answers from the tail
	coldBytes    *budget // of answers from the store
	coldSlots    *semaphore.Weighted
	coldFailures coldFailures
	effectives   effectiveCache
	set          settingsCache

	ctx    context.Context // ends when connections are cut
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu        sync.Mutex
	closed    bool
	listeners map[net.Listener]struct{}
	conns     map[*conn]string // remote host
	perIP     map[string]int

	logSecond  atomic.Int64
	logLines   atomic.Int64
	logDropped atomic.Int64
}

// ErrServerClosed is what Serve returns after Close.
var ErrServerClosed = errors.New("ingest: server closed")

// NewServer returns a server that serves nothing yet.
func NewServer(cfg Config, cluster Cluster, replicas Replicas, cold Cold, coordinators Coordinators) (*Server, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.LogLevel == nil {
		cfg.LogLevel = new(slog.LevelVar)
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	s := &Server{
		cfg: cfg, log: cfg.Logger, cluster: cluster, replicas: replicas, cold: cold, coordinators: coordinators,
		apis:         register(registrations()),
		sessions:     newSessionCache(cfg.FetchSessions),
		requestBytes: newBudget(cfg.QueuedMaxBytes),
		fetchBytes:   newBudget(cfg.FetchMemory),
		coldBytes:    newBudget(cfg.FetchMemory),
		coldSlots:    semaphore.NewWeighted(maxColdReads),
		listeners:    map[net.Listener]struct{}{},
		conns:        map[*conn]string{},
		perIP:        map[string]int{},
	}
	s.set.file = s.fileSettings()
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s, nil
}

func (s *Server) now() time.Time { return s.cfg.Now() }

func (s *Server) api(key int16) *api {
	if key < 0 || key > maxAPIKey {
		return nil
	}
	return s.apis[key]
}

// Serve accepts connections from l until Close, or until l fails. It closes l.
func (s *Server) Serve(l net.Listener) error {
	defer l.Close()
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return ErrServerClosed
	}
	s.listeners[l] = struct{}{}
	s.wg.Add(1)
	s.mu.Unlock()
	defer s.wg.Done()
	for {
		nc, err := l.Accept()
		if err == nil {
			s.accept(nc)
			continue
		}
		if s.ctx.Err() != nil || s.isClosed() {
			return ErrServerClosed
		}
		if errors.Is(err, net.ErrClosed) {
			return fmt.Errorf("ingest: listener %v: %w", l.Addr(), err)
		}
		s.logLine("accept failed", "listener", l.Addr().String(), "error", err)
		t := time.NewTimer(acceptPause) // out of file descriptors, most likely
		select {
		case <-t.C:
		case <-s.ctx.Done():
			t.Stop()
		}
	}
}

func (s *Server) isClosed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closed
}

// accept starts a connection, or closes it when there are too many.
func (s *Server) accept(nc net.Conn) {
	host, _, err := net.SplitHostPort(nc.RemoteAddr().String())
	if err != nil {
		host = nc.RemoteAddr().String()
	}
	most, mostIP := s.connectionLimits()
	s.mu.Lock()
	full := len(s.conns) >= most
	fullIP := mostIP > 0 && s.perIP[host] >= mostIP
	if s.closed || full || fullIP {
		s.mu.Unlock()
		s.stats.rejected.Add(1)
		if full || fullIP {
			s.logLine("connection refused", "remote", nc.RemoteAddr().String(), "error", "too many connections")
		}
		nc.Close()
		return
	}
	c := newConn(s, nc)
	s.conns[c] = host
	s.perIP[host]++
	s.wg.Go(c.readLoop)
	s.wg.Go(c.writeLoop)
	s.mu.Unlock()
	s.stats.accepted.Add(1)
	s.stats.connections.Add(1)
}

// forget is the last act of a connection's writer.
func (s *Server) forget(c *conn) {
	c.cancel()
	s.mu.Lock()
	host := s.conns[c]
	delete(s.conns, c)
	if s.perIP[host]--; s.perIP[host] <= 0 {
		delete(s.perIP, host)
	}
	s.mu.Unlock()
	s.stats.connections.Add(-1)
}

// Close stops accepting and reading, lets answers under way leave until ctx
// ends, then cuts the connections. When it returns, all goroutines have ended.
func (s *Server) Close(ctx context.Context) error {
	s.mu.Lock()
	s.closed = true
	for l := range s.listeners {
		l.Close()
	}
	for c := range s.conns {
		c.cancel() // long polls answer at once; the reader stops
		c.nc.SetReadDeadline(time.Unix(1, 0))
	}
	s.mu.Unlock()
	ended := make(chan struct{})
	go func() {
		s.wg.Wait()
		close(ended)
	}()
	select {
	case <-ended:
		s.cancel()
		return nil
	case <-ctx.Done():
	}
	s.cancel()
	s.mu.Lock()
	for c := range s.conns {
		c.nc.Close()
	}
	s.mu.Unlock()
	<-ended
	return ctx.Err()
}

// logLine logs what a client caused, at most logLinesPerSecond times.
func (s *Server) logLine(msg string, args ...any) {
	second := time.Now().Unix()
	if old := s.logSecond.Load(); old != second && s.logSecond.CompareAndSwap(old, second) {
		s.logLines.Store(0)
	}
	if s.logLines.Add(1) > logLinesPerSecond {
		s.logDropped.Add(1)
		return
	}
	if n := s.logDropped.Swap(0); n > 0 {
		args = append(args, "suppressed", n)
	}
	s.log.Warn("kafka: "+msg, args...)
}
