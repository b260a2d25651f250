package sync

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/limit"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/sync/internal/lazy"
	"github.com/graspsync/graspsync/sync/internal/pending"
)

// maintainersChanged returns the events to judge again after announcements were added or removed.
// It removes announcements that were stored only because a maintainer list named their authors, if
// no list names them now.
func (w *writer) maintainersChanged(ctx context.Context) (woken []*pending.PendingEvent) {
	changed, all := w.self.index.TakeNews()
	if all {
		woken = append(woken, w.rejected.Anything()...)
		for _, identifier := range w.self.index.Related() {
			lazy.Put(&changed, identifier, struct{}{})
		}
	}
	for _, identifier := range slices.Sorted(maps.Keys(changed)) {
		relatives := w.relatives(identifier)
		if w.rejected.Idle() && len(relatives) == 0 {
			continue
		}
		heard, can := w.policy.hear(identifier)
		if can {
			w.retire(ctx, w.unlisted(identifier, relatives, heard))
		}
		keys := slices.DeleteFunc(w.recognized(identifier, heard, can), func(k pending.Key) bool { return !w.rejected.Awaits(k) })
		woken = append(woken, w.arrived(ctx, keys)...)
	}
	return woken
}

func (w *writer) relatives(identifier string) []*nip34.Announcement {
	if !w.store.removes() {
		return nil
	}
	return w.self.index.Relatives(identifier)
}

// spared is the number of unlisted announcements per identifier that stay stored, the newest.
const spared = 32

func (w *writer) unlisted(identifier string, relatives []*nip34.Announcement, heard map[graspsync.PubKey]bool) []*nip34.Announcement {
	out := slices.DeleteFunc(relatives, func(a *nip34.Announcement) bool {
		_, is := heard[a.Ref.Owner]
		return is
	})
	if len(w.policy.view.Announcements(identifier)) == 0 { // no hosted repository is left
		return out
	}
	slices.SortFunc(out, func(a, b *nip34.Announcement) int {
		if a.Key().Newer(b.Key()) {
			return -1
		}
		return 1
	})
	return out[min(spared, len(out)):]
}

// retiredAtOnce is the number of announcements that are read together.
const retiredAtOnce = 16

// retire removes announcements of authors that no list names, or that were dropped in favor of
// other authors. A failed removal is retried after the next change of the identifier, unless the
// Store cannot remove events.
func (w *writer) retire(ctx context.Context, all []*nip34.Announcement) {
	for some := range slices.Chunk(all, retiredAtOnce) {
		ids := make([]graspsync.EventID, len(some))
		for i, a := range some {
			ids[i] = a.ID
		}
		events, err := w.policy.events(ctx, ids)
		for i := 0; i < len(some) && err == nil; i++ {
			err = w.remove(ctx, some[i], events[some[i].ID])
		}
		if errors.Is(err, ErrCannotRemove) {
			return
		}
		if err != nil {
			w.cfg.Logger.Warn("removing unlisted announcements failed", "remaining", len(some), keyErr, err)
			return
		}
	}
}

// remove removes an announcement. ev is zero if it is not stored.
func (w *writer) remove(ctx context.Context, a *nip34.Announcement, ev graspsync.Event) error {
	if ev.IsZero() {
		w.self.removed(graspsync.Event{Event: &nostr.Event{Kind: graspsync.KindAnnouncement}, ID: a.ID, PubKey: a.Ref.Owner})
		return nil
	}
	if err := w.store.remove(ctx, ev); err != nil {
		return err
	}
	w.note(pending.Note{
		Incoming: graspsync.Incoming{Event: ev, Source: graspsync.Source{Kind: graspsync.CatchUp}}, ID: a.ID,
		Deps: pending.KeysOf([]graspsync.Dependency{graspsync.OnBecomesListed(a.Ref.Identifier, a.Ref.Owner), graspsync.OnRepo(a.Ref)}),
	})
	w.known.Forget(a.ID)
	w.telemetry.drop("unlisted", 1)
	w.cfg.Logger.Debug("unlisted announcement removed", keyEvent, a.ID.String())
	w.self.removed(ev)
	w.withdrawn(ev)
	return nil
}

// recognized returns the dependencies that recognized authors fulfill. If the Policy cannot tell
// (can is false), it returns those of all known people.
func (w *writer) recognized(identifier string, heard map[graspsync.PubKey]bool, can bool) (keys []pending.Key) {
	if !can {
		for _, a := range w.policy.view.Family(identifier) {
			keys = append(keys, onRecognized(a)...)
		}
	}
	for who, isMember := range heard {
		keys = append(keys, pending.KeyOf(graspsync.OnBecomesListed(identifier, who)))
		if isMember {
			keys = append(keys, pending.KeyOf(graspsync.OnBecomesMaintainer(identifier, who)))
		}
	}
	return keys
}

// recognizedAuthors contains the authors whose events are accepted under one identifier.
type recognizedAuthors struct {
	family     *nip34.AnnouncementSet
	generation Revision // revision of the announcements; set by authorityCache

	speakers func() map[graspsync.PubKey]struct{}
	wanted   func() (of map[graspsync.PubKey]graspsync.PubKey, full bool)
	heard    func() map[graspsync.PubKey]bool
}

// newRecognizedAuthors takes the owners of accepted and of held announcements.
func newRecognizedAuthors(family *nip34.AnnouncementSet, owners, waiting []graspsync.PubKey) *recognizedAuthors {
	k := &recognizedAuthors{family: family}
	k.speakers = sync.OnceValue(func() map[graspsync.PubKey]struct{} { return family.Speakers(slices.Concat(owners, waiting)) })
	k.wanted = sync.OnceValues(func() (map[graspsync.PubKey]graspsync.PubKey, bool) {
		of, full := family.Wanted(owners, nip34.ServedBounds())
		others, crowded := family.Wanted(waiting, nip34.WaitingBounds())
		maps.Copy(of, others)
		return of, full || crowded
	})
	k.heard = sync.OnceValue(func() map[graspsync.PubKey]bool {
		heard := make(map[graspsync.PubKey]bool)
		wanted, _ := k.wanted()
		for who := range wanted {
			heard[who] = false
		}
		for who := range k.speakers() {
			heard[who] = true
		}
		return heard
	})
	return k
}

// speaks reports whether who is a member of the maintainer set of a hosted repository.
func (k *recognizedAuthors) speaks(who graspsync.PubKey) bool {
	if !k.family.Knows(who) {
		return false
	}
	_, has := k.speakers()[who]
	return has
}

const (
	// maxAuthorities is the maximum number of cached results. maxAuthorityListings is the maximum
	// number of their announcements and listings. One result counts for at most half of the
	// listings, because a large identifier needs two results, with and without held announcements.
	maxAuthorities       = 1000
	maxAuthorityListings = 250_000
)

// authorityCache contains recent results. It is safe for concurrent use.
type authorityCache struct {
	mu      sync.Mutex
	entries *limit.Table[authorityKey, *recognizedAuthors] // guarded by mu; nil: empty
}

// authorityKey is an identifier, and whether held announcements are included.
type authorityKey struct {
	identifier string
	waits      bool
}

func (c *authorityCache) get(key authorityKey, generation Revision) *recognizedAuthors {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.entries == nil {
		c.entries = limit.NewTable[authorityKey, *recognizedAuthors](maxAuthorities, maxAuthorityListings)
	}
	k, _ := c.entries.Get(key)
	if k == nil || k.generation != generation {
		return nil
	}
	c.entries.Touch(key)
	return k
}

func (c *authorityCache) put(key authorityKey, k *recognizedAuthors, listings int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.entries.Put(key, limit.Stranger{}, min(int64(listings), maxAuthorityListings/2), k)
}

// of returns the recognized authors of an identifier. It reads the revision before the
// announcements, so that a concurrent change makes the result obsolete. ours reports whether an
// announcement that is not accepted makes a repository hosted. A nil ours means that owners do not
// matter.
func (c *authorityCache) of(rule nip34.Membership, identifier string, view View, ours func(*nip34.Announcement) bool) *recognizedAuthors {
	generation := view.Revision(identifier)
	key := authorityKey{identifier, generation.Waiting != nil}
	if generation.Known {
		if k := c.get(key, generation); k != nil {
			return k
		}
	}
	all := view.Family(identifier)
	var owners, waiting []graspsync.PubKey
	if ours != nil {
		waiting = nip34.Owners(view.Waiting(identifier))
		owners = ownersAmong(all, view.Announcements(identifier), waiting, ours)
	}
	k := newRecognizedAuthors(rule.Family(identifier, all), owners, waiting)
	if generation.Known {
		listings := len(all)
		for _, a := range all {
			listings += len(a.Maintainers)
		}
		key.identifier = strings.Clone(identifier)
		k.generation = generation
		c.put(key, k, listings)
	}
	return k
}

// ownersAmong returns the owners of hosted repositories whose announcements are not held.
func ownersAmong(all, accepted []*nip34.Announcement, waiting []graspsync.PubKey, ours func(*nip34.Announcement) bool) (owners []graspsync.PubKey) {
	is := make(map[graspsync.PubKey]bool, len(accepted)+len(waiting))
	for _, a := range accepted {
		is[a.Ref.Owner] = true
	}
	for _, owner := range waiting {
		is[owner] = false
	}
	for _, a := range all {
		if yes, known := is[a.Ref.Owner]; yes || !known && ours(a) {
			owners = append(owners, a.Ref.Owner)
		}
	}
	return owners
}
