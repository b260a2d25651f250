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
// listed repositories are followed. It must be a pure function of the announcement.
type Policy interface {
	Judge(ctx context.Context, event *nostr.Event, src graspsync.Source, view View) (graspsync.Verdict, error)
	Lists(a *nip34.Announcement) bool
}

// Holder is a [Policy] that holds events back. What it holds, and has made
// durable before it answered [graspsync.Hold], counts as known when relays are reconciled.
// Held returns the stamps of all held events that match the filter, in any order.
type Holder interface {
	Held(ctx context.Context, filter nostr.Filter) ([]graspsync.Stamp, error)
}

// UserHolder is a [Holder] that can tell which of the events that it has kept from before
// a client of ours submitted: else all that it releases after a restart counts as that.
// held is false for an event that it does not hold.
type UserHolder interface {
	Holder
	HeldForUser(id graspsync.EventID) (byUser, held bool)
}

// AnnouncementHolder is a [Holder] that tells, when Run begins, which announcements it
// has kept from before: they are followed, as those are that it answers [graspsync.Hold] to.
// An error is the last pair; then the rest is followed once it comes again.
type AnnouncementHolder interface {
	Holder
	HeldAnnouncements(ctx context.Context) iter.Seq2[*nip34.Announcement, error]
}

// Authorizer is what a [Policy] may be able to do as well. Without it nobody can tell from
// outside why somebody's state moves the refs of a repository, or does not.
type Authorizer interface {
	// Authority says who has a say about the refs of a repository, and why.
	Authority(ref graspsync.RepoRef, view View) *nip34.Authority
}

// Hearer is what a [Policy] may be able to do as well, and one that asks another Policy should
// be if that one is. Without it all that waits by somebody who is known under an identifier is
// judged again with each announcement there, with it only what may count now by what has become
// of its author.
type Hearer interface {
	// Heard returns whose announcements with this identifier count as things are. It is true
	// for those whose states do as well.
	Heard(identifier string, view View) map[graspsync.PubKey]bool
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
	// Event returns the stored event with this id, nil if there is none.
	Event(ctx context.Context, id graspsync.EventID) (*nostr.Event, error)
	// Events returns by their ids those of the events that are stored. However many ids
	// there are, it costs few questions to the Store.
	Events(ctx context.Context, ids []graspsync.EventID) (map[graspsync.EventID]*nostr.Event, error)
	// Addressed reports whether a version of an event is stored at any of the addresses.
	Addressed(ctx context.Context, at []graspsync.Address) (bool, error)
	// Mentioned reports whether a stored event tags id (e, E or q), deletions aside.
	Mentioned(ctx context.Context, id graspsync.EventID) (bool, error)
	// Near returns stored events that are next to others, deletions aside: those that tag one
	// of the ids (e, E or q) or one of the addresses (a, A or q), and the versions at these
	// addresses. There may be more than it returns, which are at most some hundreds, and an
	// event may come more than once.
	Near(ctx context.Context, ids []graspsync.EventID, at []graspsync.Address) ([]*nostr.Event, error)
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
	// Root reports whether id is an accepted patch, pull request or issue of a
	// repository that is ours.
	Root(id graspsync.EventID) bool
}

// Acquainted is what a [View] may be as well: it knows without looking at any announcement who
// has nothing to do with an identifier. Most of what strangers write ends there.
type Acquainted interface {
	// Knows reports whether somebody has one of Family, or is listed in one. It may report
	// that of others.
	Knows(identifier string, who graspsync.PubKey) bool
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
