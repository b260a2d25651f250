package sync

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/limit"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/sync/internal/pending"
)

// maintainersChanged returns the events to judge again after announcements were added or removed.
func (w *writer) maintainersChanged(ctx context.Context) (woken []*pending.PendingEvent) {
	changed, all := w.index.TakeNews()
	if all {
		return w.rejected.Anything()
	}
	if w.rejected.Idle() {
		return nil
	}
	for _, identifier := range slices.Sorted(maps.Keys(changed)) {
		keys := slices.DeleteFunc(w.fulfilled(identifier), func(k pending.Key) bool { return !w.rejected.Awaits(k) })
		woken = append(woken, w.arrived(ctx, keys)...)
	}
	return woken
}

func (g *ingest) recognized(identifier string) (authors map[graspsync.PubKey]bool) {
	var err error
	defer g.telemetry.recovered(&err, "policy") // a panicking Policy cannot tell
	return g.policy.RecognizedAuthors(identifier, g.view)
}

func (g *ingest) authority(ref graspsync.RepoRef) *nip34.Authority {
	var err error
	defer g.telemetry.recovered(&err, "policy")
	return g.policy.Authority(ref, g.view)
}

// fulfilled returns the dependencies that recognized authors fulfill. If the Policy cannot tell, it
// returns those of all known people.
func (w *writer) fulfilled(identifier string) (keys []pending.Key) {
	recognized := w.recognized(identifier)
	if recognized == nil {
		for _, a := range w.view.Family(identifier) {
			keys = append(keys, onRecognized(a)...)
		}
	}
	for who, isMember := range recognized {
		keys = append(keys, pending.KeyOf(graspsync.OnBecomesListed(identifier, who)))
		if isMember {
			keys = append(keys, pending.KeyOf(graspsync.OnBecomesMaintainer(identifier, who)))
		}
	}
	return keys
}

type recognizedAuthors struct {
	family          *nip34.AnnouncementSet
	owners, waiting []graspsync.PubKey // of accepted and of held announcements

	once   sync.Once
	wanted map[graspsync.PubKey]graspsync.PubKey // see [nip34.AnnouncementSet.Wanted]
	full   bool
	roles  map[graspsync.PubKey]bool // see [Policy].RecognizedAuthors
}

func (k *recognizedAuthors) compute() *recognizedAuthors {
	k.once.Do(func() {
		k.wanted, k.full = k.family.Wanted(k.owners, nip34.ServedBounds())
		others, full := k.family.Wanted(k.waiting, nip34.WaitingBounds())
		maps.Copy(k.wanted, others)
		k.full = k.full || full
		k.roles = make(map[graspsync.PubKey]bool)
		for who := range k.wanted {
			k.roles[who] = false
		}
		for who := range k.family.Speakers(slices.Concat(k.owners, k.waiting)) {
			k.roles[who] = true
		}
	})
	return k
}

// authorityKey is an identifier and the revision of its announcements ([View]).
type authorityKey struct {
	identifier string
	revision   any
}

const (
	// maxAuthorities is the maximum number of cached results, maxAuthorityListings that of their
	// announcements and listings. One result counts for at most half of them, because a large
	// identifier needs two, with and without held announcements.
	maxAuthorities       = 1000
	maxAuthorityListings = 250_000
)

// authors returns the recognized authors of an identifier. It reads the revision before the
// announcements, so that a concurrent change makes the result obsolete.
func (p *GRASPPolicy) authors(identifier string, view View) *recognizedAuthors {
	key := authorityKey{identifier, view.Revision(identifier)}
	if k := p.cached(key); k != nil {
		return k
	}
	all, waiting := view.Family(identifier), nip34.Owners(view.Waiting(identifier))
	k := &recognizedAuthors{
		family: p.Membership.Family(identifier, all), waiting: waiting,
		owners: ownersAmong(all, view.Announcements(identifier), waiting, p.Lists),
	}
	if key.revision != nil && len(all) > 0 {
		listings := len(all)
		for _, a := range all {
			listings += len(a.Maintainers)
		}
		key.identifier = strings.Clone(identifier)
		p.mu.Lock()
		defer p.mu.Unlock()
		p.cache.Put(key, limit.Stranger{ID: key.identifier}, min(int64(listings), maxAuthorityListings/2), k)
	}
	return k
}

func (p *GRASPPolicy) cached(key authorityKey) *recognizedAuthors {
	p.mu.Lock()
	defer p.mu.Unlock()
	k, _ := p.cache.Get(key)
	if k != nil {
		p.cache.Touch(key)
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
