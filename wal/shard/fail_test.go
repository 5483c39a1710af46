package shard

import (
	"context"
	"errors"
	"testing"
	"time"
)

// A replica that goes out of service says at once that it leads nothing, however
// it learns of it: what works for the leader (coordinators, tiering, fetches)
// would go on with what was true before.
func TestFailedReplicaGivesUpItsRole(t *testing.T) {
	broken := errors.New("disk says no")
	for name, breakLog := range map[string]func(*runnerCluster, int, *Runner){
		"an append fails": func(c *runnerCluster, i int, r *Runner) {
			c.logs[i].mu.Lock()
			c.logs[i].mem.failNext = broken
			c.logs[i].mu.Unlock()
			r.Propose(&Proposal{Commands: []any{put(1)}, Bytes: 32, Acks: AcksAll, Done: func([]Outcome) {}})
		},
		"another shard's append fails": func(_ *runnerCluster, _ int, r *Runner) { r.Fail(broken) },
	} {
		t.Run(name, func(t *testing.T) {
			c := newRunnerCluster(t)
			defer c.stop()
			l := c.ready()
			told := make(chan Leadership, 16)
			defer l.Subscribe(func(now Leadership) { told <- now })()
			breakLog(c, int(l.c.Core.ID)-1, l)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			for now := l.Leadership(); now.Ready || now.Leader != 0; {
				select {
				case now = <-told:
				case <-ctx.Done():
					t.Fatalf("still says %+v", now)
				}
			}
			if !errors.Is(l.Failed(), broken) || !errors.Is(l.Intake(ClassSystem), ErrStopped) {
				t.Errorf("failed %v, intake %v; expected %v and %v", l.Failed(), l.Intake(ClassSystem), broken, ErrStopped)
			}
		})
	}
}
