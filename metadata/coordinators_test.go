package metadata

import (
	"errors"
	"fmt"
	"testing"
)

// The hash places what slots hold: these answers hold for ever.
func TestCoordinatorSlot(t *testing.T) {
	for key, want := range map[string]uint32{"": 2166136261 % 48, "a": 0xe40c292c % 48, "foobar": 0xbf9cf968 % 48} {
		if got := CoordinatorSlot(key, 48); got != want {
			t.Errorf("slot of %q: expected %d, found %d", key, want, got)
		}
	}
	counts := map[uint32]int{}
	for i := range 48_000 {
		counts[CoordinatorSlot(fmt.Sprintf("group-%d", i), 48)]++
	}
	for slot := range uint32(48) {
		if n := counts[slot]; n < 800 || n > 1200 {
			t.Errorf("slot %d: expected some 1,000 of 48,000 groups, found %d", slot, n)
		}
	}
}

func TestPlaceCoordinators(t *testing.T) {
	shards := []*Shard{{ID: 1}, {ID: 2}, {ID: 3}, {ID: 9}, {ID: 10}}
	counts := map[ShardID]int{}
	for _, id := range PlaceCoordinators(shards, CoordinatorSlots) {
		counts[id]++
	}
	for _, s := range shards {
		if n := counts[s.ID]; n < 9 || n > 10 {
			t.Errorf("shard %d: expected 9 or 10 slots, found %d", s.ID, n)
		}
	}
}

func TestCoordinatorsRowIsChecked(t *testing.T) {
	for _, value := range []string{`{"v":1}`, `{"v":1,"shards":[1,0]}`, `{"v":1,"shards":[-1]}`, `{"v":0,"shards":[1]}`, string(encodeCoordinators(make([]ShardID, CoordinatorSlotsMax+1)))} {
		if _, err := decodeCoordinators(Row{Key: keyCoordinators, Value: []byte(value)}); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%.40s: expected ErrCorrupt, found %v", value, err)
		}
	}
	for _, n := range []int{0, CoordinatorSlotsMax + 1} {
		if _, err := CreateCoordinators(t.Context(), nil, Guard{}, make([]ShardID, n)); !errors.Is(err, ErrTooLarge) {
			t.Errorf("%d slots: expected ErrTooLarge, found %v", n, err)
		}
	}
}
