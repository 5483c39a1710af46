package metadata

import (
	"cmp"
	"maps"
	"slices"
)

// smallRows are the rows that a Cluster is made of.
type smallRows struct {
	info       ClusterInfo
	controller BrokerID
	fence      int64
	office     LeaseID
	brokers    map[BrokerID]*Broker
	live       map[BrokerID]live
	shards     map[ShardID]*Shard
	hints      map[ShardID]LeaderHint
	// coordinators are the shards of the slots.
	coordinators []ShardID
	// doubt holds brokers whose lease has lapsed while the store was not, or
	// not long enough, healthy: they still count as alive.
	doubt map[BrokerID]struct{}
}

func newSmallRows() smallRows {
	return smallRows{
		controller: NoBroker, brokers: map[BrokerID]*Broker{}, live: map[BrokerID]live{},
		shards: map[ShardID]*Shard{}, hints: map[ShardID]LeaderHint{}, doubt: map[BrokerID]struct{}{},
	}
}

// applyChanges takes one delivery of the watch in.
func (v *View) applyChanges(c Changes) {
	v.mu.Lock()
	defer v.mu.Unlock()
	b := v.begin(c.Revision)
	for i := range c.Changes {
		v.applyChange(&b, &c.Changes[i])
	}
	v.finish(&b)
}

// applyListing replaces the content by a listing. Topics whose row has not
// changed keep their decoded form.
func (v *View) applyListing(l Listing) {
	v.mu.Lock()
	defer v.mu.Unlock()
	b := v.begin(l.Revision)
	listed := make(map[string]struct{}, len(l.Rows))
	for i := range l.Rows {
		r := &l.Rows[i]
		listed[r.Key] = struct{}{}
		if t := v.byKey[r.Key]; t != nil && t.Revision == r.Modified {
			continue
		}
		v.applyChange(&b, &Change{Row: *r})
	}
	for _, key := range v.heldKeys() {
		if _, ok := listed[key]; !ok {
			v.applyChange(&b, &Change{Row: Row{Key: key, Modified: l.Revision}, Deleted: true})
		}
	}
	v.finish(&b)
}

// heldKeys names every row that the view holds, in order.
func (v *View) heldKeys() []string {
	keys := slices.Collect(maps.Keys(v.byKey))
	keys = slices.AppendSeq(keys, maps.Keys(v.deleted))
	for id := range v.rows.brokers {
		keys = append(keys, brokerKey(id))
	}
	for id := range v.rows.live {
		keys = append(keys, liveKey(id))
	}
	for id := range v.rows.shards {
		keys = append(keys, shardKey(id))
	}
	for id := range v.rows.hints {
		keys = append(keys, hintKey(id))
	}
	for id := range v.pointers {
		keys = append(keys, snapshotKey(id))
	}
	keys = slices.AppendSeq(keys, maps.Keys(v.configs))
	keys = slices.AppendSeq(keys, maps.Keys(v.refused))
	if v.rows.info.ID != "" {
		keys = append(keys, keyCluster)
	}
	if v.rows.controller != NoBroker {
		keys = append(keys, keyController)
	}
	if v.rows.coordinators != nil {
		keys = append(keys, keyCoordinators)
	}
	slices.Sort(keys)
	return slices.Compact(keys)
}

// batch is what one delivery has changed.
type batch struct {
	revision int64
	cluster  bool
	deleted  bool
	topics   []TopicID
}

func (v *View) begin(revision int64) batch { return batch{revision: revision} }

// applyChange takes one row in. A row that cannot be decoded leaves what was
// known of it, and is remembered as refused. Unknown kinds of rows belong to
// newer versions and concern nothing that this one does.
func (v *View) applyChange(b *batch, c *Change) {
	key := c.Row.Key
	var err error
	switch kind := kindOf(key); kind {
	case prefixTopics:
		err = v.applyTopic(b, c)
	case prefixDeleted:
		err = v.applyDeleted(b, c)
	case prefixSnapshots:
		err = v.applySnapshot(c)
	case prefixConfigs:
		err = v.applyConfig(c)
	default:
		err = v.applySmall(b, kind, c)
	}
	delete(v.refused, key)
	if err != nil {
		v.refused[key] = err
		v.o.Logger.Error("metadata row refused, keeping what was known of it", "error", err)
	}
}

func (v *View) applyTopic(b *batch, c *Change) error {
	old := v.byKey[c.Row.Key]
	var t *Topic
	if !c.Deleted {
		var err error
		if t, err = decodeTopic(c.Row); err != nil {
			return err
		}
	}
	v.sorted = nil
	if old != nil {
		delete(v.byKey, c.Row.Key)
		delete(v.topics, old.Name)
		delete(v.byID, old.ID)
		v.count(old, -1)
		b.topics = append(b.topics, old.ID)
	}
	if t != nil {
		v.byKey[c.Row.Key] = t
		v.topics[t.Name] = t
		v.byID[t.ID] = t
		v.count(t, 1)
		if old == nil || old.ID != t.ID {
			b.topics = append(b.topics, t.ID)
		}
	}
	return nil
}

// count adds a topic's partitions to the loads, or takes them away.
func (v *View) count(t *Topic, sign int) {
	for _, s := range t.Shards {
		v.load[s] += sign
		if v.load[s] == 0 {
			delete(v.load, s)
		}
	}
	v.total += sign * len(t.Shards)
}

func (v *View) applyDeleted(b *batch, c *Change) error {
	b.deleted = true
	if c.Deleted {
		delete(v.deleted, c.Row.Key)
		return nil
	}
	t, err := decodeTopic(c.Row)
	if err == nil {
		v.deleted[c.Row.Key] = t
		v.gone.add(t.ID)
	}
	return err
}

func (v *View) applySnapshot(c *Change) error {
	if c.Deleted {
		if id, err := keyNumber(c.Row.Key, prefixSnapshots, 32); err == nil {
			delete(v.pointers, ShardID(id))
		}
		return nil
	}
	p, err := decodeSnapshot(c.Row)
	if err == nil {
		v.pointers[p.Shard] = p
	}
	return err
}

// applySmall takes one of the rows in that make a Cluster.
func (v *View) applySmall(b *batch, kind string, c *Change) error {
	if c.Deleted {
		b.cluster = v.rows.remove(kind, c.Row.Key) || b.cluster
		return nil
	}
	known, err := v.rows.put(kind, c.Row)
	b.cluster = b.cluster || known && err == nil
	return err
}

// put decodes a row; known is false for kinds of rows that do not belong here.
func (s *smallRows) put(kind string, r Row) (known bool, err error) {
	switch kind {
	case keyCluster:
		var info ClusterInfo
		if info, err = decodeCluster(r); err == nil {
			s.info = info
		}
	case keyController:
		var b BrokerID
		if b, err = decodeController(r); err == nil {
			s.controller, s.fence, s.office = b, r.Modified, r.Lease
		}
	case keyCoordinators:
		var shards []ShardID
		if shards, err = decodeCoordinators(r); err == nil {
			s.coordinators = shards
		}
	case prefixBrokers:
		var b *Broker
		if b, err = decodeBroker(r); err == nil {
			s.brokers[b.ID] = b
		}
	case prefixLive:
		var l live
		if l, err = decodeLive(r); err == nil {
			s.live[l.broker] = l
			delete(s.doubt, l.broker)
		}
	case prefixShards:
		var sh *Shard
		if sh, err = decodeShard(r); err == nil {
			s.shards[sh.ID] = sh
		}
	case prefixHints:
		var h LeaderHint
		if h, err = decodeHint(r); err == nil {
			s.hints[h.Shard] = h
		}
	default:
		return false, nil
	}
	return true, err
}

// remove forgets a row; it tells whether that changes a Cluster.
func (s *smallRows) remove(kind, key string) bool {
	switch kind {
	case keyCluster, keyCoordinators:
		// These never change: an absent row is a damaged store, not news.
		return false
	case keyController:
		s.controller, s.fence, s.office = NoBroker, 0, 0
		return true
	}
	id, err := keyNumber(key, kind, 32)
	if err != nil {
		return false
	}
	switch kind {
	case prefixBrokers:
		delete(s.brokers, BrokerID(id))
	case prefixLive:
		if _, held := s.live[BrokerID(id)]; held {
			delete(s.live, BrokerID(id))
			s.doubt[BrokerID(id)] = struct{}{} // finish decides
		}
	case prefixShards:
		delete(s.shards, ShardID(id))
	case prefixHints:
		delete(s.hints, ShardID(id))
	default:
		return false
	}
	return true
}

// finish publishes what a delivery has changed.
func (v *View) finish(b *batch) {
	v.revision = max(v.revision, b.revision)
	if b.cluster || v.cluster.Load() == nil {
		v.publishCluster()
	}
	for s := range v.subs {
		s.mark(b)
	}
	v.broadcast()
}

func (v *View) broadcast() {
	close(v.advanced)
	v.advanced = make(chan struct{})
}

// publishCluster builds the Cluster from its rows. Callers hold mu.
func (v *View) publishCluster() {
	if len(v.rows.doubt) > 0 && v.healthyFor(v.o.LapseGrace) {
		clear(v.rows.doubt)
	}
	brokers := make([]*Broker, 0, len(v.rows.brokers))
	for id, b := range v.rows.brokers {
		now := *b
		_, doubted := v.rows.doubt[id]
		l, held := v.rows.live[id]
		now.Alive = doubted || held && l.replica == b.Replica
		brokers = append(brokers, &now)
	}
	c := NewCluster(v.rows.info, brokers, slices.SortedFunc(maps.Values(v.rows.shards),
		func(a, b *Shard) int { return cmp.Compare(a.ID, b.ID) }), nil)
	c.hints = maps.Clone(v.rows.hints)
	c.Revision, c.Coordinators = v.revision, v.rows.coordinators
	c.Controller, c.Fence.Revision, c.Office = v.rows.controller, v.rows.fence, v.rows.office
	v.cluster.Store(c)
}
