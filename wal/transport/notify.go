package transport

import "sync"

// event names what a notice is about.
type event struct {
	shard   uint32
	replica uint64
}

// notifier collects notices until the one goroutine that may call the handler
// comes for them. Equal ones are merged, so it holds at most two for each
// shard and peer.
type notifier struct {
	mu        sync.Mutex
	lost      map[event]struct{}
	snapshots map[event]error
	wake      chan struct{}
}

func (n *notifier) init() {
	n.lost = map[event]struct{}{}
	n.snapshots = map[event]error{}
	n.wake = make(chan struct{}, 1)
}

func (n *notifier) unreachable(shard uint32, to uint64) {
	n.mu.Lock()
	n.lost[event{shard, to}] = struct{}{}
	n.mu.Unlock()
	n.poke()
}

func (n *notifier) snapshotSent(shard uint32, to uint64, err error) {
	n.mu.Lock()
	n.snapshots[event{shard, to}] = err
	n.mu.Unlock()
	n.poke()
}

func (n *notifier) poke() {
	select {
	case n.wake <- struct{}{}:
	default:
	}
}

// runNotifier calls the handler until the transport closes.
func (t *Transport) runNotifier() {
	for {
		select {
		case <-t.ctx.Done():
			return
		case <-t.notify.wake:
		}
		t.notify.mu.Lock()
		lost, snapshots := t.notify.lost, t.notify.snapshots
		t.notify.lost, t.notify.snapshots = map[event]struct{}{}, map[event]error{}
		t.notify.mu.Unlock()
		for e := range lost {
			t.o.Handler.Unreachable(e.shard, e.replica)
		}
		for e, err := range snapshots {
			t.o.Handler.SnapshotSent(e.shard, e.replica, err)
		}
	}
}
