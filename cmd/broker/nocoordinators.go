package broker

import (
	"github.com/twmb/franz-go/pkg/kerr"

	"thermocline/ingest/group"
)

// noCoordinators is a broker that coordinates no group: clients ask again.
type noCoordinators struct{}

func (noCoordinators) Submit(string, group.Call) *kerr.Error     { return kerr.CoordinatorNotAvailable }
func (noCoordinators) Slots() []uint32                           { return nil }
func (noCoordinators) SubmitSlot(uint32, group.Call) *kerr.Error { return kerr.CoordinatorNotAvailable }
