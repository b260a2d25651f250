package purgatory

import (
	"context"
	"fmt"
	"runtime/debug"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/state"
)

// Whose code it was that panicked, as [Status] tells.
const (
	ofRelay    = "relay"
	ofRepos    = "repositories"
	ofGit      = "git"
	ofStore    = "store"
	ofObserver = "observer"
)

// recovered, deferred, turns a panic of the embedder's code into an error, and counts
// it. Such a panic is a bug, but whatever a stranger did to provoke it must cost no
// more than what was being done: that failed, and is tried again as after any error.
func (p *Purgatory) recovered(err *error, whose string) {
	r := recover()
	if r == nil {
		return
	}
	p.panicked(r, whose)
	*err = fmt.Errorf("%s panicked: %s", whose, graspsync.Printable(fmt.Sprint(r)))
}

// panicked counts a panic that was contained. It is called while that unwinds, so that
// the stack tells where it was.
func (p *Purgatory) panicked(r any, whose string) {
	p.stats.panicked(whose)
	p.cfg.Logger.Error("panic contained", "where", whose, keyError, graspsync.Printable(fmt.Sprint(r)), "stack", string(debug.Stack()))
}

// observe tells the observer. Nothing depends on what it makes of that.
func (p *Purgatory) observe(o Observation) {
	defer func() {
		if r := recover(); r != nil {
			p.panicked(r, ofObserver)
		}
	}()
	p.cfg.Observe(o)
}

// containRelay returns a Relay whose panics are errors, those of Identifiers excepted:
// only who ranges over these can tell them from its own. It is a [Knower] if the other
// is one.
func (p *Purgatory) containRelay(of Relay) Relay {
	r := containedRelay{of, p}
	if k, knows := of.(Knower); knows {
		return containedKnower{r, k}
	}
	return r
}

type containedRelay struct {
	Relay
	p *Purgatory
}

func (r containedRelay) Save(ctx context.Context, event *nostr.Event) (err error) {
	defer r.p.recovered(&err, ofRelay)
	return r.Relay.Save(ctx, event)
}

func (r containedRelay) Announcements(ctx context.Context, identifier string) (_ []*nip34.Announcement, err error) {
	defer r.p.recovered(&err, ofRelay)
	return r.Relay.Announcements(ctx, identifier)
}

// Relatives implements [Related]; there are none if the other one does not.
func (r containedRelay) Relatives(ctx context.Context, identifier string, authors []graspsync.PubKey) (_ []*nip34.Announcement, err error) {
	defer r.p.recovered(&err, ofRelay)
	if of, is := r.Relay.(Related); is {
		return of.Relatives(ctx, identifier, authors)
	}
	return nil, nil
}

// Lists implements [Related]; all do if the other one does not.
func (r containedRelay) Lists(a *nip34.Announcement) (lists bool) {
	of, is := r.Relay.(Related)
	if !is {
		return true
	}
	var err error
	defer r.p.recovered(&err, ofRelay) // then it is not ours
	return of.Lists(a)
}

func (r containedRelay) States(ctx context.Context, identifier string) (_ []*nip34.State, err error) {
	defer r.p.recovered(&err, ofRelay)
	return r.Relay.States(ctx, identifier)
}

func (r containedRelay) Deleted(ctx context.Context, event *nostr.Event) (_ bool, err error) {
	defer r.p.recovered(&err, ofRelay)
	return r.Relay.Deleted(ctx, event)
}

type containedKnower struct {
	containedRelay
	knower Knower
}

func (k containedKnower) Has(ctx context.Context, id graspsync.EventID) (_ bool, err error) {
	defer k.p.recovered(&err, ofRelay)
	return k.knower.Has(ctx, id)
}

// stored calls f for what a [PullLister] yields.
func (p *Purgatory) stored(ctx context.Context, lister PullLister, ref graspsync.RepoRef, f func(*nip34.PullRequest)) (err error) {
	defer p.recovered(&err, ofRelay)
	for pr, err := range lister.Pulls(ctx, ref) {
		if err != nil {
			return fmt.Errorf("reading pull requests: %w", err)
		}
		f(pr)
	}
	return nil
}

// standings is that of [PullLister].
func (p *Purgatory) standings(ctx context.Context, ref graspsync.RepoRef, pulls []*nip34.PullRequest, members map[graspsync.PubKey]struct{}) (out map[graspsync.EventID]PullStanding, err error) {
	defer p.recovered(&err, ofRelay)
	if out, err = p.rations.lister.Standings(ctx, ref, pulls, members); err != nil {
		return nil, fmt.Errorf("reading what is said of pull requests: %w", err)
	}
	return out, nil
}

// containedRepositories are Repositories whose panics are errors.
type containedRepositories struct {
	repos Repositories
	p     *Purgatory
}

func (r containedRepositories) Lock(ctx context.Context, ref graspsync.RepoRef) (_ string, _ func(), err error) {
	defer r.p.recovered(&err, ofRepos)
	dir, unlock, err := r.repos.Lock(ctx, ref)
	if err != nil {
		return "", nil, err
	}
	return dir, func() { r.unlock(unlock) }, nil
}

// unlock lets go of a lock. Should that panic, what was done under it is done all the
// same; who waits for it waits no longer than a context says.
func (r containedRepositories) unlock(unlock func()) {
	defer func() {
		if v := recover(); v != nil {
			r.p.panicked(v, ofRepos)
		}
	}()
	unlock()
}

func (r containedRepositories) Create(ctx context.Context, ref graspsync.RepoRef, format nip34.ObjectFormat) (err error) {
	defer r.p.recovered(&err, ofRepos)
	return r.repos.Create(ctx, ref, format)
}

func (r containedRepositories) Remove(ctx context.Context, ref graspsync.RepoRef) (err error) {
	defer r.p.recovered(&err, ofRepos)
	return r.repos.Remove(ctx, ref)
}

// reserve is that of [Bounded]. Where there is none there is room.
func (r containedRepositories) reserve(ctx context.Context, ref graspsync.RepoRef, pulls bool, bytes int64) (done func(), err error) {
	defer r.p.recovered(&err, ofRepos)
	b, bounded := r.repos.(Bounded)
	if !bounded {
		return func() {}, nil
	}
	end, err := b.Reserve(ctx, ref, pulls, bytes)
	if err != nil {
		return nil, fmt.Errorf("reserving room: %w", err)
	}
	return func() { r.unlock(end) }, nil
}

// containedStore is a Store whose panics are errors, those of Keys excepted, which only
// Open asks for.
type containedStore struct {
	state.Store
	p *Purgatory
}

func (s containedStore) Get(ctx context.Context, key string) (_ []byte, _ state.Version, err error) {
	defer s.p.recovered(&err, ofStore)
	return s.Store.Get(ctx, key)
}

func (s containedStore) CompareAndSwap(ctx context.Context, key string, old state.Version, value []byte) (_ state.Version, err error) {
	defer s.p.recovered(&err, ofStore)
	return s.Store.CompareAndSwap(ctx, key, old, value)
}

func (s containedStore) Delete(ctx context.Context, key string, old state.Version) (err error) {
	defer s.p.recovered(&err, ofStore)
	return s.Store.Delete(ctx, key, old)
}
