package nip34

import (
	"fmt"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync/egress"
	"github.com/graspsync/graspsync/filters"
)

// PullRequest is a pull request (NIP-34, kind 1618) or an update of one (kind 1619).
type PullRequest struct {
	// Event is what was parsed.
	Event     *nostr.Event
	ID        filters.EventID
	Author    filters.PubKey
	CreatedAt nostr.Timestamp // seconds, Unix time
	// Repos are the repositories that it is for, each once: at least one, and the
	// first [MaxRepos].
	Repos []filters.RepoRef
	// Tip is the commit that it proposes.
	Tip ObjectID
	// Clones are where that commit can be had, besides the clone URLs of the
	// repositories: the first [MaxListed] distinct usable ones.
	Clones        []egress.URL
	DroppedClones int
}

// ParsePullRequest reads a pull request or an update of one. An event of another
// kind, without a repository or without a usable tip is an error that wraps
// [ErrInvalid].
func ParsePullRequest(ev *nostr.Event) (*PullRequest, error) {
	if ev.Kind != filters.KindPullRequest && ev.Kind != filters.KindPullRequestUpdate {
		return nil, fmt.Errorf("%w: kind %d", ErrInvalid, ev.Kind)
	}
	id, err := filters.ParseEventID(ev.ID)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	author, err := filters.ParsePubKey(ev.PubKey)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	p := &PullRequest{Event: ev, ID: id, Author: author, CreatedAt: ev.CreatedAt, Repos: references(ev, "a", MaxRepos, filters.ParseRepoRef)}
	if len(p.Repos) == 0 {
		return nil, fmt.Errorf("%w: no repository", ErrInvalid)
	}
	tip, _ := firstValue(ev, "c")
	if p.Tip, err = ParseObjectID(tip); err != nil {
		return nil, fmt.Errorf("%w: tip: %w", ErrInvalid, err)
	}
	p.Clones, p.DroppedClones = listed(ev, "clone", MaxListed, parseClone)
	return p, nil
}
