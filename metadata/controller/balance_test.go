package controller

import (
	"slices"
	"testing"
	"time"

	"thermocline/metadata"
)

func hint(shard metadata.ShardID, broker metadata.BrokerID) metadata.LeaderHint {
	return metadata.LeaderHint{Shard: shard, Broker: broker, Term: 2}
}

func TestBalance(t *testing.T) {
	tests := []struct {
		name string
		dead []metadata.BrokerID
		// moved holds brokers that came back with an empty data directory.
		moved []metadata.BrokerID
		hints []metadata.LeaderHint
		want  []Move
	}{
		{"all at home", nil, nil, []metadata.LeaderHint{hint(1, 1), hint(2, 2), hint(3, 3)}, nil},
		{"leader unknown", nil, nil, nil, nil},
		{"one away", nil, nil, []metadata.LeaderHint{hint(1, 2), hint(2, 2), hint(3, 3)}, []Move{{1, 2, 1}}},
		{"all on one", nil, nil, []metadata.LeaderHint{hint(1, 3), hint(2, 3), hint(3, 3)}, []Move{{1, 3, 1}, {2, 3, 2}}},
		{"home is dead", []metadata.BrokerID{1}, nil, []metadata.LeaderHint{hint(1, 2)}, nil},
		{"leader is dead", []metadata.BrokerID{2}, nil, []metadata.LeaderHint{hint(1, 2)}, nil},
		{"home lost its disk", nil, []metadata.BrokerID{1}, []metadata.LeaderHint{hint(1, 2)}, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := cluster(t, 3, 1, tt.hints...)
			for _, id := range tt.dead {
				c.Broker(id).Alive = false
			}
			for _, id := range tt.moved {
				c.Broker(id).Replica += 1000
			}
			if got := Balance(c); !slices.Equal(got, tt.want) {
				t.Fatalf("expected %v, found %v", tt.want, got)
			}
		})
	}
}

// A home must have settled before its leaders are sent back, a new epoch
// settles anew, and a move is not asked for again at once.
func TestBalancerPace(t *testing.T) {
	b := NewBalancer()
	start := time.Unix(1000, 0)
	at := func(d time.Duration) time.Time { return start.Add(d) }
	away := cluster(t, 3, 1, hint(1, 2))
	want := []Move{{1, 2, 1}}
	steps := []struct {
		at   time.Duration
		edit func()
		want []Move
	}{
		{0, func() {}, nil},
		{settleAfter - 1, func() {}, nil},
		{settleAfter, func() {}, want},
		{settleAfter + 1, func() {}, nil},
		{settleAfter + moveAgainAfter, func() {}, want},
		{30 * time.Second, func() { away.Broker(1).Epoch++ }, nil},
		{30*time.Second + settleAfter, func() {}, want},
		{50 * time.Second, func() { away.Broker(1).Alive = false }, nil},
		{51 * time.Second, func() { away.Broker(1).Alive = true }, nil},
		{51*time.Second + settleAfter, func() {}, want},
	}
	for _, s := range steps {
		s.edit()
		if got := b.Next(away, at(s.at)); !slices.Equal(got, s.want) {
			t.Fatalf("after %v: expected %v, found %v", s.at, s.want, got)
		}
	}
}
