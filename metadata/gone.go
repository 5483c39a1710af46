package metadata

// goneMax bounds the deleted topics that a view remembers: some 4 MiB.
const goneMax = 1 << 16

// goneTopics remembers the topics whose deletion a view has seen, the newest
// goneMax of them: the row that says so goes once all shards have let go of the
// topic, which may be before anybody has looked.
type goneTopics struct {
	ids  map[TopicID]struct{}
	ring []TopicID
	next int
}

func (g *goneTopics) add(id TopicID) {
	if _, known := g.ids[id]; known {
		return
	}
	if g.ids == nil {
		g.ids = map[TopicID]struct{}{}
	}
	g.ids[id] = struct{}{}
	if len(g.ring) < goneMax {
		g.ring = append(g.ring, id)
		return
	}
	delete(g.ids, g.ring[g.next])
	g.ring[g.next] = id
	g.next = (g.next + 1) % goneMax
}

// WasDeleted tells whether this view has seen a topic's deletion. False says
// nothing: the view may have been opened later.
func (v *View) WasDeleted(id TopicID) bool {
	v.mu.RLock()
	defer v.mu.RUnlock()
	_, ok := v.gone.ids[id]
	return ok
}
