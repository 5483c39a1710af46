package coordinator

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"thermocline/ingest/group"
	"thermocline/ingest/partition"
	"thermocline/metadata"
	"thermocline/wal/shard"
)

// TestCommitSurvives: what was acknowledged is there for the next runtime.
func TestCommitSurvives(t *testing.T) {
	bubble(t, func(t *testing.T, g *rig) {
		for i := range 20 {
			g.commit(fmt.Sprintf("g%d", i), 0, int64(i))
			g.commit(fmt.Sprintf("g%d", i), 1, int64(100+i))
		}
		g.want("before", g.fetch("g7"), "0=7 1=107")
		g.runtime.Close()
		if _, err := g.try("g7", fetchRequest("g7")); err != kerr.CoordinatorNotAvailable && err != kerr.NotCoordinator {
			t.Fatalf("submit to a closed runtime: %v", err)
		}
		g.start()
		for i := range 20 {
			g.want("after", g.fetch(fmt.Sprintf("g%d", i)), fmt.Sprintf("0=%d 1=%d", i, 100+i))
		}
		synctest.Wait()
		st := g.runtime.Stats()
		g.want("slots", st.Slots, slotCount)
		g.want("serving", st.Serving, slotCount)
		g.want("loads", st.Loads, int64(slotCount))
		g.want("queued", st.Queued, 0)
		g.want("calls", st.Calls, int64(20))
	})
}

// TestTimersFire: a join is answered when the rebalance's delay has passed.
func TestTimersFire(t *testing.T) {
	bubble(t, func(t *testing.T, g *rig) {
		begin := time.Now()
		r := g.await(g.submit("g", joinRequest("g"))).(*kmsg.JoinGroupResponse)
		g.want("error", r.ErrorCode, int16(0))
		if took := time.Since(begin); took < 3*time.Second || took > 4*time.Second {
			t.Fatalf("join: expected an answer after 3 s, found one after %v", took)
		}
	})
}

// TestLostLeadershipAnswersEverybody: whoever waits for a write, a timer or a
// confirmation, or in the queue.
func TestLostLeadershipAnswersEverybody(t *testing.T) {
	bubble(t, func(t *testing.T, g *rig) {
		g.commit("h", 0, 1)
		join := g.submit("g", joinRequest("g"))
		g.unanswered(join)
		g.gate.with(func(b *gate) { b.hold, b.holdRead = true, true })
		commit := g.submit("h", commitRequest("h", 0, 2))
		first := g.submit("g", fetchRequest("g"))
		g.unanswered(first) // its confirmation is under way
		second := g.submit("g", fetchRequest("g"))
		g.unanswered(commit)
		g.unanswered(second)
		g.gate.lead(false)
		g.want("join", g.await(join).(*kmsg.JoinGroupResponse).ErrorCode, kerr.NotCoordinator.Code)
		g.want("commit", g.commitCode(commit), kerr.NotCoordinator.Code)
		g.want("first", g.fetched(first), "NOT_COORDINATOR")
		g.want("second", g.fetched(second), "NOT_COORDINATOR")
		synctest.Wait()
		if _, err := g.try("g", fetchRequest("g")); err != kerr.NotCoordinator {
			t.Fatalf("submit without leadership: %v", err)
		}
		g.want("slots", len(g.runtime.Slots()), 0)
		// The write comes through after all, and nobody is answered twice.
		g.gate.release()
		synctest.Wait()
		for _, a := range []*answered{join, commit, first, second} {
			g.unanswered(a)
		}
		g.gate.lead(true)
		synctest.Wait()
		g.want("after", g.fetch("h"), "0=2")
		g.commit("h", 0, 3)
		g.want("after", g.fetch("h"), "0=3")
	})
}

// TestTermChange: leadership that was lost and won between two looks counts as lost.
func TestTermChange(t *testing.T) {
	bubble(t, func(t *testing.T, g *rig) {
		g.gate.with(func(b *gate) { b.hold = true })
		commit := g.submit("g", commitRequest("g", 0, 2))
		g.unanswered(commit)
		g.gate.with(func(b *gate) { b.terms++ })
		g.gate.lead(true)
		g.want("commit", g.commitCode(commit), kerr.NotCoordinator.Code)
		g.gate.release()
		synctest.Wait()
		g.want("after", g.fetch("g"), "0=2")
	})
}

// TestFailedWriteReloads: the coordinator begins anew from what is replicated.
func TestFailedWriteReloads(t *testing.T) {
	bubble(t, func(t *testing.T, g *rig) {
		g.commit("g", 0, 1)
		var lost *shard.Proposal
		g.gate.with(func(b *gate) {
			b.spoil = func(p *shard.Proposal) error {
				if lost != nil {
					return nil
				}
				lost = p
				return shard.ErrUnknownFate
			}
		})
		g.want("commit", g.commitCode(g.submit("g", commitRequest("g", 0, 2))), kerr.NotCoordinator.Code)
		g.reloaded("g")
		g.want("not written", g.fetch("g"), "0=1")
		// The lost write comes to be applied, under the number that the new
		// coordinator takes for its own.
		done := make(chan shard.Outcome, 1)
		late := &shard.Proposal{Commands: lost.Commands, Acks: shard.AcksAll, Done: func(o []shard.Outcome) { done <- o[0] }}
		if !g.gate.runner.Propose(late) {
			t.Fatal("refused")
		}
		if o := <-done; o.Err != nil {
			t.Fatal(o.Err)
		}
		g.want("stale", g.commitCode(g.submit("g", commitRequest("g", 0, 3))), kerr.NotCoordinator.Code)
		g.reloaded("g")
		g.want("the late write", g.fetch("g"), "0=2")
		g.commit("g", 0, 4)
		g.want("after", g.fetch("g"), "0=4")
		g.want("failures", g.runtime.Stats().WriteFailures, int64(2))
	})
}

// reloaded waits until a group's slot takes calls again.
func (g *rig) reloaded(name string) {
	g.t.Helper()
	for end := time.Now().Add(patience); time.Now().Before(end); {
		a, err := g.try(name, fetchRequest(name))
		if err == nil && !strings.Contains(g.fetched(a), "COORDINATOR") {
			return
		}
		if err != nil && err != kerr.CoordinatorLoadInProgress && err != kerr.CoordinatorNotAvailable {
			g.t.Fatalf("submit while reloading: %v", err)
		}
		<-time.After(tickMin)
	}
	g.t.Fatalf("the slot of %s takes no calls", name)
}

// TestWriteBehindAFailedOne: all are answered when one fails, and none is taken
// until the shard has answered for all.
func TestWriteBehindAFailedOne(t *testing.T) {
	bubble(t, func(t *testing.T, g *rig) {
		n := 0
		g.gate.with(func(b *gate) {
			b.hold = true
			b.spoil = func(*shard.Proposal) error {
				if n++; n == 2 {
					return shard.ErrDropped
				}
				return nil
			}
		})
		var all []*answered
		for i := range int64(2) {
			all = append(all, g.submit("g", commitRequest("g", 0, i)))
			synctest.Wait()
		}
		// The second's answer has come, the first one's has not.
		for _, a := range all {
			g.want("code", g.commitCode(a), kerr.NotCoordinator.Code)
		}
		if _, err := g.try("g", fetchRequest("g")); err == nil {
			t.Fatal("a call is taken while the old coordinator's writes are on their way")
		}
		g.gate.release()
		g.reloaded("g")
		g.want("after", g.fetch("g"), "0=0")
	})
}

// TestQueueIsBounded: more than QueueMax calls are refused, none is lost.
func TestQueueIsBounded(t *testing.T) {
	bubble(t, func(t *testing.T, g *rig) {
		g.commit("g", 0, 9)
		g.gate.with(func(b *gate) { b.holdRead = true })
		var all []*answered
		for {
			a, err := g.try("g", fetchRequest("g"))
			if err == kerr.CoordinatorLoadInProgress {
				break
			}
			if err != nil || len(all) > 2*QueueMax {
				t.Fatalf("call %d: %v", len(all), err)
			}
			all = append(all, a)
			if len(all)%100 == 0 {
				synctest.Wait() // the goroutine takes them out of the queue
			}
		}
		if n := len(all); n < QueueMax || n > QueueMax+callsPerPass {
			t.Fatalf("queue: expected some %d calls, found %d", QueueMax, n)
		}
		if st := g.runtime.Stats(); st.Queued < QueueMax || st.Refused != 1 {
			t.Fatalf("stats: %+v", st)
		}
		g.gate.release()
		for _, a := range all {
			g.want("fetch", g.fetched(a), "0=9")
		}
	})
}

// TestShardWithoutRoom: a full queue is waited out, a log that stays full is not.
func TestShardWithoutRoom(t *testing.T) {
	bubble(t, func(t *testing.T, g *rig) {
		g.gate.with(func(b *gate) { b.full = shard.ErrBusy })
		a := g.submit("g", commitRequest("g", 0, 1))
		b := g.submit("g", commitRequest("g", 0, 2))
		g.unanswered(a)
		<-time.After(stallMax / 2)
		g.gate.with(func(b *gate) { b.full = nil })
		g.want("first", g.commitCode(a), int16(0))
		g.want("second", g.commitCode(b), int16(0))
		g.gate.with(func(b *gate) { b.full = shard.ErrLogFull })
		begin := time.Now()
		g.want("full log", g.commitCode(g.submit("g", commitRequest("g", 0, 3))), kerr.NotCoordinator.Code)
		if took := time.Since(begin); took < stallMax || took > stallMax+time.Second {
			t.Fatalf("expected an answer after %v, found one after %v", stallMax, took)
		}
		g.reloaded("g")
		g.want("reads go on", g.fetch("g"), "0=2")
		g.gate.with(func(b *gate) { b.full = nil })
		g.commit("g", 0, 4)
	})
}

// TestStopAnswersEverybody: also while a write, a confirmation and a load hang.
func TestStopAnswersEverybody(t *testing.T) {
	bubble(t, func(t *testing.T, g *rig) {
		g.gate.with(func(b *gate) { b.hold, b.holdRead = true, true })
		all := []*answered{g.submit("g", joinRequest("g")), g.submit("g", fetchRequest("g"))}
		synctest.Wait()
		all = append(all, g.submit("h", commitRequest("h", 0, 1)), g.submit("g", fetchRequest("g")))
		g.runtime.Remove(testShard)
		for _, a := range all {
			if len(a.c) != 1 {
				t.Fatalf("%s: expected one answer when Remove returns, found %d", a.what, len(a.c))
			}
		}
		g.want("commit", g.commitCode(all[2]), kerr.NotCoordinator.Code)
		if _, err := g.try("g", fetchRequest("g")); err != kerr.NotCoordinator {
			t.Fatalf("submit after Remove: %v", err)
		}
		// Stopped while loading.
		g.gate.with(func(b *gate) { b.hold = false })
		g.runtime.Add(testShard, g.gate)
		synctest.Wait()
		a := g.submit("g", fetchRequest("g"))
		g.unanswered(a)
		g.runtime.Remove(testShard)
		g.want("while loading", g.fetched(a), "NOT_COORDINATOR")
		g.gate.release()
	})
}

// TestReadsAreConfirmed: each read is confirmed after it came; those that come
// while one is under way share the next.
func TestReadsAreConfirmed(t *testing.T) {
	bubble(t, func(t *testing.T, g *rig) {
		g.commit("g", 0, 1)
		g.gate.with(func(b *gate) { b.holdRead, b.asked = true, 0 })
		first := g.submit("g", fetchRequest("g"))
		g.unanswered(first)
		var others []*answered
		for range 10 {
			others = append(others, g.submit("g", fetchRequest("g")))
		}
		synctest.Wait()
		g.gate.with(func(b *gate) { g.want("rounds", b.asked, 1) })
		g.commit("g", 0, 2) // goes on meanwhile
		g.gate.release()
		g.want("first", g.fetched(first), "0=2")
		for _, a := range others {
			g.want("other", g.fetched(a), "0=2")
		}
		g.gate.with(func(b *gate) { g.want("rounds", b.asked, 2) })
		g.gate.with(func(b *gate) { b.readErr = shard.ErrBusy })
		g.want("busy", g.fetch("g"), "COORDINATOR_LOAD_IN_PROGRESS")
		g.gate.with(func(b *gate) { b.readErr = shard.ErrNotLeader })
		g.want("deposed", g.fetch("g"), "NOT_COORDINATOR")
		g.gate.with(func(b *gate) { b.readErr = nil })
		g.want("after", g.fetch("g"), "0=2")
	})
}

// TestListsAndDescribes: what handlers ask of all slots.
func TestListsAndDescribes(t *testing.T) {
	bubble(t, func(t *testing.T, g *rig) {
		var expected []string
		for i := range 30 {
			g.commit(fmt.Sprintf("g%d", i), 0, 1)
			expected = append(expected, fmt.Sprintf("g%d", i))
		}
		var found []string
		for _, slot := range g.runtime.Slots() {
			a := &answered{"list", make(chan kmsg.Response, 1)}
			r := kmsg.NewPtrListGroupsRequest()
			if err := g.runtime.SubmitSlot(slot, group.Call{Request: r, Reply: func(r kmsg.Response) { a.c <- r }}); err != nil {
				t.Fatal(err)
			}
			for _, one := range g.await(a).(*kmsg.ListGroupsResponse).Groups {
				found = append(found, one.Group)
			}
		}
		slices.Sort(found)
		slices.Sort(expected)
		g.want("groups", strings.Join(found, " "), strings.Join(expected, " "))
	})
}

// TestDamagedSlot: a record that cannot be read takes its slot out of service,
// not the others, until it can be read.
func TestDamagedSlot(t *testing.T) {
	bubble(t, func(t *testing.T, g *rig) {
		g.commit("g", 0, 1)
		slot := metadata.CoordinatorSlot("g", slotCount)
		g.spoilSlot(slot, []byte("x"))
		g.gate.lead(false)
		synctest.Wait()
		g.gate.lead(true)
		synctest.Wait()
		if _, err := g.try("g", fetchRequest("g")); err != kerr.CoordinatorNotAvailable {
			t.Fatalf("submit to a damaged slot: %v", err)
		}
		g.want("slots", len(g.runtime.Slots()), slotCount)
		st := g.runtime.Stats()
		g.want("serving", st.Serving, slotCount-1)
		g.want("damaged", st.Damaged, int64(1))
		g.spoilSlot(slot, nil)
		g.reloaded("g")
		g.want("after", g.fetch("g"), "0=1")
	})
}

// spoilSlot writes a record that no coordinator knows, or removes it.
func (g *rig) spoilSlot(slot uint32, value []byte) {
	g.t.Helper()
	g.write(&partition.CoordinatorWrite{Slot: slot, After: g.gate.set.Slot(slot).Number, Records: []partition.CoordinatorRecord{{Key: "\xff", Value: value}}})
}

// write writes to a slot behind the coordinators' backs.
func (g *rig) write(c *partition.CoordinatorWrite) {
	g.t.Helper()
	done := make(chan shard.Outcome, 1)
	if !g.gate.runner.Propose(&shard.Proposal{Commands: []any{c}, Acks: shard.AcksAll, Done: func(o []shard.Outcome) { done <- o[0] }}) {
		g.t.Fatal("refused")
	}
	if o := <-done; o.Err != nil {
		g.t.Fatal(o.Err)
	}
}

// TestPlacement: slots begin when they are placed, and stay where they are.
func TestPlacement(t *testing.T) {
	bubble(t, func(t *testing.T, g *rig) {
		r := New(Options{Settings: group.DefaultOptions, Topics: func() group.Topics { return topicSet{} }})
		defer r.Close()
		call := group.Call{Request: fetchRequest("g"), Reply: func(kmsg.Response) {}}
		g.want("not placed", r.Submit("g", call), kerr.CoordinatorNotAvailable)
		r.Place(nil)
		r.Add(testShard, g.gate)
		r.Place([]metadata.ShardID{testShard, 9})
		r.Place([]metadata.ShardID{9, 9})
		synctest.Wait()
		g.want("slots", fmt.Sprint(r.Slots()), "[0]")
		g.want("elsewhere", r.SubmitSlot(1, call), kerr.NotCoordinator)
		g.want("nowhere", r.SubmitSlot(2, call), kerr.NotCoordinator)
	})
}

// TestTopicsAndSettings: what changes around a coordinator reaches it.
func TestTopicsAndSettings(t *testing.T) {
	bubble(t, func(t *testing.T, g *rig) {
		g.commit("g", 0, 1)
		r := commitRequest("g", 0, 2).(*kmsg.OffsetCommitRequest)
		r.Topics[0].Partitions[0].Metadata = kmsg.StringPtr("abcdef")
		g.want("metadata", g.commitCode(g.submit("g", r)), int16(0))
		g.mu.Lock()
		g.options.OffsetMetadataMax = 3
		g.settings++
		g.mu.Unlock()
		g.want("metadata", g.commitCode(g.submit("g", r)), kerr.OffsetMetadataTooLarge.Code)
		g.mu.Lock()
		delete(g.cluster, "orders")
		g.mu.Unlock()
		g.runtime.TopicsChanged()
		synctest.Wait()
		g.want("deleted topic", g.fetch("g"), "")
	})
}

// TestManyCallers: groups that commit all at once, over leadership that comes
// and goes: what was acknowledged last, or something sent after it, is there.
func TestManyCallers(t *testing.T) {
	bubble(t, func(t *testing.T, g *rig) {
		const callers, commits = 16, 60
		var wg sync.WaitGroup
		acked := make([]int64, callers)
		stop := make(chan struct{})
		go func() {
			rng := rand.New(rand.NewPCG(1, 1))
			for {
				select {
				case <-stop:
					return
				case <-time.After(time.Duration(1+rng.IntN(400)) * time.Millisecond):
				}
				g.gate.lead(false)
				<-time.After(time.Duration(rng.IntN(3)) * time.Millisecond)
				g.gate.lead(true)
			}
		}()
		for i := range callers {
			wg.Go(func() {
				name := fmt.Sprintf("g%d", i)
				for n := range int64(commits) {
					a, err := g.try(name, commitRequest(name, 0, n))
					if err == nil && g.commitCode(a) == 0 {
						acked[i] = n
					}
					<-time.After(time.Duration(n%7) * time.Millisecond)
				}
			})
		}
		wg.Wait()
		close(stop)
		synctest.Wait()
		g.gate.lead(true)
		total := 0
		for i := range callers {
			name := fmt.Sprintf("g%d", i)
			g.reloaded(name)
			var found int64
			if _, err := fmt.Sscanf(g.fetch(name), "0=%d", &found); err != nil || found < acked[i] {
				t.Fatalf("%s: expected at least %d, found %d, %v", name, acked[i], found, err)
			}
			total += int(acked[i])
		}
		if total < callers*commits/2 {
			t.Fatalf("of %d commits the acknowledged ones end at %d in sum: too few for a test", callers*commits, total)
		}
	})
}

// TestSlotNumbersFit: every slot of the metadata can be written.
func TestSlotNumbersFit(t *testing.T) {
	if metadata.CoordinatorSlotsMax > partition.MaxCoordinatorSlots {
		t.Fatalf("expected at most %d slots, the metadata takes %d", partition.MaxCoordinatorSlots, metadata.CoordinatorSlotsMax)
	}
}

// TestLogIsTrimmed: a shard with nothing but coordinator records needs no
// segment to trim its log, and comes back from its snapshot with all of them.
func TestLogIsTrimmed(t *testing.T) {
	bubble(t, func(t *testing.T, g *rig) {
		value := make([]byte, 64<<10)
		for n := range uint64(200) {
			g.write(&partition.CoordinatorWrite{Slot: slotCount, After: n, Records: []partition.CoordinatorRecord{{Key: "k", Value: value}}})
		}
		g.commit("g", 0, 7)
		synctest.Wait()
		st, err := g.gate.runner.Status(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if st.FirstIndex < 100 || st.LogBytes > 4<<20 {
			t.Fatalf("after 12.5 MiB of records under one key: expected a short log, found %d bytes from index %d on", st.LogBytes, st.FirstIndex)
		}
		g.runtime.Close()
		g.gate.reopen()
		g.start()
		g.want("after", g.fetch("g"), "0=7")
		g.want("number", g.gate.set.Slot(slotCount).Number, uint64(200))
		g.commit("g", 0, 8)
	})
}
