package broker

import "thermocline/ingest/coordinator"

func ofCoordinators(get func(*coordinator.Stats) int64) func(*figures, emitter) {
	return one(func(s *figures) float64 { return float64(get(&s.groups)) })
}

var coordinatorMetrics = []metric{
	{name: "thermocline.coordinator.slots", unit: "{slot}", kind: gauge, about: "Coordinator slots whose shard is led here", read: ofCoordinators(func(c *coordinator.Stats) int64 { return int64(c.Slots) })},
	{name: "thermocline.coordinator.serving", unit: "{slot}", kind: gauge, about: "Coordinator slots that are loaded and serve groups", read: ofCoordinators(func(c *coordinator.Stats) int64 { return int64(c.Serving) })},
	{name: "thermocline.coordinator.queued", unit: "{call}", kind: gauge, about: "Calls for groups that wait for their coordinator", read: ofCoordinators(func(c *coordinator.Stats) int64 { return int64(c.Queued) })},
	{name: "thermocline.coordinator.calls", unit: "{call}", about: "Calls for groups that were taken", read: ofCoordinators(func(c *coordinator.Stats) int64 { return c.Calls })},
	{name: "thermocline.coordinator.refused", unit: "{call}", about: "Calls for groups that were refused although their slot is led here: its queue was full, or it is being loaded anew", read: ofCoordinators(func(c *coordinator.Stats) int64 { return c.Refused })},
	{name: "thermocline.coordinator.loads", unit: "{load}", about: "Coordinators loaded from their slots' records", read: ofCoordinators(func(c *coordinator.Stats) int64 { return c.Loads })},
	{name: "thermocline.coordinator.damaged", unit: "{load}", about: "Coordinators that could not be loaded, since a record is damaged or of a newer version", read: ofCoordinators(func(c *coordinator.Stats) int64 { return c.Damaged })},
	{name: "thermocline.coordinator.failures", unit: "{load}", about: "Coordinators given up because a write failed while their shard was led here", read: ofCoordinators(func(c *coordinator.Stats) int64 { return c.WriteFailures })},
	{name: "thermocline.coordinator.writes", unit: "{write}", attrs: byShard, about: "Writes applied to the shard's coordinator slots", read: ofShard(func(f *shardFigures) float64 { return float64(f.counts.CoordinatorWrites) })},
	{name: "thermocline.coordinator.records", unit: "{record}", kind: gauge, attrs: byShard, about: "Records in the shard's coordinator slots", read: ofShard(func(f *shardFigures) float64 { return float64(f.counts.CoordinatorRecords) })},
	{name: "thermocline.coordinator.size", unit: "By", kind: gauge, attrs: byShard, about: "What the shard's coordinator slots count of the 256 MiB that they may", read: ofShard(func(f *shardFigures) float64 { return float64(f.counts.CoordinatorBytes) })},
}
