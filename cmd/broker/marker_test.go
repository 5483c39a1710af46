package broker

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"thermocline/metadata"
	metadatamemory "thermocline/metadata/memory"
	"thermocline/tiering/format"
	"thermocline/tiering/object"
	"thermocline/tiering/object/faulty"
	"thermocline/tiering/object/memory"
)

// refused tells whether err says that the store is another one, and why.
func refused(t *testing.T, err error, parts ...string) {
	t.Helper()
	if !errors.Is(err, errOtherStore) {
		t.Fatalf("expected a refusal of the store, found %v", err)
	}
	for _, part := range parts {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("expected %q in the refusal, found %v", part, err)
		}
	}
}

func TestMarkerSaysWhoseTheStoreIs(t *testing.T) {
	ctx, meta, store := t.Context(), metadatamemory.New(), memory.New(memory.Options{})
	ours := &marker{store: store, meta: meta, cluster: "ours"}
	for range 2 { // made, then found
		if err := ours.check(ctx); err != nil {
			t.Fatal(err)
		}
	}
	made, err := ours.read(ctx)
	known, err2 := metadata.StoreMark(ctx, meta)
	if err != nil || err2 != nil || made.Cluster != "ours" || made.ID != known {
		t.Fatalf("marker %+v (%v), row %q (%v): expected one of this cluster, and its id in the row", made, err, known, err2)
	}

	other := &marker{store: store, meta: metadatamemory.New(), cluster: "theirs"}
	refused(t, other.check(ctx), "belongs to cluster ours, this is cluster theirs")
	if known, err := metadata.StoreMark(ctx, other.meta); err != nil || known != "" {
		t.Errorf("a refused store is noted as the cluster's: %q, %v", known, err)
	}

	empty := memory.New(memory.Options{})
	lost := &marker{store: empty, meta: meta, cluster: "ours"}
	refused(t, lost.check(ctx), "lacks this cluster's cluster.json: is store.url the same as on the other brokers?", known)
	if _, err := empty.Head(ctx, format.MarkerKey); !errors.Is(err, object.ErrNotFound) {
		t.Errorf("a refused store was given a marker: %v", err)
	}

	// A broker that ended between object and row: the next one notes it.
	anew := &marker{store: store, meta: metadatamemory.New(), cluster: "ours"}
	if err := anew.check(ctx); err != nil {
		t.Fatal(err)
	}
	if again, err := metadata.StoreMark(ctx, anew.meta); err != nil || again != known {
		t.Errorf("row: expected %q, found %q, %v", known, again, err)
	}
}

// Brokers that use the cluster's store for the first time at the same moment
// agree on it; one of them with another URL is refused, whoever was first.
func TestMarkerIsMadeOnce(t *testing.T) {
	for range 50 {
		meta, store, typo := metadatamemory.New(), memory.New(memory.Options{}), memory.New(memory.Options{})
		errs := make([]error, 4)
		var wg sync.WaitGroup
		for i := range errs {
			m := &marker{store: store, meta: meta, cluster: "ours"}
			if i == 3 {
				m.store = typo
			}
			wg.Go(func() { errs[i] = m.check(t.Context()) })
		}
		wg.Wait()
		first := errs[3] == nil // then the mistyped one is the cluster's, and the others learn it
		for i, err := range errs {
			if first == (i == 3) {
				if err != nil {
					t.Fatalf("broker %d: %v", i, err)
				}
				continue
			}
			refused(t, err, "is store.url the same as on the other brokers?")
		}
	}
}

// damagingOnce is a store whose first answer is not what is in it.
type damagingOnce struct {
	object.Store
	said []byte
}

func (s *damagingOnce) GetRange(ctx context.Context, key string, offset int64, p []byte) (int, error) {
	if said := s.said; said != nil {
		s.said = nil
		return copy(p, said), nil
	}
	return s.Store.GetRange(ctx, key, offset, p)
}

func TestMarkerIsReadTwiceBeforeARefusal(t *testing.T) {
	m := &marker{store: memory.New(memory.Options{}), meta: metadatamemory.New(), cluster: "ours"}
	if err := m.check(t.Context()); err != nil {
		t.Fatal(err)
	}
	m.store = &damagingOnce{m.store, format.Marker{Cluster: "0urs", ID: "x"}.Encode()}
	if err := m.check(t.Context()); err != nil {
		t.Errorf("a refusal that was seen once: %v", err)
	}
}

// markedOptions are a lone broker's, with stores that it checks.
func markedOptions(t *testing.T, uploads object.Store) Options {
	t.Helper()
	c := brokerConfig(t, 1, 1)
	c.StoreURL = "file:///unused"
	return Options{Config: c, Metadata: metadatamemory.New(), Uploads: uploads, Cold: object.NewCounted(memory.New(memory.Options{})), Logger: slog.New(slog.DiscardHandler)}
}

func TestBrokerRefusesAnotherStore(t *testing.T) {
	o := markedOptions(t, memory.New(memory.Options{}))
	b, err := Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	right := o.Uploads
	o.Uploads = memory.New(memory.Options{})
	b, err = Start(t.Context(), o)
	if err == nil {
		err = errors.Join(errors.New("it started"), b.Close())
	}
	refused(t, err, "broker 1", "lacks this cluster's cluster.json")
	o.Uploads = right
	if b, err = Start(t.Context(), o); err != nil {
		t.Fatalf("with its own store again: %v", err)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
}

// A broker starts while the store is away and puts nothing into it until it has
// seen the marker: then it goes on, or ends if the store is another cluster's.
func TestStoreIsCheckedOnceItAnswers(t *testing.T) {
	for name, whose := range map[string]string{"nobody's": "", "another cluster's": "another"} {
		t.Run(name, func(t *testing.T) {
			inner := memory.New(memory.Options{})
			if whose != "" {
				if err := (&marker{store: inner, meta: metadatamemory.New(), cluster: whose}).check(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			store := faulty.New(inner, 1)
			store.SetAway(true)
			b, err := Start(t.Context(), markedOptions(t, store))
			if err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := b.Close(); err != nil {
					t.Errorf("close: %v", err)
				}
			}()
			until(t, b.Ready)
			if puts := store.Counts(object.OpPut).Calls; puts != 0 {
				t.Errorf("%d PUTs into a store that is not known yet", puts)
			}
			store.SetAway(false)
			select {
			case <-b.storeChecked:
				if whose != "" {
					t.Error("another cluster's store was accepted")
				}
			case err := <-b.Failed():
				if whose == "" {
					t.Fatal(err)
				}
				refused(t, err, "belongs to cluster another")
			case <-time.After(time.Minute):
				t.Fatal("the store answers, and was not checked within a minute")
			}
		})
	}
}
