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

// Authority is a [gitserve.Authority] that allows pushes of the refs in the newest authorized state, and
// of pull requests.
type Authority struct {
	Store relaysync.Store
	*purgatory.Purgatory
}

var _ gitserve.Authority = Authority{}

// Tip implements [gitserve.Authority].
func (a Authority) Tip(ctx context.Context, ref graspsync.RepoRef, id graspsync.EventID) (tip nip34.ObjectID, known bool, err error) {
	pr, known, err := a.pull(ctx, id)
	if pr != nil && slices.Contains(pr.Repos, ref) {
		tip = pr.Tip
	}
	return tip, known, err
}

// pull returns a held or stored pull request. For an event of another kind pr is nil and known true.
func (a Authority) pull(ctx context.Context, id graspsync.EventID) (pr *nip34.PullRequest, known bool, err error) {
	if pr := a.PullRequest(id); pr != nil {
		return pr, true, nil
	}
	for ev, err := range a.Store.Events(ctx, nostr.Filter{IDs: []string{id.String()}}) {
		if err != nil {
			return nil, false, fmt.Errorf("looking up event %s: %w", id, err)
		}
		pr, _ := nip34.ParsePullRequest(ev) // nil for another event
		return pr, true, nil
	}
	return nil, false, nil
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

// AfterPush implements [gitserve.Authority].
func (a Authority) AfterPush(ctx context.Context, ref graspsync.RepoRef, refs []nip34.RefName) error {
	a.Pushed(ctx, ref, refs)
	return nil
}
