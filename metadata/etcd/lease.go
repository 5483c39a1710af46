package etcd

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"thermocline/metadata"
)

// Lease implements metadata.Store. The client's own KeepAlive gives up by its
// own clock when the server is silent; here only the server's word counts, so
// the lease is renewed call by call.
func (s *Store) Lease(parent context.Context, ttl time.Duration) (*metadata.Lease, error) {
	seconds := int64((ttl + time.Second - 1) / time.Second)
	ctx, cancel := s.call(parent)
	defer cancel()
	resp, err := s.client.Grant(ctx, seconds)
	if err != nil {
		return nil, s.fail(parent, "etcd: grant lease", err)
	}
	// The server raises a TTL that is shorter than its own elections.
	every := time.Duration(resp.TTL) * time.Second / renewals
	lost := make(chan struct{})
	renewing, stop := context.WithCancel(s.ctx)
	stopped := make(chan struct{})
	started := s.spawn(func() {
		defer close(stopped)
		defer stop()
		s.renew(renewing, resp.ID, every, lost)
	})
	if !started {
		stop()
		return nil, fmt.Errorf("etcd: grant lease: %w", metadata.ErrClosed)
	}
	var once sync.Once
	var releaseErr error
	release := func(ctx context.Context) error {
		stop()
		<-stopped
		once.Do(func() { releaseErr = s.revoke(ctx, resp.ID) })
		return releaseErr
	}
	return &metadata.Lease{ID: metadata.LeaseID(resp.ID), Lost: lost, Release: release}, nil
}

// renew keeps a lease alive until ctx ends or the server says it is gone.
func (s *Store) renew(ctx context.Context, id clientv3.LeaseID, every time.Duration, lost chan<- struct{}) {
	t := time.NewTicker(every)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		call, cancel := s.call(ctx)
		_, err := s.client.KeepAliveOnce(call, id)
		cancel()
		if errors.Is(err, rpctypes.ErrLeaseNotFound) {
			close(lost)
			return
		}
		// Any other error is an outage: the next tick tries again, and the
		// server decides what became of the lease meanwhile.
	}
}

// revoke ends a lease; one that is gone already has ended.
func (s *Store) revoke(parent context.Context, id clientv3.LeaseID) error {
	ctx, cancel := s.call(parent)
	defer cancel()
	if _, err := s.client.Revoke(ctx, id); err != nil && !errors.Is(err, rpctypes.ErrLeaseNotFound) {
		return s.fail(parent, "etcd: revoke lease", err)
	}
	return nil
}
