package nip34

import (
	"fmt"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
)

// PullRequest is a pull request (NIP-34, kind 1618) or an update of one (kind 1619).
type PullRequest struct {
	Event     *nostr.Event
	ID        graspsync.EventID
	Author    graspsync.PubKey
	CreatedAt nostr.Timestamp // seconds, Unix time
	// Repos contains the distinct repositories of the pull request, at least one and at most
	// [MaxRepos].
	Repos []graspsync.RepoRef
	Tip   ObjectID
	// Clones contains the first [MaxListed] distinct valid clone URLs of that commit.
	Clones []graspsync.CloneURL
	// Numbers of values beyond the maximum, which are not parsed, and of invalid values before them.
	DroppedClones, UnusableClones int
}

// Sizes in bytes, of a pull request and of a repository in it.
const (
	bytesPullRequest = 256
	bytesRepo        = 64
)

// Size returns the approximate memory of a pull request in bytes, without its event.
func (p *PullRequest) Size() int {
	return bytesPullRequest + bytesRepo*len(p.Repos) + bytesAddress*len(p.Clones)
}

// ParsePullRequest reads a pull request or an update. The error wraps [ErrInvalid]: another kind,
// no repository, or no valid tip.
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
	if p.Tip, err = parseNonNullID(tip); err != nil {
		return nil, fmt.Errorf("%w: the c tag: %w", ErrInvalid, err)
	}
	p.Clones, p.UnusableClones, p.DroppedClones = tagValues(ev.Event, "clone", MaxListed, graspsync.ParseCloneURL)
	return p, nil
}
