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
	// MaintainerAnnouncement is that of a maintainer whom a held announcement lists. It does not list
	// this service.
	MaintainerAnnouncement
)

func (c Class) String() string {
	switch c {
	case Announcement:
		return "announcement"
	case State:
		return "state"
	case PullRequest:
		return "pull request"
	case MaintainerAnnouncement:
		return "maintainer announcement"
	}
	return "invalid"
}

// Entry is a held event. It is immutable, and stored as JSON, in which a field name never changes its
// meaning.
type Entry struct {
	ID    graspsync.EventID `json:"-"`
	Class Class             `json:"class"`
	Event *nostr.Event      `json:"event"`
	// The parsed event, by its class.
	Announces *nip34.Announcement `json:"-"` // of an Announcement or a MaintainerAnnouncement
	State     *nip34.State        `json:"-"`
	Pull      *nip34.PullRequest  `json:"-"`
	Expires   int64               `json:"-"` // NIP-40 expiration in Unix seconds; zero: never
	Author    graspsync.PubKey    `json:"-"`
	// Repos are the repositories that the event names. A pull request names them in a tags.
	Repos    []graspsync.RepoRef `json:"-"`
	Version  graspsync.EventKey  `json:"-"`                 // of an announcement or state
	ByUser   bool                `json:"by_user,omitempty"` // submitted by a client, not synced
	Size     int64               `json:"-"`                 // bytes
	Seen     time.Time           `json:"seen"`              // arrival
	Deadline time.Time           `json:"deadline"`          // expiry
	// Soft is true for an announcement that has expired once. A state event revives it until
	// Deadline.
	Soft bool `json:"soft,omitempty"`
	// From is the relay host that sent the event, or empty for an event of a client.
	From string `json:"from,omitempty"`
	// Replaces is true for a MaintainerAnnouncement that replaces its author's held announcement.
	Replaces bool `json:"replaces,omitempty"`
}

// Signed returns the event with its parsed id and author.
func (e Entry) Signed() graspsync.Event {
	if e.Event == nil {
		return graspsync.Event{}
	}
	return graspsync.Event{Event: e.Event, ID: e.ID, PubKey: e.Author}
}

// IsAnnouncement reports whether an entry is of either class of announcements. At most one is held
// per repository.
func (e *Entry) IsAnnouncement() bool {
	return e.Class == Announcement || e.Class == MaintainerAnnouncement
}

// EventCode is the state of an event, or the reason why its hold ended.
type EventCode string

// The reasons why a hold ends.
const (
	Released  EventCode = "released"
	Expired   EventCode = "expired"
	Replaced  EventCode = "replaced"
	Deleted   EventCode = "deleted"
	NotStored EventCode = "refused" // by the relay
	Displaced EventCode = "displaced"
	Unwanted  EventCode = "unwanted" // no held announcement lists the author of a MaintainerAnnouncement
)

// Ended is an entry whose hold ends.
type Ended struct {
	Entry  Entry
	Reason EventCode
}
