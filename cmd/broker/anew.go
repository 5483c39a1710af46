package broker

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"thermocline/metadata"
	"thermocline/wal"
)

// damagedDir is where a log that recovery found damaged is put aside, below
// data.dir. Only the newest is kept; no broker reads it.
const damagedDir = "wal.damaged"

// judgeLog decides what a data directory is worth, once the metadata is known.
// A replica that has lost its log must not take part under its old id: it may
// have voted, and acknowledged records, that it knows nothing of any more. So
// the directory becomes another replica, which the shards' leaders fill.
//
// damage is what recovery says of the log, nil if it is sound.
func (b *Broker) judgeLog(damage error) error {
	if damage == nil {
		if len(b.recovered) > 0 || !b.expectsLog() {
			return nil
		}
		b.log.Error("the log of this data directory is gone: it takes part as another replica", "dir", b.cfg.DataDir, "replica", b.replica.String())
		return b.renew()
	}
	if err := b.othersSuffice(); err != nil {
		return fmt.Errorf("%w: %w", damage, err)
	}
	b.log.Error("the log is damaged: it is put aside, and this data directory takes part as another replica",
		"dir", filepath.Join(b.cfg.DataDir, damagedDir), "replica", b.replica.String(), "error", damage)
	aside := filepath.Join(b.cfg.DataDir, damagedDir)
	if err := os.RemoveAll(aside); err != nil {
		return err
	}
	// A new identity first: after a crash in between, the damaged log is found
	// again, under an id that no shard names, and put aside again.
	if err := b.renew(); err != nil {
		return err
	}
	if err := os.Rename(filepath.Join(b.cfg.DataDir, walDir), aside); err != nil {
		return err
	}
	return b.openLog()
}

// expectsLog: a shard that has been led counts on this replica.
func (b *Broker) expectsLog() bool {
	c := b.view.Cluster()
	for _, row := range c.Shards {
		if _, led := c.Leader(row.ID); led && member(row, b.replica) {
			return true
		}
	}
	return false
}

func member(row *metadata.Shard, id metadata.ReplicaID) bool {
	for _, r := range row.Replicas {
		if r.ID == id {
			return true
		}
	}
	return false
}

// othersSuffice: every shard that counts on this replica has its quorum without
// it. Damage on several brokers at once is for the operator to look at, before
// anything is put aside.
func (b *Broker) othersSuffice() error {
	c := b.view.Cluster()
	for _, row := range c.Shards {
		if !member(row, b.replica) {
			continue
		}
		alive := 0
		for _, r := range row.Replicas {
			if o := c.Broker(r.Broker); r.ID != b.replica && o != nil && o.Alive && o.Replica == r.ID {
				alive++
			}
		}
		if alive <= len(row.Replicas)/2 {
			return fmt.Errorf("broker %d: shard %d has %d of %d replicas without this one: expected a majority before its log is put aside; start the other brokers first",
				b.id, row.ID, alive, len(row.Replicas))
		}
	}
	return nil
}

// renew makes the data directory another replica's.
func (b *Broker) renew() error {
	path := filepath.Join(b.cfg.DataDir, identityFile)
	replica, id, err := newIdentity(path, b.id)
	if err != nil {
		return err
	}
	b.replica = replica
	return id.join(b.cfg.DataDir, b.view.Cluster().Info.ID)
}

// damaged tells the error of a log that cannot be what it was.
func damaged(err error) bool { return errors.Is(err, wal.ErrCorrupt) }
