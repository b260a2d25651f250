package eventstoreadapter

import (
	"context"
	"runtime"

	"github.com/graspsync/graspsync/internal/turns"
)

// places bound how many events are read at once to answer clients: so many pages as there are processors for each client, and
// as many for all others. Each query has its turn, by client and not by when it came, and keeps its place until the backend is
// through with it: that does not end with whoever asked.
type places struct {
	turns *turns.Turns
	each  int
}

// fewestPlaces is how many pages are read at once on a small machine.
const fewestPlaces = 4

func newPlaces() *places {
	each := max(fewestPlaces, runtime.GOMAXPROCS(0))
	return &places{turns.New(2 * each), each}
}

// reading is the key of what a client has read, in a context.
type reading struct{}

// of says in a context that so many events are read for a client.
func (p *places) of(ctx context.Context, events int) context.Context {
	return context.WithValue(ctx, reading{}, min(p.each, 1+events/(clientPage+1)))
}

// enter waits for the places that a call needs, if it is for a client.
func (p *places) enter(ctx context.Context) (leave func(), err error) {
	n, _ := ctx.Value(reading{}).(int)
	if n == 0 {
		return func() {}, nil
	}
	client := turns.Client(ctx)
	if err := p.turns.Enter(ctx, client, n); err != nil {
		return nil, err
	}
	return func() { p.turns.Leave(client, n) }, nil
}
