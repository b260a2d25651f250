package purgatory

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory/internal/resolve"
	"github.com/graspsync/graspsync/state"
)

// contained is what an embedder gives, with panics that are errors.
type contained struct {
	relay Relay
	repos containedRepositories
	git   containedGit
	keep  keeper
	// stager has what was pushed for events that are not here.
	stager containedStager
	// departures takes repositories out of service; nil if there is none.
	departures *containedDepartures
}

func contain(relay Relay, repos Repositories, git GitFetcher, store state.Store, report *report) contained {
	c := contained{
		relay: containRelay(relay, report), repos: containedRepositories{repos, report}, git: containGit(git, report),
		keep: keeper{containedStore{store, report}}, stager: containedStager{report: report},
	}
	c.stager.of, _ = repos.(Stager)
	if d, departs := repos.(Departures); departs {
		c.departures = &containedDepartures{d, report}
	}
	return c
}

// containRelay returns a Relay whose panics are errors, those of Identifiers excepted:
// only who ranges over these can tell them from its own. It is a [Knower] if the other
// is one.
func containRelay(of Relay, report *report) Relay {
	r := containedRelay{of, report}
	if k, knows := of.(Knower); knows {
		return containedKnower{r, k}
	}
	return r
}

type containedRelay struct {
	Relay
	report *report
}

func (r containedRelay) Save(ctx context.Context, event *nostr.Event) (err error) {
	defer r.report.recovered(&err, ofRelay)
	return r.Relay.Save(ctx, event)
}

func (r containedRelay) Announcements(ctx context.Context, identifier string) (_ []*nip34.Announcement, err error) {
	defer r.report.recovered(&err, ofRelay)
	return r.Relay.Announcements(ctx, identifier)
}

// Relatives implements [Related]; there are none if the other one does not.
func (r containedRelay) Relatives(ctx context.Context, identifier string, authors []graspsync.PubKey) (_ []*nip34.Announcement, err error) {
	defer r.report.recovered(&err, ofRelay)
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
	defer r.report.recovered(&err, ofRelay) // then it is not ours
	return of.Lists(a)
}

func (r containedRelay) States(ctx context.Context, identifier string) (_ []*nip34.State, err error) {
	defer r.report.recovered(&err, ofRelay)
	return r.Relay.States(ctx, identifier)
}

func (r containedRelay) Deleted(ctx context.Context, event *nostr.Event) (_ bool, err error) {
	defer r.report.recovered(&err, ofRelay)
	return r.Relay.Deleted(ctx, event)
}

type containedKnower struct {
	containedRelay
	knower Knower
}

func (k containedKnower) Has(ctx context.Context, id graspsync.EventID) (_ bool, err error) {
	defer k.report.recovered(&err, ofRelay)
	return k.knower.Has(ctx, id)
}

// stored calls f for what a [PullLister] yields.
func (x *rations) stored(ctx context.Context, lister PullLister, ref graspsync.RepoRef, f func(*nip34.PullRequest)) (err error) {
	defer x.report.recovered(&err, ofRelay)
	for pr, err := range lister.Pulls(ctx, ref) {
		if err != nil {
			return fmt.Errorf("reading pull requests: %w", err)
		}
		f(pr)
	}
	return nil
}

// standings is that of [PullLister].
func (x *rations) standings(ctx context.Context, ref graspsync.RepoRef, pulls []*nip34.PullRequest, members map[graspsync.PubKey]struct{}) (out map[graspsync.EventID]PullStanding, err error) {
	defer x.report.recovered(&err, ofRelay)
	if out, err = x.lister.Standings(ctx, ref, pulls, members); err != nil {
		return nil, fmt.Errorf("reading what is said of pull requests: %w", err)
	}
	return out, nil
}

// containedRepositories are Repositories whose panics are errors.
type containedRepositories struct {
	repos  Repositories
	report *report
}

func (r containedRepositories) Lock(ctx context.Context, ref graspsync.RepoRef) (_ string, _ func(), err error) {
	defer r.report.recovered(&err, ofRepos)
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
			r.report.panicked(v, ofRepos)
		}
	}()
	unlock()
}

func (r containedRepositories) Create(ctx context.Context, ref graspsync.RepoRef, format nip34.ObjectFormat) (err error) {
	defer r.report.recovered(&err, ofRepos)
	return r.repos.Create(ctx, ref, format)
}

func (r containedRepositories) Remove(ctx context.Context, ref graspsync.RepoRef) (err error) {
	defer r.report.recovered(&err, ofRepos)
	return r.repos.Remove(ctx, ref)
}

// reserve is that of [Bounded], and counts what has no room. Where there is none there is room.
func (r containedRepositories) reserve(ctx context.Context, ref graspsync.RepoRef, pulls bool, bytes int64) (done func(), err error) {
	defer r.report.recovered(&err, ofRepos)
	b, bounded := r.repos.(Bounded)
	if !bounded {
		return func() {}, nil
	}
	end, err := b.Reserve(ctx, ref, pulls, bytes)
	if errors.Is(err, ErrFull) {
		r.report.drop("ceiling")
	}
	if err != nil {
		return nil, fmt.Errorf("reserving room: %w", err)
	}
	return func() { r.unlock(end) }, nil
}

// containedStore is a Store whose panics are errors, those of Keys excepted, which only
// Open asks for.
type containedStore struct {
	state.Store
	report *report
}

func (s containedStore) Get(ctx context.Context, key string) (_ []byte, _ state.Version, err error) {
	defer s.report.recovered(&err, ofStore)
	return s.Store.Get(ctx, key)
}

func (s containedStore) CompareAndSwap(ctx context.Context, key string, old state.Version, value []byte) (_ state.Version, err error) {
	defer s.report.recovered(&err, ofStore)
	return s.Store.CompareAndSwap(ctx, key, old, value)
}

func (s containedStore) Delete(ctx context.Context, key string, old state.Version) (err error) {
	defer s.report.recovered(&err, ofStore)
	return s.Store.Delete(ctx, key, old)
}

// containedGit is a GitFetcher whose panics are errors. It can do what the other can.
type containedGit struct {
	git    GitFetcher
	sharer Sharer // nil: it is none
	mender Mender // nil: it is none
	taker  Taker  // nil: it is none
	prober Prober // nil: it is none
	report *report

	weigher Weigher // nil: it is none

	maintainer Maintainer // nil: it is none
}

func containGit(of GitFetcher, report *report) containedGit {
	g := containedGit{git: of, report: report}
	g.sharer, _ = of.(Sharer)
	g.mender, _ = of.(Mender)
	g.taker, _ = of.(Taker)
	g.maintainer, _ = of.(Maintainer)
	g.prober, _ = of.(Prober)
	g.weigher, _ = of.(Weigher)
	return g
}

func (g containedGit) Quarantine(ctx context.Context, dir string) (q Quarantine, err error) {
	defer g.report.recovered(&err, ofGit)
	if q, err = g.git.Quarantine(ctx, dir); err != nil {
		return nil, err
	}
	return containedQuarantine{q, g.report}, nil
}

func (g containedGit) Missing(ctx context.Context, dir string, ids []nip34.ObjectID) (_ []nip34.ObjectID, err error) {
	defer g.report.recovered(&err, ofGit)
	return g.git.Missing(ctx, dir, ids)
}

func (g containedGit) Refs(ctx context.Context, dir string) (_ resolve.Refs, err error) {
	defer g.report.recovered(&err, ofGit)
	refs, err := g.git.Refs(ctx, dir)
	return resolve.Refs(refs), err
}

func (g containedGit) Align(ctx context.Context, dir string, changes []resolve.RefChange, head nip34.RefName) (err error) {
	defer g.report.recovered(&err, ofGit)
	var all []RefChange
	for _, c := range changes {
		all = append(all, RefChange(c))
	}
	return g.git.Align(ctx, dir, all, head)
}

func (g containedGit) Tidy(ctx context.Context, dir string) (err error) {
	defer g.report.recovered(&err, ofGit)
	return g.git.Tidy(ctx, dir)
}

// share is [Sharer]. It is called only if the other is one.
func (g containedGit) share(ctx context.Context, from, to string, ids []nip34.ObjectID) (err error) {
	defer g.report.recovered(&err, ofGit)
	return g.sharer.Share(ctx, from, to, ids)
}

// take is [Taker]. It is called only if the other is one.
func (g containedGit) take(ctx context.Context, dir, from string, ids []nip34.ObjectID) (err error) {
	defer g.report.recovered(&err, ofGit)
	return g.taker.Take(ctx, dir, from, ids)
}

// probe is [Prober]. It tells nothing if the other is none.
func (g containedGit) probe(ctx context.Context, dir string, ids []nip34.ObjectID) (kinds map[nip34.ObjectID]ObjectKind, stamp string, err error) {
	if g.prober == nil {
		return nil, "", nil
	}
	defer g.report.recovered(&err, ofGit)
	if kinds, stamp, err = g.prober.Probe(ctx, dir, ids); kinds == nil {
		kinds = make(map[nip34.ObjectID]ObjectKind)
	}
	return kinds, stamp, err
}

// has returns those of ids that are in a repository: with all that they need, if that can
// only be told together.
func (g containedGit) has(ctx context.Context, dir string, ids []nip34.ObjectID) ([]nip34.ObjectID, error) {
	kinds, _, err := g.probe(ctx, dir, ids)
	if err != nil {
		return nil, err
	}
	if kinds != nil {
		return slices.DeleteFunc(slices.Clone(ids), func(id nip34.ObjectID) bool { return kinds[id] == 0 }), nil
	}
	missing, err := g.Missing(ctx, dir, ids)
	if err != nil {
		return nil, err
	}
	lacks := setOf(missing)
	return slices.DeleteFunc(slices.Clone(ids), func(id nip34.ObjectID) bool {
		_, lacking := lacks[id]
		return lacking
	}), nil
}

// mend is [Mender], or Tidy if the other is none.
func (g containedGit) mend(ctx context.Context, dir string) (err error) {
	if g.mender == nil {
		return g.Tidy(ctx, dir)
	}
	defer g.report.recovered(&err, ofGit)
	return g.mender.Mend(ctx, dir)
}

// weigh is [Weigher]. It is called only if the other is one.
func (g containedGit) weigh(ctx context.Context, dir string, id nip34.ObjectID, but []nip34.ObjectID) (_ int64, err error) {
	defer g.report.recovered(&err, ofGit)
	return g.weigher.Weigh(ctx, dir, id, but)
}

// maintain is [Maintainer]. It is called only if the other is one.
func (g containedGit) maintain(ctx context.Context, how Maintenance) (_ Maintained, err error) {
	defer g.report.recovered(&err, ofGit)
	return g.maintainer.Maintain(ctx, how)
}

// containedQuarantine is a Quarantine whose panics are errors.
type containedQuarantine struct {
	q      Quarantine
	report *report
}

// Fetch says after a panic that the server is of no use, whatever it did to provoke it,
// and that nobody knows what is in the quarantine now.
func (q containedQuarantine) Fetch(ctx context.Context, from graspsync.URL, ids []nip34.ObjectID) (n int64, err error) {
	defer func() {
		if r := recover(); r != nil {
			q.report.panicked(r, ofGit)
			err = fmt.Errorf("%w: %w: %s", ErrBroken, errSpoilt, graspsync.Printable(fmt.Sprint(r)))
		}
	}()
	return q.q.Fetch(ctx, from, ids)
}

func (q containedQuarantine) Missing(ctx context.Context, ids []nip34.ObjectID) (_ []nip34.ObjectID, err error) {
	defer q.report.recovered(&err, ofGit)
	return q.q.Missing(ctx, ids)
}

func (q containedQuarantine) Promote(ctx context.Context) (err error) {
	defer q.report.recovered(&err, ofGit)
	return q.q.Promote(ctx)
}

func (q containedQuarantine) Discard() (err error) {
	defer q.report.recovered(&err, ofGit)
	return q.q.Discard()
}

// containedDepartures is Departures whose panics are errors.
type containedDepartures struct {
	Departures
	report *report
}

func (d containedDepartures) Depart(ctx context.Context, ref graspsync.RepoRef) (err error) {
	defer d.report.recovered(&err, ofRepos)
	return d.Departures.Depart(ctx, ref)
}

func (d containedDepartures) Sweep(ctx context.Context, before time.Time) (err error) {
	defer d.report.recovered(&err, ofRepos)
	return d.Departures.Sweep(ctx, before)
}

func (d containedDepartures) Erase(ctx context.Context, ref graspsync.RepoRef) (err error) {
	defer d.report.recovered(&err, ofRepos)
	return d.Departures.Erase(ctx, ref)
}

// owned calls each for the repositories that Owned yields.
func (d containedDepartures) owned(ctx context.Context, owner graspsync.PubKey, each func(ref graspsync.RepoRef)) (err error) {
	defer d.report.recovered(&err, ofRepos)
	for ref, err := range d.Owned(ctx, owner) {
		if err != nil {
			return err
		}
		each(ref)
	}
	return nil
}

// containedStager is a Stager whose panics are contained: it has nothing then.
type containedStager struct {
	of     Stager // nil: there is none
	report *report
}

func (s containedStager) staged(ref graspsync.RepoRef, id graspsync.EventID) (out []Upload) {
	defer s.recovered()
	return s.of.Staged(ref, id)
}

func (s containedStager) unstage(ref graspsync.RepoRef, id graspsync.EventID) {
	defer s.recovered()
	s.of.Unstage(ref, id)
}

func (s containedStager) recovered() {
	if r := recover(); r != nil {
		s.report.panicked(r, ofRepos)
	}
}

// errSpoilt says that nobody knows what is in a quarantine.
var errSpoilt = errors.New("git panicked")
