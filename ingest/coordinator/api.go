package coordinator

import (
	"log/slog"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"thermocline/ingest/group"
	"thermocline/ingest/partition"
	"thermocline/wal/shard"
)

// Replica is what a slot needs of this broker's replica of its shard.
type Replica interface {
	State() *partition.Set
	Propose(p *shard.Proposal) bool
	Intake(class shard.Class) error
	Leadership() shard.Leadership
	ReadIndex(done func(error))
	// Subscribe calls fn, which does not block, at each change of leadership.
	Subscribe(fn func(shard.Leadership)) (cancel func())
}

// Machine is what runs in a slot: group.Coordinator is one, and says what its
// methods mean.
type Machine interface {
	Load(key string, value []byte) error
	Loaded(now int64)
	Handle(now int64, call group.Call)
	Tick(now int64)
	Deadline() (int64, bool)
	SetTopics(now int64, t group.Topics)
	Configure(o group.Options)
	Writes() []group.Write
	Written(number uint64)
	Unload(err *kerr.Error)
}

// Options say what a Runtime works with.
type Options struct {
	// Settings returns the limits and defaults as they are now, and what single
	// groups have of their own. It is asked when a slot loads, and before a slot
	// works on what has come when SettingsVersion has risen.
	Settings func() group.Options
	// SettingsVersion rises with each change of what Settings returns. It is
	// asked often: it must cost next to nothing. Nil: nothing changes.
	SettingsVersion func() int64
	// Topics returns the cluster's topics as they are now. It is asked by New
	// and by TopicsChanged.
	Topics func() group.Topics
	// New makes a slot's coordinator; nil is group.New.
	New func(o group.Options, t group.Topics) Machine
	// Now is the clock; nil is time.Now.
	Now    func() time.Time
	Logger *slog.Logger
}

// Limits of a slot.
const (
	// QueueMax bounds the calls that wait in a slot, of which some may wait for
	// a confirmation of leadership: thousands of members that all come back
	// after a failover.
	QueueMax = 4096
	// callsPerPass bounds the calls between two looks at what else has come.
	callsPerPass = 256
	// inflightWrites and inflightBytes stop the intake of calls while so much is
	// on its way through the shard.
	inflightWrites = 4096
	inflightBytes  = 8 << 20
	// proposalBytes closes a proposal: the shard's queue takes 16 MiB.
	proposalBytes = 1 << 20
)

const (
	// stallRetry is the pause before a shard that had no room is asked again,
	// and stallMax how long that may go on before the slot is loaded anew.
	stallRetry = 5 * time.Millisecond
	stallMax   = 5 * time.Second
	// pauseMin and pauseMax bound the pause before a slot is loaded again; it
	// doubles until a write succeeds.
	pauseMin = 20 * time.Millisecond
	pauseMax = 5 * time.Second
	// tickMin is the shortest pause between two looks at the timers.
	tickMin = time.Millisecond
	// tickLate is how long, in milliseconds, a timer that is due waits at most
	// behind calls.
	tickLate = 1000
)

// Stats are a Runtime's counters.
type Stats struct {
	// Slots are led here now; Serving of them are loaded.
	Slots, Serving int
	// Queued calls wait now.
	Queued int
	// Since the start: calls taken, calls refused although the shard is led here,
	// slots loaded, slots that could not be read, and slots unloaded because a
	// write failed.
	Calls, Refused, Loads, Damaged, WriteFailures int64
}
