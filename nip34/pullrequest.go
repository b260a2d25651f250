package nip34

import (
	"fmt"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
)

// PullRequest is a pull request (NIP-34, kind 1618) or an update of one (kind 1619).
type PullRequest struct {
	// Event is what was parsed.
	Event     *nostr.Event
	ID        graspsync.EventID
	Author    graspsync.PubKey
	CreatedAt nostr.Timestamp // seconds, Unix time
	// Repos are the repositories that it is for, each once: at least one, and the
	// first [MaxRepos].
	Repos []graspsync.RepoRef
	// Tip is the commit that it proposes.
	Tip ObjectID
	// Clones are where that commit can be had, besides the clone URLs of the
	// repositories: the first [MaxListed] distinct usable ones.
	Clones []graspsync.CloneURL
	// How many came when the list was full, and how many before that were unusable.
	DroppedClones, UnusableClones int
}

// What a pull request takes up besides its event, in bytes, and a repository that it is for.
const (
	bytesPull = 256
	bytesRepo = 64
)

// Size is about how many bytes a pull request takes up besides its event.
func (p *PullRequest) Size() int {
	return bytesPull + bytesRepo*len(p.Repos) + bytesAddress*len(p.Clones)
}

// ParsePullRequest reads a pull request or an update of one. An event of another
// kind, without a repository or without a usable tip is an error that wraps
// [ErrInvalid].
func ParsePullRequest(ev graspsync.Event) (*PullRequest, error) {
	if ev.IsZero() {
		return nil, fmt.Errorf("%w: none", ErrInvalid)
	}
	if ev.Kind != graspsync.KindPullRequest && ev.Kind != graspsync.KindPullRequestUpdate {
		return nil, fmt.Errorf("%w: kind %d", ErrInvalid, ev.Kind)
	}
	p := &PullRequest{
		Event: ev.Event, ID: ev.ID, Author: ev.PubKey, CreatedAt: ev.CreatedAt,
		Repos: references(ev.Event, "a", MaxRepos, graspsync.ParseRepoRef),
	}
	if len(p.Repos) == 0 {
		return nil, fmt.Errorf("%w: no a tag names a repository", ErrInvalid)
	}
	tip, ok := firstValue(ev.Event, "c")
	if !ok {
		return nil, fmt.Errorf("%w: the c tag is missing or has no value", ErrInvalid)
	}
	var err error
	if p.Tip, err = parseNamed(tip); err != nil {
		return nil, fmt.Errorf("%w: the c tag: %w", ErrInvalid, err)
	}
	p.Clones, p.UnusableClones, p.DroppedClones = listed(ev.Event, "clone", MaxListed, graspsync.ParseCloneURL)
	return p, nil
}
