package purgatory

import (
	"context"
	"sync"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/limit"
	"github.com/graspsync/graspsync/purgatory/internal/refplan"
	"github.com/graspsync/graspsync/purgatory/internal/syncqueue"
)

// message is what the engine is told.
type message interface {
	handle(ctx context.Context, e *engine)
}

// The messages.
type (
	// newHold: an entry waits that did not before.
	newHold struct{ entry refplan.Entry }
	// surveyRequest: something may have changed for what waits under an identifier.
	surveyRequest struct {
		identifier string
		why        refplan.Reasons
	}
	// storedEvent: an event was stored.
	storedEvent struct{ event graspsync.Event }
	// refetchRequest: somebody wants a repository hunted for now, which these servers may have.
	refetchRequest struct {
		ref  graspsync.RepoRef
		urls []graspsync.CloneURL
	}
	// fetchEnd: a request has ended.
	fetchEnd struct {
		repo    graspsync.RepoRef
		server  graspsync.HostPort
		fetched syncqueue.Fetched
		took    bool  // what came is part of the repository
		fault   error // what failed here, and not at the server
	}
	// surveyEnd: it is known which repositories with an identifier are to be looked at.
	surveyEnd struct {
		identifier string
		why        refplan.Reasons
		found      refplan.AffectedRepos
		err        error
	}
	// surveyTurn: an identifier has a place for its survey.
	surveyTurn struct {
		identifier string
		place      *limit.Slot
	}
	// releaseTurn: a repository has a place for its release.
	releaseTurn struct {
		ref   graspsync.RepoRef
		in    lane
		place *limit.Slot
	}
	// releaseEnd: the release of a repository has ended.
	releaseEnd struct {
		ref    graspsync.RepoRef
		why    refplan.Reasons
		result releaseResult
		err    error
	}
	// departureEnd: all repositories are found of those who have deleted something.
	departureEnd struct{}
	// queueInquiry: somebody wants to know what is done to get the data of a repository. answer has room.
	queueInquiry struct {
		ref    graspsync.RepoRef
		answer chan<- syncqueue.About
	}
	// expiryEnd: the expiry of an entry has ended.
	expiryEnd struct {
		entry refplan.Entry
		err   error
	}
)

// departureOf is the news that a repository may not be announced any more.
func departureOf(ref graspsync.RepoRef) surveyRequest {
	return surveyRequest{identifier: ref.Identifier, why: refplan.Reasons{Left: map[graspsync.RepoRef]bool{ref: true}}}
}

// inbox is a queue whose senders never wait. What others tell is bounded: what has no
// room is counted, and everything that waits is looked at instead.
type inbox struct {
	wake   chan struct{} // one slot
	report *report

	mu sync.Mutex
	// guarded by mu
	items []message
	lost  bool // something had no room
}

// maxInbox bounds what others tell the engine before it listens.
const maxInbox = 20_000

func newInbox(report *report) *inbox { return &inbox{wake: make(chan struct{}, 1), report: report} }

// put is for what is bounded by what the engine has started.
func (b *inbox) put(item message) {
	b.mu.Lock()
	b.items = append(b.items, item)
	b.mu.Unlock()
	b.ring()
}

// offer is for what others say. It reports whether there was room.
func (b *inbox) offer(item message) bool {
	b.mu.Lock()
	room := len(b.items) < maxInbox
	if room {
		b.items = append(b.items, item)
	} else {
		b.lost = true
	}
	b.mu.Unlock()
	b.ring()
	return room
}

func (b *inbox) ring() {
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

func (b *inbox) take() (items []message, lost bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	items, lost = b.items, b.lost
	b.items, b.lost = nil, false
	return items, lost
}

// tell has the engine know of something, or look at everything.
func (b *inbox) tell(item message) {
	if !b.offer(item) {
		b.report.drop("inbox")
	}
}

// anew reports whether what is missing is to be hunted for anew, and how urgent that
// is: what came by sync is more so than what a user is about to push.
func anew(why refplan.Reasons, n refplan.Need) (by syncqueue.Origin, anew bool) {
	by = syncqueue.ByUser
	because := func(byUser bool) {
		anew = true
		if !byUser {
			by = syncqueue.BySync
		}
	}
	for _, id := range n.Entries {
		if byUser, ok := why.Fresh[id]; ok {
			because(byUser)
		}
	}
	for owner, byUser := range why.Owners {
		if _, member := n.Members[owner]; member {
			because(byUser)
		}
	}
	return by, anew
}
