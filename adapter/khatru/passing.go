package khatruadapter

import (
	"cmp"
	"context"
	"strings"
	"sync"
	"time"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/limit"
	relaysync "github.com/graspsync/graspsync/sync"
)

// mostPassing is how many events are remembered that our RejectEvent hook has let pass, and that
// were not stored. What is stored is forgotten within moments.
const mostPassing = 1000

// whyPassed is all that can be known of a refusal by a hook behind ours: khatru calls one hook after the
// other, and tells nobody but the client what the first said that refused.
const whyPassed = "graspsync let it pass, and it was not stored: a RejectEvent hook that was added after graspsync's own " +
	"refused it, and only the client heard why"

// passing remembers what clients submitted and our RejectEvent hook let pass, until it comes to the
// hooks that store. What stays was refused behind ours.
type passing struct {
	mu     sync.Mutex
	events *limit.Table[graspsync.EventID, passed] // guarded by mu
}

// passed is one event.
type passed struct {
	relaysync.EventHead

	at time.Time
}

func newPassing() *passing {
	return &passing{events: limit.NewTable[graspsync.EventID, passed](mostPassing, 0)}
}

func (p *passing) add(e graspsync.Event) {
	now := passed{relaysync.EventHead{Kind: e.Kind, Author: e.PubKey, CreatedAt: e.CreatedAt.Time()}, time.Now()}
	if e.Kind == graspsync.KindAnnouncement || e.Kind == graspsync.KindState {
		// A copy: a part of the event would keep all of it.
		now.Identifier = strings.Clone(graspsync.Clip(e.Tags.GetD(), graspsync.MaxIdentifier+1))
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.events.Put(e.ID, limit.Stranger{}, 0, now)
}

func (p *passing) arrived(id graspsync.EventID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.events.Delete(id)
}

// explainEvent says of an event of which nothing is known what is known here.
func (p *passing) explainEvent(x *relaysync.EventState) {
	if x.Is != relaysync.IsUnknown {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if e, ok := p.events.Get(x.ID); ok {
		e.explain(x)
	} else if p.events.Evicted() > 0 {
		x.Since = time.Time{} // it may have been among these
	}
}

func (e passed) explain(x *relaysync.EventState) {
	head := e.EventHead
	*x = relaysync.EventState{
		Now: x.Now, ID: x.ID, Is: relaysync.IsRefused, Detail: whyPassed, At: e.at, Event: &head,
		Source: graspsync.Direct.String(), NamedBy: x.NamedBy,
	}
}

// explainRepo says of a repository of which no announcement is known that one was refused.
func (p *passing) explainRepo(x *relaysync.RepoFollowState) {
	if x.Is != relaysync.RepoUnknown {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for id, e := range p.events.All() { // the newest is the last one
		if e.Kind == graspsync.KindAnnouncement && e.Author == x.Ref.Owner && e.Identifier == x.Ref.Identifier {
			x.Is, x.Reason, x.Announcement = relaysync.RepoRejected, whyPassed, &relaysync.EventState{ID: id}
			e.explain(x.Announcement)
		}
	}
}

// overheard remembers what a hook of the relay's refuses to a client, for who asks why.
func (s *Sync) overheard(theirs judge) judge {
	return func(ctx context.Context, e *nostr.Event) (reject bool, msg string) {
		reject, msg = theirs(ctx, e)
		if !reject || IsSynced(ctx) || nostr.IsEphemeralKind(e.Kind) {
			return reject, msg
		}
		if parsed, err := graspsync.ParseEvent(e); err == nil { // else it has no name to be remembered by
			s.manager.Refused(parsed, nostr.NormalizeOKMessage(cmp.Or(msg, "no reason"), "blocked"))
		}
		return reject, msg
	}
}

// arriving is the first of the hooks that store: no hook of the relay has refused the event.
func (s *Sync) arriving(h hook) hook {
	return func(ctx context.Context, e *nostr.Event) error {
		if parsed, err := graspsync.ParseEvent(e); err == nil && !isFollowing(ctx) {
			s.passing.arrived(parsed.ID)
		}
		return h(ctx, e)
	}
}
