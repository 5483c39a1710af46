package broker

import (
	"context"
	"errors"
	"testing"
	"time"
)

// TestWhoAnswersIsAlive: a broker that has given its registration back, as one
// that stops has, still names itself, so that no client is left without any.
func TestWhoAnswersIsAlive(t *testing.T) {
	b := startBrokers(t, 1)[0]
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := b.registration.Close(ctx); err != nil {
		t.Fatal(err)
	}
	until(t, func() error {
		if b.view.Cluster().Alive(b.id) {
			return errors.New("the metadata says that the broker is alive")
		}
		return nil
	})
	self, other := &cluster{self: b.id, view: b.view}, &cluster{self: b.id + 1, view: b.view}
	if n := len(self.Brokers()); n != 1 {
		t.Errorf("brokers by its own answer: expected 1, found %d", n)
	}
	if n := len(other.Brokers()); n != 0 {
		t.Errorf("brokers by another's answer: expected 0, found %d", n)
	}
}
