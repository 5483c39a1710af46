package ingest

import (
	"github.com/twmb/franz-go/pkg/kerr"

	"thermocline/ingest/group"
)

// Coordinators runs the coordinators of the slots that this broker leads.
type Coordinators interface {
	// Submit hands a call to the coordinator of the group's slot, without
	// blocking. Nil: Reply will be called exactly once. Else the reason why
	// not, and Reply is never called: kerr.NotCoordinator,
	// kerr.CoordinatorLoadInProgress or kerr.CoordinatorNotAvailable.
	Submit(groupID string, c group.Call) *kerr.Error
	// Slots lists the slots whose coordinators work here, in order.
	Slots() []uint32
	// SubmitSlot is Submit for a slot: ListGroups asks all of them.
	SubmitSlot(slot uint32, c group.Call) *kerr.Error
}
