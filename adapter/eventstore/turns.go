package eventstoreadapter

import (
	"context"
	"runtime"

	"golang.org/x/sync/semaphore"
)

// turns bounds how many events are read at once to answer clients: so many pages as there are processors. Each query has
// its turn when it comes, and not one question before the other.
type turns struct {
	pages *semaphore.Weighted
	all   int64
}

// fewestTurns is how many pages are read at once on a small machine.
const fewestTurns = 4

func newTurns() *turns {
	all := int64(max(fewestTurns, runtime.GOMAXPROCS(0)))
	return &turns{semaphore.NewWeighted(all), all}
}

// enter waits until so many events may be read, or all that ever may.
func (t *turns) enter(ctx context.Context, events int) (leave func(), err error) {
	pages := min(t.all, int64(1+events/(clientPage+1)))
	if err := t.pages.Acquire(ctx, pages); err != nil {
		return nil, err
	}
	return func() { t.pages.Release(pages) }, nil
}
