package purgatory

import (
	"context"
	"sync"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/limit"
	"github.com/graspsync/graspsync/purgatory/internal/refplan"
	"github.com/graspsync/graspsync/purgatory/internal/syncqueue"
	"github.com/graspsync/graspsync/purgatory/internal/workqueue"
)

// message is an input of the engine.
type message interface {
	handle(ctx context.Context, e *engine)
}

type (
	// surveyRequest asks for a survey of an identifier, because something may have changed.
	surveyRequest struct {
		identifier string
		why        refplan.Reasons
	}
	// storedEvent reports an event that the relay has stored or deleted.
	storedEvent struct{ event graspsync.Event }
	// refetchRequest asks for an immediate fetch of missing data from these servers, for an
	// operator.
	refetchRequest struct {
		ref  graspsync.RepoRef
		urls []graspsync.CloneURL
	}
	// fetchEnd reports the end of a request to a git server.
	fetchEnd struct {
		repo    graspsync.RepoRef
		server  graspsync.HostPort
		fetched syncqueue.Fetched
		took    bool  // the received data is part of the repository
		fault   error // a failure of our git or disk
	}
	// surveyEnd reports the result of a survey.
	surveyEnd struct {
		identifier string
		why        refplan.Reasons
		found      refplan.AffectedRepos
		err        error
	}
	// surveyTurn grants an identifier a slot for its survey.
	surveyTurn struct {
		identifier string
		place      *limit.Slot
	}
	// releaseTurn grants a repository a slot for its release.
	releaseTurn struct {
		ref   graspsync.RepoRef
		in    workqueue.Lane
		place *limit.Slot
	}
	// releaseEnd reports the result of a release.
	releaseEnd struct {
		ref    graspsync.RepoRef
		why    refplan.Reasons
		result releaseResult
		err    error
	}
	// queueInquiry asks for the state of a repository in the queue. answer is buffered.
	queueInquiry struct {
		ref    graspsync.RepoRef
		answer chan<- syncqueue.About
	}
	// expiryEnd reports the end of an expiry.
	expiryEnd struct {
		entry refplan.Entry
		err   error
	}
)

// departureOf returns the request to survey a repository that may have lost its announcement.
func departureOf(ref graspsync.RepoRef) surveyRequest {
	return surveyRequest{identifier: ref.Identifier, why: refplan.Reasons{Left: map[graspsync.RepoRef]bool{ref: true}}}
}

// inbox is a queue of messages. Senders never block. If the queue is full, a message from outside
// is dropped and all held events are surveyed instead.
type inbox struct {
	wake   chan struct{} // one slot
	report *report

	mu sync.Mutex
	// guarded by mu
	items []message
	lost  bool // a message was dropped
}

const maxInbox = 20_000

func newInbox(report *report) *inbox { return &inbox{wake: make(chan struct{}, 1), report: report} }

// put adds a message without a limit. Its callers are bounded by the engine.
func (b *inbox) put(item message) {
	b.mu.Lock()
	b.items = append(b.items, item)
	b.mu.Unlock()
	b.ring()
}

// offer adds a message from outside. It reports whether there was room.
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

// tell is offer that counts dropped messages.
func (b *inbox) tell(item message) {
	if !b.offer(item) {
		b.report.drop("inbox")
	}
}

// anew reports whether missing data is fetched as if it were new, and the origin. An event of sync
// is more urgent than an event of a client, because a push usually follows the latter.
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
