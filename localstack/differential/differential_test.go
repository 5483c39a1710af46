//go:build differential

package differential

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"thermocline/localstack/faults"
	"thermocline/localstack/processes"
)

// Set by the environment: DIFFERENTIAL_SEED, DIFFERENTIAL_STEPS; to use
// brokers that run already, DIFFERENTIAL_KAFKA and DIFFERENTIAL_THERMOCLINE;
// and, to see all requests that have a text in them, a topic's or a group's
// name, with their answers, DIFFERENTIAL_TRACE.
func number(t *testing.T, name string, otherwise uint64) uint64 {
	v := os.Getenv("DIFFERENTIAL_" + name)
	if v == "" {
		return otherwise
	}
	n, err := strconv.ParseUint(v, 10, 64)
	if err != nil {
		t.Fatalf("DIFFERENTIAL_%s: write a whole number, not %q", name, v)
	}
	return n
}

func startKafka(t *testing.T) *Side {
	if addr := os.Getenv("DIFFERENTIAL_KAFKA"); addr != "" {
		return NewSide("Kafka", addr)
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	k, err := StartKafka(ctx, filepath.Join(cache, "thermocline"), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := k.Close(); err != nil {
			t.Error(err)
		}
	})
	s := NewSide("Kafka", k.Addr)
	s.logs = k.Logs
	return s
}

func startThermocline(t *testing.T) *Side {
	if addr := os.Getenv("DIFFERENTIAL_THERMOCLINE"); addr != "" {
		return NewSide("Thermocline", addr)
	}
	binary, err := faults.Build(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	dir := t.TempDir()
	c, err := processes.Start(ctx, processes.Options{Binary: binary, Dir: dir, Brokers: 1, Settings: groupSettings})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	s := NewSide("Thermocline", c.Bootstrap()[0])
	s.logs = dir
	return s
}

// readPatience is how long a read may differ: a Kafka broker learns of changes
// a moment after the controller has answered. It is asked again after readPause.
const (
	readPatience = 10 * time.Second
	readPause    = 50 * time.Millisecond
)

func TestDifferential(t *testing.T) {
	seed, steps := number(t, "SEED", uint64(time.Now().UnixNano()%1_000_000)), number(t, "STEPS", 2000)
	t.Logf("DIFFERENTIAL_SEED=%d DIFFERENTIAL_STEPS=%d", seed, steps)
	r := newRun(t, fmt.Sprintf("d%d-", seed))
	defer r.kafka.Close()
	defer r.thermocline.Close()
	defer r.report()
	// Who ends the run is to see what it has found.
	ctx, cancel := signal.NotifyContext(t.Context(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer cancel()
	r.ctx = ctx
	for _, s := range []*Side{r.kafka, r.thermocline} {
		if err := s.Create(ctx, r.world.stills()...); err != nil {
			r.broken("making topics: %v", err)
		}
	}
	r.level()
	for n := range steps {
		if ctx.Err() != nil {
			t.Fatalf("ended from outside before step %d of %d", n, steps)
		}
		if n%200 == 0 {
			t.Logf("step %d of %d, %d kinds of differences", n, steps, len(r.found))
		}
		r.step(seed, n)
	}
}

func newRun(t *testing.T, prefix string) *run {
	r := &run{t: t, kafka: startKafka(t), thermocline: startThermocline(t), trace: os.Getenv("DIFFERENTIAL_TRACE"), found: map[string]string{}}
	r.world = World{Prefix: prefix, Trimmed: map[Partition]bool{}, Groups: map[string]bool{}, Subscriptions: map[GroupMember][]string{}, Instances: map[Instance]string{}}
	r.subscribed, r.instances, r.groups = map[GroupMember][]string{}, map[Instance]string{}, map[string]bool{}
	return r
}

// report fails the test with one example of each kind of difference.
func (r *run) report() {
	for _, s := range slices.Sorted(maps.Keys(r.found)) {
		r.t.Errorf("%s\n    %s", s, r.found[s])
	}
}

// broken ends the run, with the ends of both sides' logs: one does not work.
func (r *run) broken(format string, args ...any) {
	for _, s := range []*Side{r.kafka, r.thermocline} {
		if s.logs == "" {
			continue // it was started elsewhere
		}
		for _, end := range processes.LogEnds(s.logs) {
			r.t.Logf("%s's log %s", s.Name, end)
		}
	}
	r.t.Fatalf(format, args...)
}

var long = regexp.MustCompile("x{100,}")

type run struct {
	t                  *testing.T
	ctx                context.Context // until somebody ends the run
	kafka, thermocline *Side
	world              World
	trace              string
	found              map[string]string // first example by signature
	// What the step that is asked changes of the world.
	come, gone []GroupMember
	subscribed map[GroupMember][]string // nil: nothing any more
	instances  map[Instance]string
	groups     map[string]bool // false: it is there no more
	trimmed    []Partition
}

// levelPatience is how long the sides may take to have the same topics, and
// Kafka to make its own of them first.
const levelPatience = 3 * time.Minute

// level waits until both sides have the same topics, and serve them.
func (r *run) level() {
	ctx, cancel := context.WithTimeout(r.ctx, levelPatience)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		k, kerr := r.topics(ctx, r.kafka)
		t, terr := r.topics(ctx, r.thermocline)
		_, kstill := r.kafka.ids[r.world.still(2)]
		_, tstill := r.thermocline.ids[r.world.still(2)]
		if kerr == nil && terr == nil && slices.Equal(k, t) && kstill && tstill {
			r.world.Topics = k
			if r.serves(ctx, r.kafka) && r.serves(ctx, r.thermocline) {
				return
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			if r.ctx.Err() != nil {
				r.t.Fatal("ended from outside while the sides were waited for")
			}
			r.broken("the sides have different topics, or do not serve them: Kafka %v (%v), Thermocline %v (%v)", k, kerr, t, terr)
		}
	}
}

// topics are those of this run.
func (r *run) topics(ctx context.Context, s *Side) ([]Topic, error) {
	all, err := s.Learn(ctx)
	return slices.DeleteFunc(all, func(t Topic) bool { return !strings.HasPrefix(t.Name, r.world.Prefix) }), err
}

func (r *run) serves(ctx context.Context, s *Side) bool {
	ok, err := s.Serves(ctx, r.world.Topics)
	if err != nil || !ok {
		return false
	}
	var groups []string
	for _, name := range append([]string{"nobody"}, groupNames...) {
		groups = append(groups, r.world.Prefix+name)
	}
	ok, err = s.Coordinates(groups)
	return err == nil && ok
}

func (r *run) step(seed, n uint64) {
	step := NewStep(seed, n, &r.world)
	e := r.ask(step, n)
	for deadline := time.Now().Add(readPatience); len(e.found) > 0 && step.Reads && time.Now().Before(deadline); {
		<-time.After(readPause)
		e = r.ask(step, n)
	}
	text, _ := json.Marshal(e.req)
	if r.trace != "" && bytes.Contains(text, []byte(r.trace)) {
		r.t.Logf("step %d %s v%d %s\n    Kafka       %v\n    Thermocline %v", n, kmsg.NameForKey(e.req.Key()), e.req.GetVersion(), text, e.kafka, e.thermocline)
	}
	for _, d := range e.found {
		s := signature(e.req.Key(), d)
		if _, known := r.found[s]; !known {
			r.found[s] = fmt.Sprintf("step %d v%d %s: %s", n, e.req.GetVersion(), d.Path, long.ReplaceAll(text, []byte("x...x")))
			r.t.Logf("found: %s\n    %s", s, r.found[s])
		}
	}
	if step.Changes {
		r.level()
	}
	if step.Configures {
		r.levelConfigs(n)
	}
}

// levelConfigs waits until both sides say the same of the topics' configs, and
// readPause longer. If they do not come to it, the next DescribeConfigs tells.
func (r *run) levelConfigs(n uint64) {
	step := Step{Reads: true, Request: func(*Side) kmsg.Request {
		req := kmsg.NewPtrDescribeConfigsRequest()
		req.Version = 4
		for _, t := range r.world.Topics {
			one := kmsg.NewDescribeConfigsRequestResource()
			one.ResourceType, one.ResourceName = kmsg.ConfigResourceTypeTopic, t.Name
			req.Resources = append(req.Resources, one)
		}
		return req
	}}
	same := false
	for deadline := time.Now().Add(readPatience); !same && time.Now().Before(deadline); {
		same = len(r.ask(step, n).found) == 0
		<-time.After(readPause)
	}
}

// exchange is one request, as Kafka gets it, and what came of it.
type exchange struct {
	req                kmsg.Request
	kafka, thermocline map[string]string
	found              []Difference
}

// ask asks both sides once, and compares.
func (r *run) ask(step Step, n uint64) exchange {
	silent := false
	defer r.settle()
	one := func(s *Side) (kmsg.Request, map[string]string) {
		req := step.Request(s)
		resp, err := s.Ask(r.t.Context(), req)
		if errors.Is(err, errClosed) {
			return req, map[string]string{"": "closed"}
		}
		if errors.Is(err, errSilent) && s == r.thermocline {
			return req, map[string]string{"": "no answer"}
		}
		if errors.Is(err, errSilent) {
			text, _ := json.Marshal(req)
			r.t.Logf("Kafka does not answer %s v%d %s", kmsg.NameForKey(req.Key()), req.GetVersion(), text)
			silent = true
			return req, nil
		}
		if err != nil {
			r.broken("step %d: %v", n, err)
		}
		r.note(s, n, req, resp)
		return req, s.Flatten(resp)
	}
	var e exchange
	e.req, e.kafka = one(r.kafka)
	_, e.thermocline = one(r.thermocline)
	if !silent {
		e.found = Compare(e.req, e.kafka, e.thermocline)
	}
	return e
}
