package sync

import (
	"testing"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/assert"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/eventtest"
)

// An event that is judged again and the copy that a relay has just sent go to the Store
// as one; and each has its own outcome.
func TestCopiesAreSavedOnce(t *testing.T) {
	a, b := graspsync.EventID{1}, graspsync.EventID{2}
	of := func(id graspsync.EventID, kind graspsync.SourceKind) *job {
		return &job{key: copyKey{id: id}, incoming: graspsync.Incoming{Event: eventtest.Of(&nostr.Event{ID: id.String()}), Source: graspsync.Source{Kind: kind}}}
	}
	jobs := []*job{of(a, graspsync.Live), of(b, graspsync.Live), of(a, graspsync.CatchUp), of(b, graspsync.CatchUp), of(a, graspsync.Live)}
	events, places := incoming(jobs)
	assert.Equal(t, []int{0, 1, 0, 1, 0}, places)
	assert.Equal(t, []graspsync.Incoming{jobs[0].incoming, jobs[1].incoming}, events, "the first of each")
}
