package group

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// TestAThousandMembers: a rebalance of n members costs work in proportion to
// n, and the subscriptions are listed in one answer only.
func TestAThousandMembers(t *testing.T) {
	work := func(n int) (time.Duration, int) {
		r := newBench(t)
		ids, gen := r.large("g", n)
		begin := processorTime(t)
		lists := 0
		for range 5 {
			joins := make([]*answer, n)
			for i, id := range ids {
				joins[i] = r.send(joinReq("g", id))
			}
			for _, a := range joins {
				resp := get[*kmsg.JoinGroupResponse](r.rig, a)
				gen = resp.Generation
				if len(resp.Members) > 0 {
					lists++
				}
			}
			r.assignAll("g", gen, ids)
		}
		return processorTime(t) - begin, lists
	}
	// Other work on the machine only adds time.
	least := func(n int) (time.Duration, int) {
		best, lists := work(n)
		for range 2 {
			d, _ := work(n)
			best = min(best, d)
		}
		return best, lists
	}
	small, lists := least(250)
	if lists != 5 {
		t.Fatalf("%d answers of 5 rebalances list all members", lists)
	}
	large, _ := least(2000)
	t.Logf("5 rebalances of 250 members: %v, of 2000: %v", small, large)
	if large > small*8*5 {
		t.Fatalf("8 times the members cost %.0f times the work: %v and %v", float64(large)/float64(small), small, large)
	}
}

// processorTime is what this process has used: it does not count the work of
// others on the machine.
func processorTime(t *testing.T) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// bench is a rig that checks nothing on the way.
type bench struct{ *rig }

func newBench(t testing.TB) bench {
	return bench{newRig(t)}
}

func (b bench) send(req kmsg.Request) *answer {
	a := &answer{}
	b.c.Handle(b.now, Call{Request: req, ClientID: "client", ClientHost: b.host, Reply: func(resp kmsg.Response) { a.resp, a.n = resp, a.n+1 }})
	b.gather()
	return a
}

// large forms a group without checking on the way.
func (b bench) large(group string, n int) (ids []string, gen int32) {
	b.o.InitialRebalanceDelay = 1
	b.c.Configure(b.o)
	joins := make([]*answer, n)
	for i := range n {
		req := joinReq(group, "")
		req.Version = 3
		joins[i] = b.send(req)
	}
	b.now += 2
	b.c.Tick(b.now)
	b.gather()
	for range 2 { // the delay was extended
		b.now += 2
		b.c.Tick(b.now)
		b.gather()
	}
	for _, a := range joins {
		resp := get[*kmsg.JoinGroupResponse](b.rig, a)
		ids, gen = append(ids, resp.MemberID), resp.Generation
	}
	b.assignAll(group, gen, ids)
	return ids, gen
}

func (b bench) assignAll(group string, gen int32, ids []string) {
	syncs := make([]*answer, 0, len(ids))
	for _, id := range ids[1:] {
		syncs = append(syncs, b.send(syncReq(group, id, gen)))
	}
	syncs = append(syncs, b.send(assigning(syncReq(group, ids[0], gen), ids...)))
	for _, a := range syncs {
		get[*kmsg.SyncGroupResponse](b.rig, a)
	}
}

func BenchmarkHeartbeat(b *testing.B) {
	r := newBench(b)
	ids, gen := r.large("g", 1000)
	req := heartbeatReq("g", ids[500], gen)
	b.ReportAllocs()
	for b.Loop() {
		r.now++
		r.send(req)
	}
}

func BenchmarkCommit(b *testing.B) {
	r := newBench(b)
	ids, gen := r.large("g", 1)
	req := commitReq("g", ids[0], gen, "a", 0, 1)
	b.ReportAllocs()
	for b.Loop() {
		r.send(req)
	}
}

func BenchmarkRebalance1000(b *testing.B) {
	r := newBench(b)
	ids, gen := r.large("g", 1000)
	b.ReportAllocs()
	for b.Loop() {
		for _, id := range ids {
			r.send(joinReq("g", id))
		}
		gen++
		r.assignAll("g", gen, ids)
	}
}

func BenchmarkThousandGroups(b *testing.B) {
	r := newBench(b)
	var reqs []*kmsg.HeartbeatRequest
	for i := range 1000 {
		name := fmt.Sprint("g", i)
		ids, gen := r.large(name, 4)
		for _, id := range ids {
			reqs = append(reqs, heartbeatReq(name, id, gen))
		}
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		r.now++
		r.send(reqs[i%len(reqs)])
		if i%100 == 0 {
			r.c.Tick(r.now)
		}
	}
}

func BenchmarkLoad(b *testing.B) {
	r := newBench(b)
	for i := range 100 {
		r.large(fmt.Sprint("g", i), 10)
	}
	for i := range 100_000 {
		r.send(commitReq(fmt.Sprint("h", i%100), "", -1, "a", int32(i/100), int64(i)))
	}
	b.ReportAllocs()
	for b.Loop() {
		r.start()
	}
}
