package refplan

import (
	"time"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/nip34"
)

// Class is the kind of a held event.
type Class uint8

// The classes of held events.
const (
	Announcement Class = iota + 1
	State
	PullRequest // and pull request updates
	_           // used in records of earlier versions
	// Relative is the announcement of a maintainer whom a held announcement lists, and for whose
	// repository this service is not listed. It is held as long as the listing announcement.
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

// Entry is a held event. It is immutable.
type Entry struct {
	ID    graspsync.EventID
	Class Class
	Event *nostr.Event
	// Event in parsed form, by its class. Immutable.
	Announces *nip34.Announcement // of an Announcement or a Relative
	State     *nip34.State
	Pull      *nip34.PullRequest
	Expires   int64 // NIP-40 expiration in Unix seconds; zero: never
	Author    graspsync.PubKey
	// Repos are the repositories that the event names: that of an announcement or state, or those
	// in the a tags of a pull request.
	Repos    []graspsync.RepoRef
	Version  graspsync.EventKey // of an announcement or state
	ByUser   bool               // submitted by a client, not synced
	Size     int64              // bytes
	Seen     time.Time          // arrival
	Deadline time.Time          // expiry
	// Soft is true for an announcement that has expired once. Its repository is removed. A state
	// event revives the announcement before Deadline.
	Soft bool
	// From is the relay that sent the event, without the path. It is empty if a client submitted
	// it.
	From string
	// For is the key that lists the author of a Relative, and in whose quota it counts. It is the
	// author if the Relative replaces a held announcement of the author.
	For graspsync.PubKey
}

// Signed returns the event with its parsed id and author. It returns the zero Event for the zero
// Entry.
func (e Entry) Signed() graspsync.Event {
	if e.Event == nil {
		return graspsync.Event{}
	}
	return graspsync.Event{Event: e.Event, ID: e.ID, PubKey: e.Author}
}

// IsAnnouncement reports whether an entry is an Announcement or a Relative. At most one is held per
// repository.
func (e *Entry) IsAnnouncement() bool { return e.Class == Announcement || e.Class == Relative }

// Owes returns the key in whose quota an entry counts.
func (e *Entry) Owes() graspsync.PubKey {
	if e.Class == Relative {
		return e.For
	}
	return e.Author
}
