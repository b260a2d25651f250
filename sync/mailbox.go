package sync

import "sync"

// mailbox is a queue whose senders never wait. What goes in is bounded by what
// its owner asked for.
type mailbox[T any] struct {
	mu    sync.Mutex
	items []T // guarded by mu
	wake  chan struct{}
}

func newMailbox[T any]() mailbox[T] { return mailbox[T]{wake: make(chan struct{}, 1)} }

func (b *mailbox[T]) put(item T) {
	b.mu.Lock()
	b.items = append(b.items, item)
	b.mu.Unlock()
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

func (b *mailbox[T]) take() []T {
	b.mu.Lock()
	defer b.mu.Unlock()
	items := b.items
	b.items = nil
	return items
}
