package metadata

import (
	"encoding/binary"
	"testing"
)

// A deletion is remembered after its row has gone, and only so many are.
func TestDeletionsAreRemembered(t *testing.T) {
	v := &View{rows: newSmallRows(), byKey: map[string]*Topic{}, deleted: map[string]*Topic{}, refused: map[string]error{}, advanced: make(chan struct{})}
	topic := sampleTopic()
	row := Row{Key: deletedKey(topic.ID), Value: encodeTopic(topic), Modified: 5}
	v.applyChanges(Changes{Revision: 5, Changes: []Change{{Row: row}}})
	v.applyChanges(Changes{Revision: 6, Changes: []Change{{Row: Row{Key: row.Key, Modified: 6}, Deleted: true}}})
	if len(v.Deleted()) != 0 || !v.WasDeleted(topic.ID) {
		t.Fatalf("expected the deletion to be remembered without its row, found %v, rows %v", v.WasDeleted(topic.ID), v.Deleted())
	}
	number := func(i int) (id TopicID) {
		binary.BigEndian.PutUint64(id[:], uint64(i))
		return id
	}
	for i := range goneMax + 9 {
		v.gone.add(number(i))
		v.gone.add(number(i))
	}
	if v.WasDeleted(topic.ID) || v.WasDeleted(number(8)) || !v.WasDeleted(number(9)) || !v.WasDeleted(number(goneMax+8)) || len(v.gone.ids) != goneMax {
		t.Fatalf("expected the newest %d deletions, found %d", goneMax, len(v.gone.ids))
	}
}
