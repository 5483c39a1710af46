//go:build differential

package differential

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"thermocline/localstack/faults"
	"thermocline/localstack/processes"
)

// Set by the environment: DIFFERENTIAL_SEED, DIFFERENTIAL_STEPS; and, to use
// brokers that run already, DIFFERENTIAL_KAFKA and DIFFERENTIAL_THERMOCLINE.
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
	return NewSide("Kafka", k.Addr)
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
	c, err := processes.Start(ctx, processes.Options{Binary: binary, Dir: t.TempDir(), Brokers: 1, Settings: groupSettings})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return NewSide("Thermocline", c.Bootstrap()[0])
}

// readPatience is how long a read may differ: a Kafka broker learns of changes
// a moment after the controller has answered.
const readPatience = 3 * time.Second

func TestDifferential(t *testing.T) {
	seed, steps := number(t, "SEED", uint64(time.Now().UnixNano()%1_000_000)), number(t, "STEPS", 2000)
	t.Logf("DIFFERENTIAL_SEED=%d DIFFERENTIAL_STEPS=%d", seed, steps)
	r := &run{t: t, kafka: startKafka(t), thermocline: startThermocline(t), found: map[string]string{}}
	defer r.kafka.Close()
	defer r.thermocline.Close()
	r.world.Prefix = fmt.Sprintf("d%d-", seed)
	defer r.report()
	for _, s := range []*Side{r.kafka, r.thermocline} {
		if err := s.Create(t.Context(), r.world.still(1), r.world.still(2)); err != nil {
			t.Fatal(err)
		}
	}
	r.level()
	for n := range steps {
		r.step(seed, n)
	}
}

// report fails the test with one example of each kind of difference.
func (r *run) report() {
	for _, s := range slices.Sorted(maps.Keys(r.found)) {
		r.t.Errorf("%s\n    %s", s, r.found[s])
	}
}

var long = regexp.MustCompile("x{100,}")

type run struct {
	t                  *testing.T
	kafka, thermocline *Side
	world              World
	found              map[string]string // first example by signature
	come, gone         []GroupMember     // in the step that is asked
}

// level waits until both sides have the same topics, and serve them.
func (r *run) level() {
	ctx, cancel := context.WithTimeout(r.t.Context(), 30*time.Second)
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
			r.t.Fatalf("the sides have different topics: Kafka %v (%v), Thermocline %v (%v)", k, kerr, t, terr)
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
	deadline := time.Now().Add(readPatience)
	for {
		req, found := r.ask(step, n)
		if len(found) > 0 && step.Reads && time.Now().Before(deadline) {
			continue
		}
		for _, d := range found {
			s := signature(req.Key(), d)
			if _, known := r.found[s]; !known {
				text, _ := json.Marshal(req)
				r.found[s] = fmt.Sprintf("step %d v%d %s: %s", n, req.GetVersion(), d.Path, long.ReplaceAll(text, []byte("x...x")))
			}
		}
		break
	}
	if step.Changes {
		r.level()
	}
}

// ask asks both sides once, and compares.
func (r *run) ask(step Step, n uint64) (kmsg.Request, []Difference) {
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
			r.t.Fatal(err)
		}
		r.note(s, n, req, resp)
		return req, s.Flatten(resp)
	}
	req, k := one(r.kafka)
	_, t := one(r.thermocline)
	if silent {
		return req, nil
	}
	return req, Compare(req.Key(), k, t)
}
