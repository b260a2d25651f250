package purgatoryadapter

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory"
	"github.com/graspsync/graspsync/purgatory/gitserve"
	relaysync "github.com/graspsync/graspsync/sync"
)

// Authority says what may be pushed: what the newest authorised state says, stored or
// waiting, and the tips of pull requests.
type Authority struct {
	Store     relaysync.Store
	Purgatory *purgatory.Purgatory
}

var (
	_ gitserve.Authority  = Authority{}
	_ gitserve.Forewarned = Authority{}

	_ gitserve.StageWatcher = Authority{}
	_ gitserve.Rationer     = Authority{}
	_ gitserve.Displacer    = Authority{}
	_ gitserve.Settler      = Authority{}
	_ gitserve.Describer    = Authority{}
)

// Authorised implements [gitserve.Authority].
func (a Authority) Authorised(ctx context.Context, ref graspsync.RepoRef) (*nip34.State, error) {
	return a.Purgatory.Authorised(ctx, ref)
}

// Tip implements [gitserve.Authority].
func (a Authority) Tip(ctx context.Context, ref graspsync.RepoRef, id graspsync.EventID) (tip nip34.ObjectID, known bool, err error) {
	pr, known, err := a.pull(ctx, id)
	if pr != nil {
		tip = tipOf(pr, ref)
	}
	return tip, known, err
}

// pull returns a pull request that waits or is stored; nil if there is none, or if what is
// stored is none.
func (a Authority) pull(ctx context.Context, id graspsync.EventID) (pr *nip34.PullRequest, known bool, err error) {
	if pr := a.Purgatory.PullRequest(id); pr != nil {
		return pr, true, nil
	}
	ev, err := a.event(ctx, id)
	if err != nil || ev == nil {
		return nil, false, err
	}
	if pr, err = nip34.ParsePullRequest(ev); err != nil {
		return nil, true, nil //nolint:nilerr // it is some other event
	}
	return pr, true, nil
}

// Ration implements [gitserve.Rationer].
func (a Authority) Ration(ctx context.Context, ref graspsync.RepoRef, dir string, ids []graspsync.EventID, bytes int64) (map[graspsync.EventID]string, error) {
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
	return a.Purgatory.Ration(ctx, ref, dir, pulls, bytes)
}

// Displaced implements [gitserve.Displacer].
func (a Authority) Displaced(owner graspsync.PubKey) int64 { return a.Purgatory.Displaced(owner) }

func tipOf(pr *nip34.PullRequest, ref graspsync.RepoRef) nip34.ObjectID {
	if !slices.Contains(pr.Repos, ref) {
		return nip34.ObjectID{}
	}
	return pr.Tip
}

func (a Authority) event(ctx context.Context, id graspsync.EventID) (*nostr.Event, error) {
	for ev, err := range a.Store.Events(ctx, nostr.Filter{IDs: []string{id.String()}}) {
		if err != nil {
			return nil, fmt.Errorf("looking up event %s: %w", id, err)
		}
		return ev, nil
	}
	return nil, nil
}

// Pushing implements [gitserve.Forewarned].
func (a Authority) Pushing(ref graspsync.RepoRef, refs []nip34.RefName) {
	a.Purgatory.Pushing(ref, refs)
}

// Staged implements [gitserve.StageWatcher].
func (a Authority) Staged(ref graspsync.RepoRef, ids []graspsync.EventID) {
	a.Purgatory.Staged(ref, ids)
}

// Pushed implements [gitserve.Authority]. Of events that are served already purgatory
// is not told: it would take the refs away after a while, for want of their events. Of a
// push for nothing else it is not told at all: no refs would be a sign of life, and
// anybody may push for an event.
func (a Authority) Pushed(ctx context.Context, ref graspsync.RepoRef, refs []nip34.RefName) error {
	var told []nip34.RefName
	for _, name := range refs {
		if digits, ok := strings.CutPrefix(name.String(), "refs/nostr/"); ok {
			id, err := graspsync.ParseEventID(digits)
			if err != nil {
				continue
			}
			ev, err := a.event(ctx, id)
			if err != nil {
				return err
			}
			if ev != nil {
				continue
			}
		}
		told = append(told, name)
	}
	if len(told) == 0 && len(refs) > 0 {
		return nil
	}
	return a.Purgatory.Pushed(ctx, ref, told)
}

// Settled implements [gitserve.Settler].
func (a Authority) Settled(ctx context.Context, ref graspsync.RepoRef) error {
	return a.Purgatory.Settled(ctx, ref)
}

// Describe implements [gitserve.Describer].
func (a Authority) Describe(ctx context.Context, ref graspsync.RepoRef) (d gitserve.Description, err error) {
	about, members, err := a.Purgatory.Announced(ctx, ref)
	if err != nil || about == nil {
		return d, err
	}
	d.Name = about.Name
	for _, tag := range about.Event.Tags {
		switch {
		case len(tag) < 2:
		case tag[0] == "description" && d.Text == "":
			d.Text = tag[1]
		case tag[0] == "web":
			d.Web = append(d.Web, tag[1:]...)
		}
	}
	d.Maintainers = slices.SortedFunc(maps.Keys(members), func(a, b graspsync.PubKey) int { return strings.Compare(a.String(), b.String()) })
	return d, nil
}
