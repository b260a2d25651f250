package ledger

import (
	"slices"
	"time"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/nip34"
)

// Class is what kind of thing waits.
type Class uint8

// The classes.
const (
	Announcement Class = iota + 1
	State
	PullRequest // and updates of one
	_           // records of earlier versions have it
	// Relative is an announcement that makes no repository ours, of somebody who is listed
	// by one that waits: it waits with that.
	Relative
)

// String returns the name of the class.
func (c Class) String() string {
	switch c {
	case Announcement:
		return "announcement"
	case State:
		return "state"
	case PullRequest:
		return "pull request"
	case Relative:
		return "relative"
	}
	return "invalid"
}

// Entry is something that waits. It is never changed; a copy replaces it.
type Entry struct {
	ID    graspsync.EventID
	Class Class
	Event *nostr.Event
	// What Event says, by its class: all that look at it would parse it again. It does not change.
	Announces *nip34.Announcement // an Announcement or a Relative
	State     *nip34.State
	Pull      *nip34.PullRequest
	Expires   int64 // Unix seconds, by what it says itself (NIP-40); zero: never
	Author    graspsync.PubKey
	// Repos are the repositories that it names: an announcement its own, a state the
	// one of its author, a pull request those of its a tags.
	Repos    []graspsync.RepoRef
	Version  graspsync.Stamp // of an announcement or state
	ByUser   bool            // it was submitted, not synced
	Size     int64           // bytes
	Seen     time.Time       // when it came
	Deadline time.Time       // when it expires
	// Soft: it has expired once; its repository is gone, and a state event revives
	// it. Deadline is when that ends.
	Soft bool
	// From is the relay that brought it, without the path; empty if somebody submitted it.
	From string
	// For is the key that lists the author of a Relative, which counts for that key: the author
	// itself if it takes the place of an announcement of theirs.
	For graspsync.PubKey

	try time.Time // not to be expired before; zero: at its Deadline
}

// Signed is its event, whose id and author were read when it came in.
func (e Entry) Signed() graspsync.Event {
	return graspsync.Event{Event: e.Event, ID: e.ID, PubKey: e.Author}
}

// announces reports whether an entry is an announcement: of each repository one waits, whether
// it makes that ours or not.
func (e *Entry) announces() bool { return e.Class == Announcement || e.Class == Relative }

// owes is whose share of the places an entry has.
func (e *Entry) owes() graspsync.PubKey {
	if e.Class == Relative {
		return e.For
	}
	return e.Author
}

// due is when an entry is to be expired.
func (e *Entry) due() time.Time {
	if e.try.After(e.Deadline) {
		return e.try
	}
	return e.Deadline
}

func sortByID(es []Entry) {
	slices.SortFunc(es, func(a, b Entry) int { return a.ID.Compare(b.ID) })
}

// payer is the quota that an entry counts in: that of its author, or of who lists its author. States count apart:
// announcements that had all places would wait, until their time is over, for states that find none. So do relatives,
// of which there may be as many again.
type payer struct {
	author graspsync.PubKey
	wants  bool
	states bool
}

func (e *Entry) payer() payer {
	return payer{author: e.owes(), wants: e.Class == Relative, states: e.Class == State}
}
