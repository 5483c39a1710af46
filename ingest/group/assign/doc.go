// Package assign computes which member of a consumer group reads which
// partition: Kafka's server-side assignors `uniform` and `range` (KIP-848).
//
// Both are pure: equal inputs give equal outputs, whatever the order of the
// members. Both are sticky: given their own output as the current assignment
// they change nothing, and otherwise move few partitions. Only partitions that
// exist are assigned, each to exactly one of those who subscribe to its topic.
//
// uniform spreads all partitions evenly. When all members subscribe to the same
// topics, sizes differ by at most one, and no partition moves that balance does
// not demand. Otherwise sizes are as even as the subscriptions allow: nobody
// can give a partition to somebody who has two fewer, neither directly nor
// through others who pass one on (the latter as far as a bound on work goes).
//
// range spreads each topic by itself, sizes per topic differing by at most one,
// in ranges of neighbouring partitions. Topics with equally many partitions and
// the same subscribers are co-partitioned: partition p of all of them goes to
// the same member, also when that costs stickiness. Static members
// (group.instance.id) come first, by instance id, so that a restart under a new
// member id keeps the order.
package assign
