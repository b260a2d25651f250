package sync

import (
	"context"
	"iter"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/nip34"
)

// Policy decides which events our relay has. Events that come by sync and events
// that clients submit go through the same Policy, told apart only by src.
//
// Judge may be called concurrently. The event's id and signature were verified;
// it must not be changed. Judge must not block on the network. An error is no
// verdict: the event counts as failed and will be fetched again.
//
// Lists reports whether the announcement makes its repository one of ours: only
// listed repositories are followed. It must be a pure function of the announcement, because it
// is also asked of announcements whose signature was not checked. One that it refuses is rejected without
// a call of Judge, unless View.Knows its author under that identifier, or Heard names the author or is
// nil. A Policy whose Judge accepts other announcements returns nil from Heard.
//
// A Policy that asks another one embeds it, and has what it does not change from there. The
// embedded one knows nothing of that: [GRASPPolicy] judges announcements by its own Lists,
// whatever one around it says. Which repositories are ours says [GRASPPolicy].Hosts; whoever overrides
// Lists overrides Judge as well, as the examples do. Authority and Heard go by what was accepted.
type Policy interface {
	Judge(ctx context.Context, event graspsync.Event, src graspsync.Source, view View) (graspsync.Verdict, error)
	Lists(a *nip34.Announcement) bool
	// Authority says who has a say about the refs of a repository, and why. It is nil if the
	// Policy can't tell: then nobody can see from outside why somebody's state moves them, or
	// does not.
	Authority(ref graspsync.RepoRef, view View) *nip34.Authority
	// Heard returns whose announcements with this identifier count as things are. It is true
	// for those whose states do as well. What waits by them is judged again when they are heard
	// that were not. It is nil if the Policy can't tell: then all that waits by somebody who is
	// known under the identifier is judged again with each announcement there.
	Heard(identifier string, view View) map[graspsync.PubKey]bool
}

// Holder is where a [Policy] keeps what it holds back: all that it answers [graspsync.Hold] to
// is there, durable before the answer. It is often the Policy itself. All methods may be called
// concurrently.
type Holder interface {
	// Held returns the stamps of all held events that match the filter, in any order. They
	// count as known when relays are reconciled. It is asked before the Store is: what is
	// released meanwhile is in both, and must not be in neither.
	Held(ctx context.Context, filter nostr.Filter) ([]graspsync.Stamp, error)
	// HeldForUser reports whether a client of ours submitted an event that has been held since
	// before our start. held is false for an event that is not held.
	HeldForUser(id graspsync.EventID) (byUser, held bool)
	// HeldAnnouncements yields the announcements that are held now. It is asked when Run begins, for
	// those that have been since before: they are followed, as those are that are held later. An error
	// is the last pair; then the rest is followed once it comes again. It is asked as well when somebody
	// wants to know of one: what of it is left out is said as far as its Event is there.
	HeldAnnouncements(ctx context.Context) iter.Seq2[*nip34.Announcement, error]
}

// View is what a [Policy] may ask about the events that we have. Safe for
// concurrent use. It may lag behind the Store by the events that are being saved
// at this moment; what was found missing is judged again when it arrives.
//
// What counts is what is here now: not what this process remembers to have been here,
// since another one would not. So what refers to something that is gone is not accepted,
// and waits for it to come back.
type View interface {
	Standing
	// Announcements returns the accepted announcements with this identifier, of
	// whichever owner, in no particular order: those that are here now. They must
	// not be changed; their Event is nil.
	Announcements(identifier string) []*nip34.Announcement
	// Event returns the stored event with this id, the zero Event if there is none.
	Event(ctx context.Context, id graspsync.EventID) (graspsync.Event, error)
	// Events returns by their ids those of the events that are stored. However many ids
	// there are, it costs few questions to the Store.
	Events(ctx context.Context, ids []graspsync.EventID) (map[graspsync.EventID]graspsync.Event, error)
	// Addressed reports whether a version of an event is stored at any of the addresses.
	Addressed(ctx context.Context, at []graspsync.Address) (bool, error)
	// Mentioned reports whether a stored event tags id (e, E or q), deletions aside.
	Mentioned(ctx context.Context, id graspsync.EventID) (bool, error)
	// Near returns stored events that are next to others, deletions aside: those that tag one
	// of the ids (e, E or q) or one of the addresses (a, A or q), and the versions at these
	// addresses. There may be more than it returns, which are at most some hundreds, and an
	// event may come more than once.
	Near(ctx context.Context, ids []graspsync.EventID, at []graspsync.Address) ([]graspsync.Event, error)
	// Wrote reports whether an event of this author is stored, requests to vanish aside.
	Wrote(ctx context.Context, author graspsync.PubKey) (bool, error)
}

// Standing is what a [View] tells of repositories and what belongs to them. It reads no
// Store.
type Standing interface {
	// Announced reports whether an accepted announcement makes the repository ours.
	Announced(ref graspsync.RepoRef) bool
	// Left reports whether the newest announcement of the repository is here and does
	// not make it ours: its owner took it from us.
	Left(ref graspsync.RepoRef) bool
	// Family returns all announcements with this identifier that are here, those that do
	// not make their repositories ours among them: who has a say follows from all. They
	// must not be changed; their Event is nil.
	Family(identifier string) []*nip34.Announcement
	// Waiting returns those of Family that would make a repository ours, and wait as yet:
	// none where the Policy holds none. The same holds for them.
	Waiting(identifier string) []*nip34.Announcement
	// Generation is another one whenever Waiting, Family or Announcements would return something else
	// for an identifier.
	Generation(identifier string) Generation
	// Knows reports whether somebody has one of Family, or is listed in one. It may report
	// that of others, but not of all: most of what strangers write ends there.
	Knows(identifier string, who graspsync.PubKey) bool
	// Root reports whether id is an accepted patch, pull request or issue of a
	// repository that is ours.
	Root(id graspsync.EventID) bool
}

// Generation tells what is known of an identifier at one time from what is at another. The
// zero Generation tells nothing: it is for a [View] that can't say.
type Generation struct {
	// Stored and Waiting stand for what is stored and for what the [Policy] holds, nil for
	// nothing: pointers to something that was made at the last change, say. They must be
	// comparable, and are the same in no other View that has something else.
	Stored, Waiting any
	Known           bool
}
