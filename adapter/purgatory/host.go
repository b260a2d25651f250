package purgatoryadapter

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory"
	relaysync "github.com/graspsync/graspsync/sync"
)

// Host is the relay whose events wait. All fields but Postponed must be set before it is
// used, and none be changed afterwards.
type Host struct {
	Store relaysync.Store
	// Release stores an event, sends it to subscribers, and tells the SyncManager
	// that it is stored. It returns when the event is durable, with the outcomes of
	// [relaysync.Store]. [Save] is one for those who have only a Store.
	Release func(ctx context.Context, event *nostr.Event) (graspsync.Outcome, error)
	// Held tells the SyncManager that an event waits, which may have waited before:
	// [relaysync.SyncManager.Held].
	Held func(event *nostr.Event)
	// Removed tells the SyncManager that an event will not be served:
	// [relaysync.SyncManager.Removed].
	Removed func(event *nostr.Event)
	// Postponed tells the SyncManager that an event waits no longer for want of room, or since
	// nobody wants it who waits, and is to be judged again: [relaysync.SyncManager.Postponed].
	// Without it Removed is told that.
	Postponed func(event *nostr.Event)
	// Lists reports whether an announcement makes its repository ours:
	// [relaysync.Policy].
	Lists func(a *nip34.Announcement) bool
}

// Save returns a Release for a Host: events go into the store, then what is stored is
// told to each of tell, as [relaysync.SyncManager.Stored] and what sends it to
// subscribers.
func Save(store relaysync.Store, tell ...func(event *nostr.Event)) func(context.Context, *nostr.Event) (graspsync.Outcome, error) {
	return func(ctx context.Context, event *nostr.Event) (graspsync.Outcome, error) {
		outcomes, err := store.Save(ctx, []graspsync.Incoming{{Event: event}})
		if err != nil {
			return graspsync.Outcome{}, err
		}
		if len(outcomes) != 1 {
			return graspsync.Outcome{}, fmt.Errorf("%d outcomes of one event", len(outcomes))
		}
		if r := outcomes[0].Result; r == graspsync.Stored || r == graspsync.Duplicate {
			for _, f := range tell {
				f(event)
			}
		}
		return outcomes[0], nil
	}
}

// Observe is for [purgatory.Config]: the SyncManager must know what waits no longer,
// and what does again without anybody having submitted it.
func (h Host) Observe(o purgatory.Observation) {
	switch o := o.(type) {
	case purgatory.Began:
		if o.Event != nil {
			h.Held(o.Event)
		}
	case purgatory.Lapsed:
		h.Removed(o.Event)
	case purgatory.Ended:
		switch {
		case o.Event == nil || o.Fate == purgatory.Released:
		case h.Postponed != nil && h.comesAgain(o):
			h.Postponed(o.Event)
		default:
			h.Removed(o.Event)
		}
	}
}

// comesAgain reports whether what has ended may be wanted later: it gave way, or is an
// announcement that waits for nothing but somebody who lists its author.
func (h Host) comesAgain(o purgatory.Ended) bool {
	switch o.Fate {
	case purgatory.Displaced, purgatory.Unwanted:
		return true
	case purgatory.Expired:
		a, err := nip34.ParseAnnouncement(o.Event)
		return err == nil && !h.Lists(a)
	}
	return false
}

// Relay is the Host as purgatory wants it.
func (h Host) Relay() purgatory.Relay { return relay{h} }

type relay struct{ h Host }

var (
	_ purgatory.Knower     = relay{}
	_ purgatory.Related    = relay{}
	_ purgatory.PullLister = relay{}
)

// Save implements [purgatory.Relay].
func (r relay) Save(ctx context.Context, event *nostr.Event) error {
	o, err := r.h.Release(ctx, event)
	switch {
	case err != nil:
		return err
	case o.Result == graspsync.Failed:
		return fmt.Errorf("storing event %s: %w", event.ID, o.Err)
	case o.Result == graspsync.Deleted, o.Result == graspsync.Superseded, o.Result == graspsync.Refused:
		return fmt.Errorf("%w: event %s: %v", purgatory.ErrRefused, event.ID, o.Result)
	}
	return nil
}

// Announcements implements [purgatory.Relay].
func (r relay) Announcements(ctx context.Context, identifier string) ([]*nip34.Announcement, error) {
	return r.announcements(ctx, named(graspsync.KindAnnouncement, identifier), identifier, true)
}

// authorsAtOnce are named in one question to the Store.
const authorsAtOnce = 500

// Relatives implements [purgatory.Related].
func (r relay) Relatives(ctx context.Context, identifier string, authors []graspsync.PubKey) (all []*nip34.Announcement, err error) {
	for some := range slices.Chunk(authors, authorsAtOnce) {
		f := named(graspsync.KindAnnouncement, identifier)
		for _, author := range some {
			f.Authors = append(f.Authors, author.String())
		}
		found, err := r.announcements(ctx, f, identifier, false)
		if err != nil {
			return nil, err
		}
		all = append(all, found...)
	}
	return all, nil
}

// Lists implements [purgatory.Related].
func (r relay) Lists(a *nip34.Announcement) bool { return r.h.Lists(a) }

func (r relay) announcements(ctx context.Context, f nostr.Filter, identifier string, ours bool) (out []*nip34.Announcement, err error) {
	for ev, err := range r.h.Store.Events(ctx, f) {
		if err != nil {
			return nil, err
		}
		if a, err := nip34.ParseAnnouncement(ev); err == nil && a.Ref.Identifier == identifier && r.h.Lists(a) == ours {
			out = append(out, a)
		}
	}
	return out, nil
}

// States implements [purgatory.Relay].
func (r relay) States(ctx context.Context, identifier string) (out []*nip34.State, err error) {
	for ev, err := range r.h.Store.Events(ctx, named(graspsync.KindState, identifier)) {
		if err != nil {
			return nil, err
		}
		if s, err := nip34.ParseState(ev); err == nil && s.Ref.Identifier == identifier {
			out = append(out, s)
		}
	}
	return out, nil
}

func named(kind int, identifier string) nostr.Filter {
	return nostr.Filter{Kinds: []int{kind}, Tags: nostr.TagMap{"d": {identifier}}}
}

// Deleted implements [purgatory.Relay].
func (r relay) Deleted(ctx context.Context, event *nostr.Event) (bool, error) {
	return r.h.Store.Deleted(ctx, event)
}

// Has implements [purgatory.Knower]: with it the refs of events that never came, or
// are not served any more, are told from those of events that are.
func (r relay) Has(ctx context.Context, id graspsync.EventID) (bool, error) {
	has, err := r.h.Store.Has(ctx, []graspsync.EventID{id})
	if err != nil {
		return false, fmt.Errorf("looking up event %s: %w", id, err)
	}
	if len(has) != 1 {
		return false, fmt.Errorf("looking up event %s: %d answers", id, len(has))
	}
	return has[0], nil
}

// Pulls implements [purgatory.PullLister].
func (r relay) Pulls(ctx context.Context, ref graspsync.RepoRef) iter.Seq2[*nip34.PullRequest, error] {
	return func(yield func(*nip34.PullRequest, error) bool) {
		for ev, err := range r.h.Store.Events(ctx, nostr.Filter{
			Kinds: []int{graspsync.KindPullRequest, graspsync.KindPullRequestUpdate}, Tags: nostr.TagMap{"a": {ref.String()}},
		}) {
			if err != nil {
				yield(nil, fmt.Errorf("listing pull requests: %w", err))
				return
			}
			if pr, err := nip34.ParsePullRequest(ev); err == nil && slices.Contains(pr.Repos, ref) && !yield(pr, nil) {
				return
			}
		}
	}
}

// The kinds by which something is said of a pull request: its status (NIP-34), comments
// (NIP-22), replies and labels (NIP-32).
const (
	kindReply, kindComment, kindLabel                          = 1, 1111, 1985
	kindStatusOpen, kindStatusApplied, kindClosed, kindAsDraft = 1630, 1631, 1632, 1633
)

// standingsAtOnce bounds the pull requests that are asked about at once, saidMost what is
// read about these: their authors may have said anything of their own.
const (
	standingsAtOnce = 100
	saidMost        = 10 * standingsAtOnce
)

// Standings implements [purgatory.PullLister]. An update stands as its pull request does,
// if it has the same author.
func (r relay) Standings(ctx context.Context, _ graspsync.RepoRef, pulls []*nip34.PullRequest, members map[graspsync.PubKey]struct{}) (map[graspsync.EventID]purgatory.PullStanding, error) {
	said := make(map[graspsync.EventID]*sayings)
	for _, pr := range pulls {
		said[pr.ID] = &sayings{author: pr.Author}
	}
	for chunk := range slices.Chunk(pulls, standingsAtOnce) {
		if err := r.sayings(ctx, chunk, members, said); err != nil {
			return nil, err
		}
	}
	out := make(map[graspsync.EventID]purgatory.PullStanding)
	for _, pr := range pulls {
		s := said[pr.ID]
		if root := said[rootOf(pr)]; root != nil && root.author == pr.Author {
			s = root
		}
		switch {
		case s.closed:
			out[pr.ID] = purgatory.PullClosed
		case s.regarded:
			out[pr.ID] = purgatory.PullRegarded
		}
	}
	return out, nil
}

// sayings is what was said of a pull request.
type sayings struct {
	author           graspsync.PubKey
	status           graspsync.Stamp // the newest
	closed, regarded bool
}

// sayings reads what is said of some pull requests by their authors, which is their status
// only, and by members.
func (r relay) sayings(ctx context.Context, pulls []*nip34.PullRequest, members map[graspsync.PubKey]struct{}, said map[graspsync.EventID]*sayings) error {
	statuses := []int{kindStatusOpen, kindStatusApplied, kindClosed, kindAsDraft}
	var ids, authors, owners []string
	for _, pr := range pulls {
		ids, authors = append(ids, pr.ID.String()), append(authors, pr.Author.String())
	}
	for k := range members {
		owners = append(owners, k.String())
	}
	slices.Sort(authors)
	for _, f := range []nostr.Filter{
		{Kinds: statuses, Authors: slices.Compact(authors), Tags: nostr.TagMap{"e": ids}},
		{Kinds: append(statuses, kindReply, kindLabel), Authors: owners, Tags: nostr.TagMap{"e": ids}},
		{Kinds: []int{kindComment}, Authors: owners, Tags: nostr.TagMap{"E": ids}},
	} {
		if len(f.Authors) == 0 {
			continue
		}
		n := 0
		for ev, err := range r.h.Store.Events(ctx, f) {
			if err != nil {
				return fmt.Errorf("reading what is said of pull requests: %w", err)
			}
			note(ev, members, said)
			if n++; n == saidMost {
				break
			}
		}
	}
	return nil
}

// note takes in what an event says of pull requests.
func note(ev *nostr.Event, members map[graspsync.PubKey]struct{}, said map[graspsync.EventID]*sayings) {
	by, err := graspsync.ParsePubKey(ev.PubKey)
	if err != nil {
		return
	}
	id, err := graspsync.ParseEventID(ev.ID)
	if err != nil {
		return
	}
	_, member := members[by]
	for _, tag := range ev.Tags {
		if len(tag) < 2 || tag[0] != "e" && tag[0] != "E" {
			continue
		}
		target, err := graspsync.ParseEventID(tag[1])
		s := said[target]
		if err != nil || s == nil || !member && by != s.author {
			continue
		}
		s.regarded = s.regarded || member && by != s.author
		v := graspsync.Stamp{CreatedAt: ev.CreatedAt, ID: id}
		switch ev.Kind {
		case kindStatusOpen, kindStatusApplied, kindClosed, kindAsDraft:
			if s.status == (graspsync.Stamp{}) || v.Newer(s.status) {
				s.status, s.closed = v, ev.Kind == kindStatusApplied || ev.Kind == kindClosed
			}
		}
	}
}

// rootOf is the pull request that another one is an update of; zero if it is none.
func rootOf(pr *nip34.PullRequest) (root graspsync.EventID) {
	if pr.Event.Kind != graspsync.KindPullRequestUpdate {
		return root
	}
	if tag := pr.Event.Tags.Find("E"); len(tag) > 1 {
		root, _ = graspsync.ParseEventID(tag[1]) // zero if it is none
	}
	return root
}

// Identifiers implements [purgatory.Relay]. Of a Store that can't be read completely these
// are all that it gives: what is left out is looked at as long as its repository is there,
// and everything else must not wait until it can be.
func (r relay) Identifiers(ctx context.Context) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		for ev, err := range r.h.Store.Events(ctx, nostr.Filter{Kinds: []int{graspsync.KindAnnouncement}}) {
			if errors.Is(err, relaysync.ErrIncomplete) {
				return
			}
			if err != nil {
				yield("", err)
				return
			}
			if a, err := nip34.ParseAnnouncement(ev); err == nil && r.h.Lists(a) && !yield(a.Ref.Identifier, nil) {
				return
			}
		}
	}
}
