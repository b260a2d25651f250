package sync

import (
	"testing"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/assert"

	"github.com/graspsync/graspsync/filters"
)

// An event that is judged again and the copy that a relay has just sent go to the Store
// as one; and each has its own outcome.
func TestCopiesAreSavedOnce(t *testing.T) {
	a, b := filters.EventID{1}, filters.EventID{2}
	of := func(id filters.EventID, kind SourceKind) *job {
		return &job{key: copyKey{id: id}, incoming: Incoming{Event: &nostr.Event{ID: id.String()}, Source: Source{Kind: kind}}}
	}
	jobs := []*job{of(a, Live), of(b, Live), of(a, CatchUp), of(b, CatchUp), of(a, Live)}
	events, places := incoming(jobs)
	assert.Equal(t, []int{0, 1, 0, 1, 0}, places)
	assert.Equal(t, []Incoming{jobs[0].incoming, jobs[1].incoming}, events, "the first of each")
}
