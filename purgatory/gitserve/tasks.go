package gitserve

import (
	"context"
	"sync"
)

// tasks are what is under way: close ends all of it, and returns when nothing of it is
// left. It is safe for concurrent use.
type tasks struct {
	ctx  context.Context //nolint:containedctx // ends with close: requests have their own
	stop context.CancelFunc
	mu   sync.Mutex // taken to begin something, and to close
	wg   sync.WaitGroup
}

func newTasks() *tasks {
	ctx, stop := context.WithCancel(context.Background())
	return &tasks{ctx: ctx, stop: stop}
}

func (t *tasks) close() {
	t.mu.Lock()
	t.stop()
	t.mu.Unlock()
	t.wg.Wait()
}

// begin makes a request one that close ends and waits for.
func (t *tasks) begin(ctx context.Context) (_ context.Context, end func(), ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ctx.Err() != nil {
		return nil, nil, false
	}
	t.wg.Add(1)
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(t.ctx, cancel)
	return ctx, func() {
		stop()
		cancel()
		t.wg.Done()
	}, true
}

// beside does something that may outlast whoever begins it, unless all was closed. close ends it.
func (t *tasks) beside(f func(context.Context)) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ctx.Err() != nil {
		return false
	}
	t.wg.Go(func() { f(t.ctx) })
	return true
}
