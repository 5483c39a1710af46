package group

import (
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
)

// groupOp is an operation of a history: a commit of a generation, a fetch, or
// a join, which tells a generation.
type groupOp struct {
	kind       opKind
	partition  int32
	generation int32 // that commits; -1: from outside the group
	value      int64
}

type opKind int

const (
	opCommit opKind = iota
	opFetch
	opJoin
)

// groupResult is what was answered: a fetched offset, a generation. unknown:
// the Coordinator was unloaded, so that it may have happened, or still will.
type groupResult struct {
	unknown bool
	value   int64
}

// linearState is what the model knows of one partition's offset and the group.
type linearState struct {
	generation, offset int64
}

// record notes that an operation begins, if a history is kept; the function
// notes its answer. Refused operations change nothing, and are left out.
func (w *classicWorld) record(op groupOp) func(code int16, value int64) {
	if w.history == nil {
		return func(int16, int64) {}
	}
	w.events++
	call := w.events
	return func(code int16, value int64) {
		w.events++
		unknown := code == 16
		if code != 0 && (!unknown || op.kind != opCommit) {
			return
		}
		end := w.events
		if unknown {
			end = 1 << 60
		}
		w.history = append(w.history, porcupine.Operation{Input: op, Call: call, Output: groupResult{unknown, value}, Return: end})
	}
}

var linearModel = porcupine.NondeterministicModel{
	Init: func() []any { return []any{linearState{generation: -1, offset: -1}} },
	Step: func(state, input, output any) []any {
		s, op, out := state.(linearState), input.(groupOp), output.(groupResult)
		switch op.kind {
		case opJoin:
			if out.value < s.generation {
				return nil
			}
			s.generation = out.value
		case opFetch:
			if out.value != s.offset {
				return nil
			}
		case opCommit:
			next := s
			next.offset = op.value
			if fenced := op.generation >= 0 && int64(op.generation) != s.generation; fenced || out.unknown {
				if !out.unknown {
					return nil
				}
				if fenced {
					return []any{s}
				}
				return []any{s, next}
			}
			return []any{next}
		}
		return []any{s}
	},
}

// linearize checks a short history, each partition with all joins.
func linearize(t *testing.T, seed uint64, history []porcupine.Operation) bool {
	model := linearModel.ToModel()
	for p := range int32(worldPartitions) {
		var part []porcupine.Operation
		for _, op := range history {
			if in := op.Input.(groupOp); in.kind == opJoin || in.partition == p {
				part = append(part, op)
			}
		}
		switch porcupine.CheckOperationsTimeout(model, part, 20*time.Second) {
		case porcupine.Illegal:
			return false
		case porcupine.Unknown:
			t.Logf("seed %d, partition %d: %d operations were not decided in time", seed, p, len(part))
		}
	}
	return true
}

// linearWorld runs a short world with many take-overs, and judges it by its
// history alone.
func linearWorld(t *testing.T, seed uint64, bugs Bugs) (ops int, legal bool) {
	w := newClassicWorld(seed, bugs)
	w.history = []porcupine.Operation{}
	defer func() {
		if r := recover(); r != nil {
			if _, ok := r.(broken); !ok {
				panic(r)
			}
			ops, legal = len(w.history), linearize(t, seed, w.history)
		}
	}()
	for range 1200 {
		w.step()
	}
	w.end()
	return len(w.history), linearize(t, seed, w.history)
}

func TestHistoriesAreLinearizable(t *testing.T) {
	total := 0
	for seed := uint64(1); seed <= 60; seed++ {
		n, legal := linearWorld(t, seed, Bugs{})
		if !legal {
			t.Fatalf("seed %d: commits, fetches and generations have no order that explains them", seed)
		}
		total += n
	}
	if total < 60*50 {
		t.Fatalf("only %d operations in 60 histories: they show nothing", total)
	}
}

func TestHistoriesShowPlantedBugs(t *testing.T) {
	for name, bugs := range map[string]Bugs{
		"ReplyBeforeWritten":  {ReplyBeforeWritten: true},
		"CommitAnyGeneration": {CommitAnyGeneration: true},
		"NoTombstones":        {NoTombstones: true},
	} {
		t.Run(name, func(t *testing.T) {
			for seed := uint64(1); seed <= 400; seed++ {
				if _, legal := linearWorld(t, seed, bugs); !legal {
					t.Logf("seed %d", seed)
					return
				}
			}
			t.Fatal("400 histories do not show it")
		})
	}
}
