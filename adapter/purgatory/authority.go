package purgatoryadapter

import (
	"context"
	"fmt"
	"slices"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory"
	"github.com/graspsync/graspsync/purgatory/gitserve"
	relaysync "github.com/graspsync/graspsync/sync"
)

// Authority is a [gitserve.Authority] that allows pushes of the refs in the newest authorized
// state, and of tips of pull requests.
type Authority struct {
	Store     relaysync.Store
	Purgatory *purgatory.Purgatory
}

var _ gitserve.Authority = Authority{}

// AuthorizedState implements [gitserve.Authority].
func (a Authority) AuthorizedState(ctx context.Context, ref graspsync.RepoRef) (*nip34.State, error) {
	return a.Purgatory.AuthorizedState(ctx, ref)
}

// Tip implements [gitserve.Authority].
func (a Authority) Tip(ctx context.Context, ref graspsync.RepoRef, id graspsync.EventID) (tip nip34.ObjectID, known bool, err error) {
	pr, known, err := a.pull(ctx, id)
	if pr != nil {
		tip = tipOf(pr, ref)
	}
	return tip, known, err
}

// pull returns a held or stored pull request. pr is nil and known true for another kind.
func (a Authority) pull(ctx context.Context, id graspsync.EventID) (pr *nip34.PullRequest, known bool, err error) {
	if pr := a.Purgatory.PullRequest(id); pr != nil {
		return pr, true, nil
	}
	ev, err := a.event(ctx, id)
	if err != nil || ev.IsZero() {
		return nil, false, err
	}
	if pr, err = nip34.ParsePullRequest(ev); err != nil {
		return nil, true, nil //nolint:nilerr // it is some other event
	}
	return pr, true, nil
}

// AdmitPullRefs implements [gitserve.Authority].
func (a Authority) AdmitPullRefs(ctx context.Context, ref graspsync.RepoRef, dir string, ids []graspsync.EventID, bytes int64) (map[graspsync.EventID]string, error) {
	var pulls []*nip34.PullRequest
	for _, id := range ids {
		pr, _, err := a.pull(ctx, id)
		if err != nil {
			return nil, err
		}
		if pr != nil {
			pulls = append(pulls, pr)
		}
	}
	return a.Purgatory.AdmitPullRefs(ctx, ref, dir, pulls, bytes)
}

// PullBytes implements [gitserve.Authority].
func (a Authority) PullBytes(owner graspsync.PubKey) int64 { return a.Purgatory.PullBytes(owner) }

func tipOf(pr *nip34.PullRequest, ref graspsync.RepoRef) nip34.ObjectID {
	if !slices.Contains(pr.Repos, ref) {
		return nip34.ObjectID{}
	}
	return pr.Tip
}

func (a Authority) event(ctx context.Context, id graspsync.EventID) (graspsync.Event, error) {
	for ev, err := range a.Store.Events(ctx, nostr.Filter{IDs: []string{id.String()}}) {
		if err != nil {
			return graspsync.Event{}, fmt.Errorf("looking up event %s: %w", id, err)
		}
		return ev, nil
	}
	return graspsync.Event{}, nil
}

// BeforePush implements [gitserve.Authority].
func (a Authority) BeforePush(ref graspsync.RepoRef, refs []nip34.RefName) {
	a.Purgatory.Pushing(ref, refs)
}

// Staged implements [gitserve.Authority].
func (a Authority) Staged(ref graspsync.RepoRef, ids []graspsync.EventID) {
	a.Purgatory.Staged(ref, ids)
}

// AfterPush implements [gitserve.Authority].
func (a Authority) AfterPush(ctx context.Context, ref graspsync.RepoRef, refs []nip34.RefName) error {
	a.Purgatory.Pushed(ctx, ref, refs)
	return nil
}

// AwaitServed implements [gitserve.Authority].
func (a Authority) AwaitServed(ctx context.Context, ref graspsync.RepoRef) error {
	return a.Purgatory.WaitServed(ctx, ref)
}
