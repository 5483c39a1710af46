package history_test

import (
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"thermocline/localstack/faults/history"
)

// sample is a history that is well: two producers, two partitions, overlapping
// calls, one of unknown fate that took effect, one that did not, one refused.
func sample() ([]history.Op, map[int32][]history.Entry) {
	var ops []history.Op
	logs := map[int32][]history.Entry{}
	for seq := range int32(40) {
		for producer := range int32(2) {
			p := seq % 2
			id := history.ID{Producer: producer, Seq: seq}
			op := history.Op{ID: id, Partition: p, Outcome: history.Acked, Offset: int64(len(logs[p])),
				Call: time.Duration(seq*10 + producer), Return: time.Duration(seq*10 + 15)}
			switch {
			case producer == 1 && seq == 20:
				op.Outcome = history.Unknown
			case producer == 1 && seq == 22:
				op.Outcome = history.Unknown
				ops = append(ops, op)
				continue
			case producer == 1 && seq == 24:
				op.Outcome = history.Refused
				ops = append(ops, op)
				continue
			}
			logs[p] = append(logs[p], history.Entry{Offset: op.Offset, ID: id})
			ops = append(ops, op)
		}
	}
	return ops, logs
}

func TestCheckPassesAGoodHistory(t *testing.T) {
	ops, logs := sample()
	if err := history.Check(ops, logs); err != nil {
		t.Fatal(err)
	}
	if got := history.Longest(ops); got != 10 {
		t.Errorf("longest pause: expected 10ns, found %v", got)
	}
}

// TestCheckFindsPlantedViolations changes a good history in one way each.
func TestCheckFindsPlantedViolations(t *testing.T) {
	find := func(ops []history.Op, producer, seq int32) *history.Op {
		for i := range ops {
			if ops[i].Producer == producer && ops[i].Seq == seq {
				return &ops[i]
			}
		}
		t.Fatalf("no call p%d-%d", producer, seq)
		return nil
	}
	swap := func(log []history.Entry, a, b int) { log[a].ID, log[b].ID = log[b].ID, log[a].ID }
	cases := []struct {
		name  string
		want  error
		plant func(ops []history.Op, logs map[int32][]history.Entry) []history.Op
	}{
		{"the last record is lost", history.ErrLost, func(ops []history.Op, logs map[int32][]history.Entry) []history.Op {
			logs[0] = logs[0][:len(logs[0])-1]
			return ops
		}},
		{"a whole partition is lost", history.ErrLost, func(ops []history.Op, logs map[int32][]history.Entry) []history.Op {
			delete(logs, 1)
			return ops
		}},
		{"a record is at another offset", history.ErrLost, func(ops []history.Op, logs map[int32][]history.Entry) []history.Op {
			find(ops, 0, 4).Offset++
			return ops
		}},
		{"two neighbours changed places", history.ErrLost, func(ops []history.Op, logs map[int32][]history.Entry) []history.Op {
			swap(logs[0], 4, 5)
			return ops
		}},
		{"a record is in another partition", history.ErrInvented, func(ops []history.Op, logs map[int32][]history.Entry) []history.Op {
			logs[0][3].ID = logs[1][3].ID
			return ops
		}},
		{"an offset is missing", history.ErrGap, func(ops []history.Op, logs map[int32][]history.Entry) []history.Op {
			logs[0] = append(logs[0][:5:5], logs[0][6:]...)
			return ops
		}},
		{"the log begins late", history.ErrGap, func(ops []history.Op, logs map[int32][]history.Entry) []history.Op {
			logs[0] = logs[0][1:]
			return ops
		}},
		{"a record is there twice", history.ErrDuplicate, func(ops []history.Op, logs map[int32][]history.Entry) []history.Op {
			logs[0] = append(logs[0], history.Entry{Offset: int64(len(logs[0])), ID: logs[0][2].ID})
			return ops
		}},
		{"an unknown record is there twice", history.ErrDuplicate, func(ops []history.Op, logs map[int32][]history.Entry) []history.Op {
			logs[0] = append(logs[0], history.Entry{Offset: int64(len(logs[0])), ID: history.ID{Producer: 1, Seq: 20}})
			return ops
		}},
		{"nobody sent it", history.ErrInvented, func(ops []history.Op, logs map[int32][]history.Entry) []history.Op {
			logs[0] = append(logs[0], history.Entry{Offset: int64(len(logs[0])), ID: history.ID{Producer: 7}})
			return ops
		}},
		{"a log of a partition without calls", history.ErrInvented, func(ops []history.Op, logs map[int32][]history.Entry) []history.Op {
			logs[9] = []history.Entry{{ID: history.ID{Producer: 7}}}
			return ops
		}},
		{"refused, and in the log", history.ErrRefused, func(ops []history.Op, logs map[int32][]history.Entry) []history.Op {
			logs[0] = append(logs[0], history.Entry{Offset: int64(len(logs[0])), ID: history.ID{Producer: 1, Seq: 24}})
			return ops
		}},
		{"a producer's unknown record comes late", history.ErrOrder, func(ops []history.Op, logs map[int32][]history.Entry) []history.Op {
			logs[0] = append(logs[0], history.Entry{Offset: int64(len(logs[0])), ID: history.ID{Producer: 1, Seq: 22}})
			return ops
		}},
		{"an earlier acknowledgement has a higher offset", history.ErrRealTime, func(ops []history.Op, logs map[int32][]history.Entry) []history.Op {
			find(ops, 0, 38).Return, find(ops, 0, 38).Call = 2, 1
			return ops
		}},
		{"an unknown record took effect before it was called", history.ErrRealTime, func(ops []history.Op, logs map[int32][]history.Entry) []history.Op {
			find(ops, 1, 20).Call = 10_000
			return ops
		}},
	}
	for _, c := range cases {
		ops, logs := sample()
		if err := history.Check(c.plant(ops, logs), logs); !errors.Is(err, c.want) {
			t.Errorf("%s: expected %q, found %v", c.name, c.want, err)
		}
	}
}

// TestCheckFindsAnySingleLoss removes each acknowledged record in turn.
func TestCheckFindsAnySingleLoss(t *testing.T) {
	_, whole := sample()
	for p, log := range whole {
		for i := range log {
			ops, logs := sample()
			if id := log[i].ID; id == (history.ID{Producer: 1, Seq: 20}) {
				continue // its fate is unknown
			}
			// Even if the following ones moved up.
			var left []history.Entry
			for j, e := range logs[p] {
				if j != i {
					left = append(left, history.Entry{Offset: int64(len(left)), ID: e.ID})
				}
			}
			logs[p] = left
			if err := history.Check(ops, logs); !errors.Is(err, history.ErrLost) {
				t.Fatalf("partition %d without offset %d: found %v", p, i, err)
			}
		}
	}
}

func TestValuesCarryTheirNameAndShowDamage(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		id := history.ID{Producer: r.Int32N(100), Seq: r.Int32()}
		v := history.Value(id, r.IntN(2000))
		if got, err := history.Parse(v); err != nil || got != id {
			t.Fatalf("%s: found %s, %v", id, got, err)
		}
		v[r.IntN(len(v))] ^= 0x40
		if got, err := history.Parse(v); err == nil && got == id {
			t.Fatalf("%s: damage was not seen in %.60q", id, v)
		}
	}
}

func TestRecorderCountsAndKeepsWhatDidNotReturn(t *testing.T) {
	r := history.NewRecorder()
	a, _ := r.Call(history.ID{Seq: 0}, 3)
	b, _ := r.Call(history.ID{Seq: 1}, 3)
	if _, ok := r.Call(history.ID{Seq: 2}, 4); !ok {
		t.Fatal("refused")
	}
	r.Return(a, history.Acked, 17, nil)
	r.Return(b, history.Refused, 0, errors.New("too large"))
	ops := r.Ops()
	if len(ops) != 3 || ops[0].Offset != 17 || ops[1].Outcome != history.Refused || ops[2].Outcome != history.Unknown {
		t.Fatalf("found %+v", ops)
	}
	if ops[0].Return < ops[0].Call || r.Acked() != 1 || r.AckedIn(3) != 1 || r.AckedIn(4) != 0 || r.Errors()["too large"] != 1 {
		t.Fatalf("found %+v, %d, %v", ops, r.Acked(), r.Errors())
	}
}
