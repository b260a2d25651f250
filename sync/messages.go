package sync

import (
	"context"
	"sync"
	"time"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/sync/internal/plan"
	"github.com/graspsync/graspsync/sync/internal/relaylimits"
	"github.com/graspsync/graspsync/sync/internal/session"
	"github.com/graspsync/graspsync/sync/wire"
)

// mailbox is an unbounded queue whose senders never block. Its owner limits the number of messages
// by limiting the work that sends them.
type mailbox[T any] struct {
	mu    sync.Mutex
	items []T // guarded by mu
	wake  chan struct{}
}

func newMailbox[T any]() mailbox[T] { return mailbox[T]{wake: make(chan struct{}, 1)} }

// put adds an item and returns the number of items.
func (b *mailbox[T]) put(item T) int {
	b.mu.Lock()
	b.items = append(b.items, item)
	n := len(b.items)
	b.mu.Unlock()
	select {
	case b.wake <- struct{}{}:
	default:
	}
	return n
}

func (b *mailbox[T]) take() []T {
	b.mu.Lock()
	defer b.mu.Unlock()
	items := b.items
	b.items = nil
	return items
}

// loopMessage is a message to the loop, whose goroutine calls handle.
type loopMessage interface {
	handle(ctx context.Context, l *loop)
}

// Messages of connections.
type (
	// connOpened: the connection is open.
	connOpened struct {
		conn   *relayConn
		limits relaylimits.Requests
		info   wire.Info
	}
	// dialFailure: there is no connection.
	dialFailure struct {
		conn *relayConn
		err  error
	}
	// connLoss: the connection has ended.
	connLoss struct {
		conn    *relayConn
		err     error
		cursors map[plan.BatchID][]plan.Cursor
		aliveAt time.Time
	}
	// batchResult: all requests of a batch have ended and all its events are settled.
	batchResult struct {
		conn *relayConn
		*relayBatch
		done session.Done
	}
	rateLimit struct {
		conn   *relayConn
		until  time.Time
		reason string
		log    bool
	}
	// lackingEvents contains the repositories of each event that the relay lacks.
	lackingEvents struct {
		conn   *relayConn
		events [][]graspsync.RepoRef
	}
)

// Messages of other goroutines.
type (
	// planInput is passed on to the plan.
	planInput struct{ in plan.Input }
	// scanResult: a scan of the Store has ended.
	scanResult struct{ err error }
	// threadSearchResult: the search for replies in these repositories has ended; nil means all.
	threadSearchResult struct {
		of  map[graspsync.RepoRef]struct{}
		err error
	}
	// exportResult: the rejections on which the confirmed state depends are durable, unless err is
	// set.
	exportResult struct{ err error }
	// question is a loopMessage with an answer. It closes answered after the loop has written the
	// answer into it.
	question struct {
		loopMessage
		answered chan struct{}
	}
)

func (msg planInput) handle(ctx context.Context, l *loop) { l.step(ctx, msg.in) }

func (q question) handle(ctx context.Context, l *loop) {
	q.loopMessage.handle(ctx, l)
	close(q.answered)
}
