package refplan

import (
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
	Version  graspsync.EventKey // of an announcement or state
	ByUser   bool               // it was submitted, not synced
	Size     int64              // bytes
	Seen     time.Time          // when it came
	Deadline time.Time          // when it expires
	// Soft: it has expired once; its repository is gone, and a state event revives
	// it. Deadline is when that ends.
	Soft bool
	// From is the relay that brought it, without the path; empty if somebody submitted it.
	From string
	// For is the key that lists the author of a Relative, which counts for that key: the author
	// itself if it takes the place of an announcement of theirs.
	For graspsync.PubKey
}

// Signed is its event, whose id and author were read when it came in; the zero Event for the zero Entry.
func (e Entry) Signed() graspsync.Event {
	if e.Event == nil {
		return graspsync.Event{}
	}
	return graspsync.Event{Event: e.Event, ID: e.ID, PubKey: e.Author}
}

// IsAnnouncement reports whether an entry is an announcement: of each repository one waits, whether
// it makes that ours or not.
func (e *Entry) IsAnnouncement() bool { return e.Class == Announcement || e.Class == Relative }

// Owes is whose share of the places an entry has.
func (e *Entry) Owes() graspsync.PubKey {
	if e.Class == Relative {
		return e.For
	}
	return e.Author
}
