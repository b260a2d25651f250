package purgatory

import (
	"slices"
	"sync"

	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory/internal/ledger"
)

// announcing has the announcements that wait under the identifiers that events were about
// lately.
type announcing struct {
	waiting *waiting

	mu sync.Mutex
	by map[string]announced // guarded by mu
}

// announced are the announcements that wait under an identifier.
type announced struct {
	generation *ledger.Generation
	hard, soft []*nip34.Announcement
}

// maxAnnouncing is of how many identifiers they are kept: of those that events are about now.
const maxAnnouncing = 64

func newAnnouncing(waiting *waiting) *announcing {
	return &announcing{waiting: waiting, by: make(map[string]announced)}
}

func (a *announcing) under(identifier string) announced {
	a.mu.Lock()
	defer a.mu.Unlock()
	k := a.by[identifier]
	generation, entries := a.waiting.announcements(identifier, k.generation)
	switch generation {
	case nil:
		delete(a.by, identifier)
		return announced{}
	case k.generation:
		return k
	}
	k = announced{generation: generation}
	for _, e := range entries {
		if k.soft = append(k.soft, e.Announces); !e.Soft && e.Class == ledger.Announcement {
			k.hard = append(k.hard, e.Announces)
		}
	}
	if len(a.by) >= maxAnnouncing {
		clear(a.by)
	}
	a.by[identifier] = k
	return k
}

// hard is [Purgatory.Announcements].
func (a *announcing) hard(identifier string) []*nip34.Announcement {
	return slices.Clip(a.under(identifier).hard)
}

// soft is [Purgatory.Remembered].
func (a *announcing) soft(identifier string) []*nip34.Announcement {
	return slices.Clip(a.under(identifier).soft)
}

// generation is another one whenever hard or soft would return something else for an
// identifier, and nil where they return nothing.
func (a *announcing) generation(identifier string) any {
	if g := a.waiting.generation(identifier); g != nil {
		return g
	}
	return nil
}
