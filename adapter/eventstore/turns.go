package eventstoreadapter

import (
	"context"
	"runtime"

	"github.com/graspsync/graspsync/adapter/internal/asker"
	"github.com/graspsync/graspsync/limit"
)

// fewestPlaces is how many pages are read concurrently on a small machine.
const fewestPlaces = 4

// newPlaces returns the places for pages that are read to answer clients: one for each processor. A client has one of them. A query
// keeps its place until the backend is through with it: that does not end with the client that asked.
func newPlaces() *limit.Slots {
	return limit.NewSlots(int64(max(fewestPlaces, runtime.GOMAXPROCS(0))), 1)
}

// reading is the key of a context whose reads answer a client.
type reading struct{}

// forClient returns a context whose reads take a place.
func forClient(ctx context.Context) context.Context { return context.WithValue(ctx, reading{}, true) }

// place waits for a place if a call is for a client.
func (g *guard) place(ctx context.Context) (leave func(), err error) {
	if ctx.Value(reading{}) == nil {
		return func() {}, nil
	}
	slot, err := g.places.Acquire(ctx, asker.Of(ctx), 1)
	if err != nil {
		return nil, err
	}
	return slot.Release, nil
}
