package purgatory

import (
	"context"
	"sync"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/limit"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory/internal/refplan"
	"github.com/graspsync/graspsync/purgatory/internal/syncqueue"
)

// message is a message to the engine.
type message interface {
	handle(ctx context.Context, e *engine)
}

// The messages.
type (
	// newHold: an event is held now.
	newHold struct{ entry refplan.Entry }
	// surveyRequest: something may have changed for the events with an identifier.
	surveyRequest struct {
		identifier string
		why        refplan.Reasons
	}
	// storedEvent: the relay has stored or deleted an event.
	storedEvent struct{ event graspsync.Event }
	// deletedPull: a pull request is not stored any more.
	deletedPull struct{ pull *nip34.PullRequest }
	// refetchRequest: an operator wants the missing data of a repository fetched from these servers
	// now.
	refetchRequest struct {
		ref  graspsync.RepoRef
		urls []graspsync.CloneURL
	}
	// fetchEnd: a request to a git server has ended.
	fetchEnd struct {
		repo    graspsync.RepoRef
		server  graspsync.HostPort
		fetched syncqueue.Fetched
		took    bool  // the received data is part of the repository
		fault   error // a failure of our own, not of the server
	}
	// surveyEnd: a survey has found the repositories to release.
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
	// departureEnd: all repositories of the authors of deletions were found.
	departureEnd struct{}
	// queueInquiry: a caller asks for the state of the queue for a repository. answer has room.
	queueInquiry struct {
		ref    graspsync.RepoRef
		answer chan<- syncqueue.About
	}
	// expiryEnd: the expiry of an event has ended.
	expiryEnd struct {
		entry refplan.Entry
		err   error
	}
)

// departureOf returns the survey for a repository that may not be announced any more.
func departureOf(ref graspsync.RepoRef) surveyRequest {
	return surveyRequest{identifier: ref.Identifier, why: refplan.Reasons{Left: map[graspsync.RepoRef]bool{ref: true}}}
}

// inbox is a queue of messages whose senders never wait. It is bounded for messages from outside.
// If one has no room, all held events are surveyed instead.
type inbox struct {
	wake   chan struct{} // one slot
	report *report

	mu sync.Mutex
	// guarded by mu
	items []message
	lost  bool // something had no room
}

// maxInbox is the maximum number of messages from outside.
const maxInbox = 20_000

func newInbox(report *report) *inbox { return &inbox{wake: make(chan struct{}, 1), report: report} }

// put is for messages whose number the engine itself bounds.
func (b *inbox) put(item message) {
	b.mu.Lock()
	b.items = append(b.items, item)
	b.mu.Unlock()
	b.ring()
}

// offer is for messages from outside. It reports whether there was room.
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

// tell is offer that counts messages without room.
func (b *inbox) tell(item message) {
	if !b.offer(item) {
		b.report.drop("inbox")
	}
}

// anew reports whether missing data is to be fetched as if it were new, and its urgency. An event
// of sync is more urgent than one of a client, whose push usually follows.
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
