package broker

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"thermocline/metadata"
	"thermocline/wal"
	"thermocline/wal/shard"
)

// damagedDir is where a log that recovery found damaged is put aside, below
// data.dir. Only the newest is kept; no broker reads it.
const damagedDir = "wal.damaged"

// damagedMark is a file in the log's directory that says why it is of no use any
// more: what a running broker finds is acted on at its next start.
const damagedMark = "damaged.txt"

// judgeLog decides what a data directory is worth, once the metadata is known.
// A replica that has lost its log must not take part under its old id: it may
// have voted, and acknowledged records, that it knows nothing of any more. So
// the directory becomes another replica, which the shards' leaders fill.
//
// damage is what recovery says of the log, nil if it is sound.
func (b *Broker) judgeLog(damage error) error {
	if damage == nil {
		var err error
		if damage, err = b.marked(); err != nil {
			return err
		}
	}
	if damage == nil {
		if len(b.recovered) > 0 || !b.expectsLog() {
			return nil
		}
		b.log.Error("the log of this data directory is gone: it takes part as another replica", "dir", b.cfg.DataDir, "replica", b.replica.String())
		return b.renew()
	}
	if err := othersSuffice(b.view.Cluster(), b.id, b.replica); err != nil {
		return fmt.Errorf("%w: %w", damage, err)
	}
	b.log.Error("the log is damaged: it is put aside, and this data directory takes part as another replica",
		"dir", filepath.Join(b.cfg.DataDir, damagedDir), "replica", b.replica.String(), "error", damage)
	aside := filepath.Join(b.cfg.DataDir, damagedDir)
	if b.writer != nil {
		if err := b.writer.Close(); err != nil {
			return err
		}
		b.writer = nil
	}
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
func othersSuffice(c *metadata.Cluster, broker metadata.BrokerID, replica metadata.ReplicaID) error {
	for _, row := range c.Shards {
		if !member(row, replica) {
			continue
		}
		alive := 0
		for _, r := range row.Replicas {
			if o := c.Broker(r.Broker); r.ID != replica && o != nil && o.Alive && o.Replica == r.ID {
				alive++
			}
		}
		if alive <= len(row.Replicas)/2 {
			return fmt.Errorf("broker %d: shard %d has %d of %d replicas without this one: expected a majority before its log is put aside; start the other brokers first",
				broker, row.ID, alive, len(row.Replicas))
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

// marked is the damage that an earlier run has found, nil without any.
func (b *Broker) marked() (damage, err error) {
	why, err := os.ReadFile(filepath.Join(b.cfg.DataDir, walDir, damagedMark))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return errors.New(strings.TrimSpace(string(why))), nil
}

// abandon ends the broker when a shard cannot start from what the disk holds,
// if the others do without it: at its next start the data directory takes part
// as another replica. Otherwise the broker goes on with its other shards.
func (b *Broker) abandon(damage error) error {
	if err := othersSuffice(b.view.Cluster(), b.id, b.replica); err != nil {
		return err
	}
	mark, err := os.Create(filepath.Join(b.cfg.DataDir, walDir, damagedMark))
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(mark, damage)
	if err := errors.Join(err, mark.Sync(), mark.Close()); err != nil {
		return err
	}
	b.fail(fmt.Errorf("the data directory is damaged; started again, it takes part as another replica: %w", damage))
	return nil
}

// damaged tells the error of a log that cannot be what it was.
func damaged(err error) bool { return errors.Is(err, wal.ErrCorrupt) }

// damagedShard tells the error of a shard whose snapshot is damaged or gone.
func damagedShard(err error) bool {
	return damaged(err) || errors.Is(err, shard.ErrSnapshot) || errors.Is(err, fs.ErrNotExist)
}
