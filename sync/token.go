package sync

import "sync/atomic"

// token counts the events of one batch that are on their way into the Store. The
// batch has ended when its request has, and every one of them is settled: counted,
// not waited for.
type token struct {
	open   atomic.Int64 // events, and one for the request itself
	failed atomic.Bool  // some event could not be saved; the batch must be repeated
	ended  func()       // set before the request lets go
}

// newToken returns a token that is held by the request.
func newToken() *token {
	t := &token{}
	t.open.Store(1)
	return t
}

func (t *token) hold() { t.open.Add(1) }

// settle lets one hold go. ok is false if an event was lost to a failure of ours.
func (t *token) settle(ok bool) {
	if !ok {
		t.failed.Store(true)
	}
	t.release()
}

// finish lets the request's own hold go. ended is called once everything is
// settled, by whoever settles last; it must not block.
func (t *token) finish(ended func()) {
	t.ended = ended
	t.release()
}

func (t *token) release() {
	if t.open.Add(-1) == 0 {
		t.ended()
	}
}
