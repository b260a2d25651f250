package purgatory

import (
	"context"
	"errors"
	"fmt"
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

func (r safeRelay) Deleted(ctx context.Context, event graspsync.Event) (_ bool, err error) {
	defer r.report.recovered(&err, ofRelay)
	return r.relay.Deleted(ctx, event)
}

func (r safeRelay) Lists(a *nip34.Announcement) (lists bool, err error) {
	defer r.report.recovered(&err, ofRelay)
	return r.relay.Lists(a), nil
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
