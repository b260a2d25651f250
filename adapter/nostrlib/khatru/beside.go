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
	watches map[*watch]struct{}
}

// watch is what was stored at an address before a hook was called.
type watch struct {
	versions []graspsync.Event
	told     map[graspsync.EventID]struct{} // of what was removed since, by anybody; guarded by beside.mu
}

// begin watches, from before the versions are looked up.
func (b *beside) begin() *watch {
	w := &watch{told: make(map[graspsync.EventID]struct{})}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.watches == nil {
		b.watches = make(map[*watch]struct{})
	}
	b.watches[w] = struct{}{}
	return w
}

func (b *beside) end(w *watch) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.watches, w)
}

// tell takes note of an event that was removed, and will be told of.
func (b *beside) tell(id graspsync.EventID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for w := range b.watches {
		w.told[id] = struct{}{}
	}
}

// claim reports whether nobody tells of an event that is gone. Then who asks does.
func (b *beside) claim(w *watch, id graspsync.EventID) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, told := w.told[id]; told {
		return false
	}
	for w := range b.watches {
		w.told[id] = struct{}{}
	}
	return true
}

// look has a watch know what an event would replace.
func (s *Sync) look(ctx context.Context, w *watch, e graspsync.Event) error {
	at, ok := e.Address()
	if !ok {
		return nil
	}
	f := gonostr.Filter{Kinds: []int{at.Kind}, Authors: []string{at.Author.String()}}
	if at.Identifier != "" {
		f.Tags = gonostr.TagMap{"d": {at.Identifier}}
	}
	for v, err := range s.store.Events(ctx, f) {
		if err != nil {
			return err
		}
		if a, _ := v.Address(); a == at && v.ID != e.ID {
			w.versions = append(w.versions, v)
		}
	}
	return nil
}

// lost takes note of the versions that are gone and of which nobody has told. It is called when the
// event was saved: who has removed something for an event of the same author has told by then.
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
		if !has[i] && s.beside.claim(w, v.ID) {
			s.removed.Add(v)
		}
	}
}
