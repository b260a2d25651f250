package khatruadapter

import (
	"context"
	"sync"

	gonostr "github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
)

// beside finds out what a ReplaceEvent hook of the relay's removes from the backend: that of UseEventstore
// removes older versions and tells nobody. The zero beside is ready, and safe for concurrent use.
type beside struct {
	mu sync.Mutex
	// guarded by mu
	watches map[graspsync.Address]*watch
}

// watch is what is at an address while a hook replaces it. Who comes next waits for its end: what comes
// between a look and the hook would be missed.
type watch struct {
	at       graspsync.Address
	versions []graspsync.Event              // that there were before
	told     map[graspsync.EventID]struct{} // of what was removed since by others; guarded by beside.mu
	ended    chan struct{}
}

// begin waits until nobody else watches an address.
func (b *beside) begin(ctx context.Context, at graspsync.Address) (*watch, error) {
	for {
		b.mu.Lock()
		other := b.watches[at]
		if other == nil {
			break
		}
		b.mu.Unlock()
		select {
		case <-other.ended:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	defer b.mu.Unlock()
	if b.watches == nil {
		b.watches = make(map[graspsync.Address]*watch)
	}
	w := &watch{at: at, told: make(map[graspsync.EventID]struct{}), ended: make(chan struct{})}
	b.watches[at] = w
	return w, nil
}

func (b *beside) end(w *watch) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.watches, w.at)
	close(w.ended)
}

// tell takes note of an event that was removed, and will be told of.
func (b *beside) tell(e graspsync.Event) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if at, ok := e.Address(); ok && b.watches[at] != nil {
		b.watches[at].told[e.ID] = struct{}{}
	}
}

// untold reports whether nobody tells of an event that is gone.
func (b *beside) untold(w *watch, id graspsync.EventID) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	_, told := w.told[id]
	return !told
}

// watching looks up what a hook of the relay's may remove when it replaces an event. It returns nil for one
// of a regular kind. The watch must be ended.
func (s *Sync) watching(ctx context.Context, e graspsync.Event) (*watch, error) {
	at, ok := e.Address()
	if !ok {
		return nil, nil //nolint:nilnil // there is none
	}
	w, err := s.beside.begin(ctx, at)
	if err != nil {
		return nil, err
	}
	f := gonostr.Filter{Kinds: []int{at.Kind}, Authors: []string{at.Author.String()}}
	if at.Identifier != "" {
		f.Tags = gonostr.TagMap{"d": {at.Identifier}}
	}
	for v, err := range s.store.Events(ctx, f) {
		if err != nil {
			s.beside.end(w)
			return nil, err
		}
		if a, _ := v.Address(); a == at && v.ID != e.ID {
			w.versions = append(w.versions, v)
		}
	}
	return w, nil
}

// lost takes note of the versions that are gone and of which nobody has told. It is called when the
// event was saved: what comes by sync has told by then of what it has removed.
func (s *Sync) lost(ctx context.Context, w *watch) {
	if len(w.versions) == 0 {
		return
	}
	ids := make([]graspsync.EventID, len(w.versions))
	for i, v := range w.versions {
		ids[i] = v.ID
	}
	has, err := s.store.Has(ctx, ids)
	if err != nil {
		s.log.Error("older versions could not be looked up; who is told of what is removed may miss them", "err", err)
		return
	}
	for i, v := range w.versions {
		if !has[i] && s.beside.untold(w, v.ID) {
			s.replaced(v)
		}
	}
}
