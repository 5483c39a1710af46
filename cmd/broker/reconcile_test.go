package broker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"thermocline/ingest/partition"
	"thermocline/metadata"
	metadatamemory "thermocline/metadata/memory"
)

// fakeState is a shard's partitions, and counts how often it is asked.
type fakeState struct {
	parts   map[partition.Key]bool
	configs map[metadata.TopicID]partition.Topic
	looks   int
	fail    error
}

func (f *fakeState) Keys() (out []partition.Key) {
	f.looks += len(f.parts)
	for k := range f.parts {
		out = append(out, k)
	}
	return out
}

func (f *fakeState) Topics() (out []partition.Topic) {
	f.looks += len(f.configs)
	for _, t := range f.configs {
		out = append(out, t)
	}
	return out
}

func (f *fakeState) View(k partition.Key) (partition.View, bool) {
	f.looks++
	return partition.View{}, f.parts[k]
}

func (f *fakeState) propose(_ context.Context, commands []any) error {
	if f.fail != nil {
		return f.fail
	}
	for _, c := range commands {
		switch c := c.(type) {
		case *partition.CreatePartition:
			f.parts[c.Key] = true
		case *partition.DeletePartition:
			delete(f.parts, c.Key)
		case *partition.SetConfig:
			f.configs[c.Topic] = partition.Topic{ID: c.Topic, Config: c.Config, Revision: c.Revision}
		}
	}
	return nil
}

// reconciling is a reconciler of shard 1 over a view of a store in memory.
func reconciling(t *testing.T) (*reconciler, *fakeState, metadata.Store, *metadata.View) {
	t.Helper()
	store := metadatamemory.New()
	view, err := metadata.OpenView(t.Context(), store, metadata.ViewOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(view.Close)
	f := &fakeState{parts: map[partition.Key]bool{}, configs: map[metadata.TopicID]partition.Topic{}}
	return &reconciler{id: 1, state: f, propose: f.propose, view: view, store: store, log: slog.New(slog.DiscardHandler)}, f, store, view
}

func topicNumber(i int) metadata.Topic {
	id := metadata.TopicID{1, byte(i >> 8), byte(i)}
	return metadata.Topic{Name: fmt.Sprintf("t%d", i), ID: id, Shards: []metadata.ShardID{1, 2, 1}, Created: time.UnixMilli(1), ReplicationFactor: 1}
}

func makeTopic(t *testing.T, s metadata.Store, v *metadata.View, i int) *metadata.Topic {
	t.Helper()
	made, err := metadata.CreateTopic(t.Context(), s, topicNumber(i))
	if err == nil {
		err = v.Wait(t.Context(), made.Revision)
	}
	if err != nil {
		t.Fatal(err)
	}
	return made
}

// A change of one topic among many looks at that one; a new term at all.
func TestReconcileLooksAtWhatHasChanged(t *testing.T) {
	const many = 500
	r, f, store, view := reconciling(t)
	ctx := t.Context()
	for i := range many {
		makeTopic(t, store, view, i)
	}
	sub := view.Subscribe()
	defer sub.Close()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	r.note(sub.Take(), 1)
	must(r.pass(ctx))
	if len(f.parts) != 2*many || len(f.configs) != many {
		t.Fatalf("%d partitions, %d configs: expected %d, %d", len(f.parts), len(f.configs), 2*many, many)
	}
	changed, err := metadata.UpdateTopic(ctx, store, "t7", func(t *metadata.Topic) error {
		t.Config["retention.ms"] = "5"
		t.Shards = append(t.Shards, 1)
		return nil
	})
	must(err)
	must(view.Wait(ctx, changed.Revision))
	_, rev, err := metadata.DeleteTopic(ctx, store, "t9", metadata.TopicID{})
	must(err)
	must(view.Wait(ctx, rev))
	f.looks = 0
	f.fail = errors.New("no leader at the moment")
	r.note(sub.Take(), 1)
	if err := r.pass(ctx); err == nil {
		t.Fatal("a failed proposal was taken for done")
	}
	f.fail = nil
	r.note(sub.Take(), 1)
	must(r.pass(ctx))
	if f.looks > 30 {
		t.Errorf("two of %d topics have changed, and the state was asked %d times", many, f.looks)
	}
	if len(f.parts) != 2*many+1-2 || f.configs[changed.ID].Config["retention.ms"] != "5" {
		t.Errorf("%d partitions, config %v", len(f.parts), f.configs[changed.ID].Config)
	}
	must(view.WaitFor(ctx, func() bool {
		for _, d := range view.Deleted() {
			if len(d.Shards) > 0 && d.Shards[0] == 1 {
				return false // shard 1 has let go of it
			}
		}
		return true
	}))
	// What was missed in an earlier term is made up for.
	delete(f.parts, partition.Key{Topic: topicNumber(3).ID, Partition: 2})
	r.note(metadata.Dirty{}, 2)
	must(r.pass(ctx))
	if !f.parts[partition.Key{Topic: topicNumber(3).ID, Partition: 2}] {
		t.Error("a new term did not look at every topic")
	}
}

// A leader whose view lags does not make partitions of a topic that is deleted,
// and that its shard has let go of under another leader.
func TestReconcileAsksBeforeItCreates(t *testing.T) {
	r, f, store, view := reconciling(t)
	made := makeTopic(t, store, view, 1)
	lagging, err := metadata.OpenView(t.Context(), lagStore{store}, metadata.ViewOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer lagging.Close()
	if _, _, err := metadata.DeleteTopic(t.Context(), store, made.Name, made.ID); err != nil {
		t.Fatal(err)
	}
	for _, s := range []metadata.ShardID{1, 2} {
		if err := metadata.ReleaseDeleted(t.Context(), store, made.ID, s); err != nil {
			t.Fatal(err)
		}
	}
	r.view = lagging
	if lagging.TopicByID(made.ID) == nil {
		t.Fatal("the view does not lag")
	}
	r.note(metadata.Dirty{}, 1)
	if err := r.pass(t.Context()); err != nil {
		t.Fatal(err)
	}
	if len(f.parts) != 0 || len(f.configs) != 0 {
		t.Errorf("partitions %v of a topic that is gone", f.parts)
	}
}

// A topic that no row names is kept: an empty or rolled back store deletes nothing.
func TestReconcileKeepsWhatNobodyDeleted(t *testing.T) {
	r, f, _, _ := reconciling(t)
	k := partition.Key{Topic: topicNumber(1).ID}
	f.parts[k] = true
	r.note(metadata.Dirty{All: true}, 1)
	if err := r.pass(t.Context()); err != nil {
		t.Fatal(err)
	}
	if !f.parts[k] {
		t.Error("deleted")
	}
}

// lagStore tells of no change.
type lagStore struct{ metadata.Store }

// Watch delivers nothing until ctx ends.
func (lagStore) Watch(ctx context.Context, _ string, _ int64) <-chan metadata.Changes {
	c := make(chan metadata.Changes)
	context.AfterFunc(ctx, func() { close(c) })
	return c
}
