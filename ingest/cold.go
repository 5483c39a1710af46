package ingest

import (
	"context"
	"sync"

	"thermocline/index"
	"thermocline/ingest/partition"
)

// indexPartition names the cold part of a partition as of one view.
func indexPartition(v *partition.View) index.Partition {
	return index.Partition{Manifest: v.Manifest, Ref: v.Ref, LogStart: v.LogStart, TieredEnd: v.TieredEnd}
}

// coldRead is one read from the object store on behalf of a fetch. It runs on
// a goroutine of its own that outlives the fetch: what it has downloaded is
// in the cache when the client asks again.
type coldRead struct {
	offset   int64
	reserved int64 // of Server.coldBytes

	mu        sync.Mutex
	done      bool
	abandoned bool
	data      *index.Data
	err       error
}

// startCold starts a read of a partition, or returns nil when there are too many
// of them. wake is called when it is done.
func (s *Server) startCold(t target, req index.ReadRequest, wake func()) *coldRead {
	reserve := min(int64(req.MaxBytes), s.coldBytes.total)
	if !s.coldSlots.TryAcquire(1) {
		return nil
	}
	if !s.coldBytes.sem.TryAcquire(reserve) {
		s.coldSlots.Release(1)
		return nil
	}
	c := &coldRead{offset: req.Offset, reserved: reserve}
	s.wg.Go(func() {
		ctx, cancel := context.WithTimeout(s.ctx, coldWait)
		defer cancel()
		data, err := s.cold.Read(ctx, req)
		s.coldSlots.Release(1)
		if err != nil {
			s.coldFailed(&t, req.Offset, err)
		}
		c.mu.Lock()
		c.done, c.data, c.err = true, data, err
		abandoned := c.abandoned
		c.mu.Unlock()
		if abandoned {
			s.releaseCold(c)
			return
		}
		wake()
	})
	return c
}

// result returns what the read has brought, if it is done.
func (c *coldRead) result() (data *index.Data, err error, done bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.data, c.err, c.done
}

// dropCold gives a read up: its memory is free at once, or when it is done.
func (s *Server) dropCold(c *coldRead) {
	c.mu.Lock()
	c.abandoned = true
	done := c.done
	c.mu.Unlock()
	if done {
		s.releaseCold(c)
	}
}

func (s *Server) releaseCold(c *coldRead) {
	if c.data != nil {
		c.data.Release()
		c.data = nil
	}
	s.coldBytes.give(c.reserved)
	c.reserved = 0
}
