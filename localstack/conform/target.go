package conform

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"thermocline/localstack/faults"
	"thermocline/localstack/processes"
)

// Target is the cluster that the clients talk to.
type Target interface {
	// Bootstrap lists the brokers' addresses.
	Bootstrap() []string
	// Stop ends the broker with a node id: at once (kill) or, after it has
	// handed its leadership over, by itself.
	Stop(ctx context.Context, node int32, kill bool) error
	// Start starts it again and waits until it is ready.
	Start(ctx context.Context, node int32) error
	Close() error
}

// External is a cluster that was there before.
type External []string

// Bootstrap is the list itself.
func (e External) Bootstrap() []string { return e }

var errExternal = errors.New("BOOTSTRAP names a cluster whose brokers this run did not start, and does not stop")

// Stop is refused.
func (e External) Stop(context.Context, int32, bool) error { return errExternal }

// Start is refused.
func (e External) Start(context.Context, int32) error { return errExternal }

// Close leaves the cluster as it is.
func (e External) Close() error { return nil }

// Thermocline is three brokers as processes.
type Thermocline struct{ c *processes.Cluster }

// StartThermocline starts a cluster of the binary below dir.
func StartThermocline(ctx context.Context, binary, dir string) (*Thermocline, error) {
	c, err := processes.Start(ctx, processes.Options{Binary: binary, Dir: dir})
	if err != nil {
		return nil, err
	}
	if err := faults.ReadyAll(ctx, c); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return &Thermocline{c}, nil
}

// Bootstrap lists the brokers' addresses.
func (t *Thermocline) Bootstrap() []string { return t.c.Bootstrap() }

// Stop ends a broker.
func (t *Thermocline) Stop(_ context.Context, node int32, kill bool) error {
	p := t.c.Brokers[node-1]
	if kill {
		return p.Kill()
	}
	return p.Stop()
}

// Start starts a broker again.
func (t *Thermocline) Start(ctx context.Context, node int32) error {
	return faults.Restart(ctx, t.c, int(node)-1)
}

// Close ends all processes.
func (t *Thermocline) Close() error { return t.c.Close() }

// Faults carries out what drivers ask for, one broker at a time.
type Faults struct {
	Target Target
	mu     sync.Mutex
	away   int32 // the node that is stopped, 0 for none
}

// faultLimit bounds one stop or start.
const faultLimit = 3 * time.Minute

// Asked answers a driver.
func (f *Faults) Asked(ctx context.Context, a Ask) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, faultLimit)
	defer cancel()
	if a.Ask == "restore" {
		return f.restore(ctx)
	}
	if _, ok := f.Target.(External); ok {
		return errExternal
	}
	if f.away != 0 {
		return fmt.Errorf("broker %d is stopped already", f.away)
	}
	node, err := f.find(ctx, a)
	if err != nil {
		return err
	}
	if err := f.Target.Stop(ctx, node, a.Ask != "move-leader"); err != nil {
		return err
	}
	f.away = node
	return nil
}

// Restore brings back a broker that a driver left stopped.
func (f *Faults) Restore(ctx context.Context) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, faultLimit)
	defer cancel()
	return f.restore(ctx)
}

func (f *Faults) restore(ctx context.Context) error {
	if f.away == 0 {
		return nil
	}
	if err := f.Target.Start(ctx, f.away); err != nil {
		return err
	}
	f.away = 0
	return nil
}

// find is the broker that leads the partition or coordinates the group.
func (f *Faults) find(ctx context.Context, a Ask) (int32, error) {
	cl, err := kgo.NewClient(kgo.SeedBrokers(f.Target.Bootstrap()...))
	if err != nil {
		return 0, err
	}
	defer cl.Close()
	adm := kadm.NewClient(cl)
	switch a.Ask {
	case "kill-leader", "move-leader":
		topics, err := adm.ListTopics(ctx, a.Topic)
		if err != nil {
			return 0, err
		}
		p, ok := topics[a.Topic].Partitions[a.Partition]
		if !ok || p.Leader < 0 {
			return 0, fmt.Errorf("partition %d of %s has no leader (%v, %v)", a.Partition, a.Topic, topics[a.Topic].Err, p.Err)
		}
		return p.Leader, nil
	case "kill-coordinator":
		found := adm.FindGroupCoordinators(ctx, a.Group)
		c, ok := found[a.Group]
		if !ok || c.Err != nil {
			return 0, fmt.Errorf("group %s has no coordinator: %w", a.Group, c.Err)
		}
		return c.NodeID, nil
	}
	return 0, fmt.Errorf("the runner does not know how to %q", a.Ask)
}
