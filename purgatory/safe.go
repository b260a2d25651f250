package purgatory

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/state"
)

// safeRepositories are Repositories that turn panics into errors.
type safeRepositories struct {
	repos  Repositories
	report *report
}

func (r safeRepositories) Lock(ctx context.Context, ref graspsync.RepoRef) (_ string, _ func(), err error) {
	defer r.report.recovered(&err, ofRepos)
	dir, unlock, err := r.repos.Lock(ctx, ref)
	if err != nil {
		return "", nil, err
	}
	return dir, func() { r.unlock(unlock) }, nil
}

// unlock calls a function of the embedder. A panic does not undo the work done before.
func (r safeRepositories) unlock(unlock func()) {
	defer r.recovered()
	unlock()
}

func (r safeRepositories) Create(ctx context.Context, ref graspsync.RepoRef, format nip34.ObjectFormat) (err error) {
	defer r.report.recovered(&err, ofRepos+" create")
	return r.repos.Create(ctx, ref, format)
}

func (r safeRepositories) Retire(ctx context.Context, ref graspsync.RepoRef, keep time.Duration) (kept bool, err error) {
	defer r.report.recovered(&err, ofRepos+" remove")
	return r.repos.Retire(ctx, ref, keep)
}

func (r safeRepositories) eachOf(ctx context.Context, owner graspsync.PubKey, each func(ref graspsync.RepoRef)) (err error) {
	defer r.report.recovered(&err, ofRepos+" list")
	for ref, err := range r.repos.Owned(ctx, owner) {
		if err != nil {
			return err
		}
		each(ref)
	}
	return nil
}

// Staged returns nothing after a panic.
func (r safeRepositories) Staged(ref graspsync.RepoRef, id graspsync.EventID) (out []Upload) {
	defer r.recovered()
	return r.repos.Staged(ref, id)
}

func (r safeRepositories) recovered() {
	if v := recover(); v != nil {
		r.report.panicked(v, ofRepos)
	}
}

// Reserve counts reservations without room.
func (r safeRepositories) Reserve(ctx context.Context, ref graspsync.RepoRef, pulls bool, bytes int64) (err error) {
	defer r.report.recovered(&err, ofRepos)
	if err = r.repos.Reserve(ctx, ref, pulls, bytes); err == nil {
		return nil
	}
	if errors.Is(err, ErrFull) {
		r.report.drop("ceiling")
	}
	return fmt.Errorf("reserving room: %w", err)
}

// safeStore is a store that turns panics during a write into errors. Only Open reads.
type safeStore struct {
	state.Store
	report *report
}

func (s safeStore) Put(ctx context.Context, records ...state.Record) (err error) {
	defer s.report.recovered(&err, ofStore+" write")
	return s.Store.Put(ctx, records...)
}

func (s safeStore) Delete(ctx context.Context, keys ...string) (err error) {
	defer s.report.recovered(&err, ofStore+" write")
	return s.Store.Delete(ctx, keys...)
}

type safeRelay struct {
	relay  Relay
	report *report
}

func (r safeRelay) Save(ctx context.Context, event graspsync.Event) (err error) {
	defer r.report.recovered(&err, ofRelay+" save")
	return r.relay.Save(ctx, event)
}

func (r safeRelay) each(ctx context.Context, filter nostr.Filter, f func(ev graspsync.Event) bool) (err error) {
	defer r.report.recovered(&err, ofRelay)
	for ev, err := range r.relay.Events(ctx, filter) {
		if err != nil {
			return err
		}
		if !f(ev) {
			break
		}
	}
	return nil
}

func (r safeRelay) Deleted(ctx context.Context, event graspsync.Event) (_ bool, err error) {
	defer r.report.recovered(&err, ofRelay)
	return r.relay.Deleted(ctx, event)
}

// Lists returns an error after a panic, because the result is unknown.
func (r safeRelay) Lists(a *nip34.Announcement) (lists bool, err error) {
	defer r.report.recovered(&err, ofRelay)
	return r.relay.Lists(a), nil
}

func (r safeRelay) announcements(ctx context.Context, identifier string) (ours, others []*nip34.Announcement, err error) {
	var failed error
	err = r.each(ctx, named(graspsync.KindAnnouncement, identifier), func(ev graspsync.Event) bool {
		a, err := nip34.ParseAnnouncement(ev)
		if err != nil || a.Ref.Identifier != identifier {
			return true
		}
		var lists bool
		switch lists, failed = r.Lists(a); {
		case lists:
			ours = append(ours, a)
		default:
			others = append(others, a)
		}
		return failed == nil
	})
	if err = errors.Join(err, failed); err != nil {
		return nil, nil, fmt.Errorf("reading announcements: %w", err)
	}
	return ours, others, nil
}

func (r safeRelay) states(ctx context.Context, identifier string) (out []*nip34.State, err error) {
	err = r.each(ctx, named(graspsync.KindState, identifier), func(ev graspsync.Event) bool {
		if st, err := nip34.ParseState(ev); err == nil && st.Ref.Identifier == identifier {
			out = append(out, st)
		}
		return true
	})
	return out, err
}

func named(kind int, identifier string) nostr.Filter {
	return nostr.Filter{Kinds: []int{kind}, Tags: nostr.TagMap{"d": {identifier}}}
}

// announcedRefs returns the repositories of all stored announcements. The value is true if an
// announcement lists this service and has not expired, or if the relay cannot tell.
func (r safeRelay) announcedRefs(ctx context.Context) (out map[graspsync.RepoRef]bool, err error) {
	out = make(map[graspsync.RepoRef]bool)
	err = r.each(ctx, nostr.Filter{Kinds: []int{graspsync.KindAnnouncement}}, func(ev graspsync.Event) bool {
		if a, err := nip34.ParseAnnouncement(ev); err == nil {
			lists, err := r.Lists(a)
			out[a.Ref] = out[a.Ref] || (lists || err != nil) && !hasExpired(ev.Event, time.Now())
		}
		return true
	})
	if errors.Is(err, ErrIncomplete) {
		err = nil
	}
	return out, err
}

const idsAtOnce = 100

func (r safeRelay) lacks(ctx context.Context, ids []graspsync.EventID) (lacking []graspsync.EventID, err error) {
	for some := range slices.Chunk(ids, idsAtOnce) {
		asked, names := make(map[graspsync.EventID]bool, len(some)), make([]string, 0, len(some))
		for _, id := range some {
			asked[id] = true
			names = append(names, id.String())
		}
		err := r.each(ctx, nostr.Filter{IDs: names}, func(ev graspsync.Event) bool {
			delete(asked, ev.ID)
			return len(asked) > 0
		})
		if err != nil {
			return nil, fmt.Errorf("asking for events: %w", err)
		}
		lacking = slices.AppendSeq(lacking, maps.Keys(asked))
	}
	return lacking, nil
}

func (r safeRelay) pulls(ctx context.Context, ref graspsync.RepoRef, f func(*nip34.PullRequest)) error {
	err := r.each(ctx, nostr.Filter{
		Kinds: []int{graspsync.KindPullRequest, graspsync.KindPullRequestUpdate}, Tags: nostr.TagMap{"a": {ref.String()}},
	}, func(ev graspsync.Event) bool {
		if pr, err := nip34.ParsePullRequest(ev); err == nil && slices.Contains(pr.Repos, ref) {
			f(pr)
		}
		return true
	})
	if err != nil {
		return fmt.Errorf("reading pull requests: %w", err)
	}
	return nil
}
