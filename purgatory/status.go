package purgatory

import (
	"time"

	"github.com/graspsync/graspsync"
)

// Status is what a [Purgatory] knows at one moment.
type Status struct {
	At      time.Time     `json:"at"`
	Waiting []EntryStatus `json:"waiting"` // the first [StatusEntries] to expire
	// How many wait, by class, and how large their events are.
	Announcements int   `json:"announcements"`
	States        int   `json:"states"`
	PullRequests  int   `json:"pull_requests"`
	Relatives     int   `json:"relatives"` // announcements of those whom others list that wait
	Bytes         int64 `json:"bytes"`
	// Since the start.
	Held       uint64            `json:"held"`
	Released   uint64            `json:"released"`
	Expired    uint64            `json:"expired"`
	Replaced   uint64            `json:"replaced"`
	Deleted    uint64            `json:"deleted"`
	Refused    uint64            `json:"refused"`   // by the relay when their data was here
	Displaced  uint64            `json:"displaced"` // by others, when there were no places left
	Unwanted   uint64            `json:"unwanted"`  // relatives that nobody lists any more
	Fetches    uint64            `json:"fetches"`   // requests for git data
	Failed     uint64            `json:"failed"`    // of them
	Objects    uint64            `json:"objects"`   // wanted ones that came
	Fetched    uint64            `json:"fetched_bytes"`
	Dropped    map[string]uint64 `json:"dropped"`    // by a bound
	Unreadable uint64            `json:"unreadable"` // entries on the disk
	Panics     map[string]uint64 `json:"panics"`     // that were contained, by whose code it was; always a bug
	// Failures are the dependencies whose last call failed, such as "relay save", "git take" and "store write".
	Failures []graspsync.Failure `json:"failures,omitempty"`

	// Unconfirmed is how many repositories have no announcement and stay in service until the operator
	// confirms that they leave; see [Purgatory.Ready].
	Unconfirmed int `json:"unconfirmed_departures,omitempty"`

	// Queue is how many repositories git data is hunted for.
	Queue int `json:"queue"`
	// Domains are the git servers that were asked since the start, by name: up to 200. What was
	// asked of others is that of "other", which comes last.
	Domains []DomainStatus `json:"domains"`

	Maintenance MaintenanceStatus `json:"maintenance"`
}

// DomainStatus is what came of the requests to one git server.
type DomainStatus struct {
	Domain   string `json:"domain"` // host and port
	InFlight int    `json:"in_flight"`
	Requests uint64 `json:"requests"`
	Failed   uint64 `json:"failed"` // of them
	// LastRequest is when one began, LastFailure when one failed, with LastError: one line of
	// printable text, some of which may be the server's.
	LastRequest time.Time `json:"last_request,omitzero"`
	LastFailure time.Time `json:"last_failure,omitzero"`
	LastError   string    `json:"last_error,omitempty"`
}

// StatusEntries is how many entries a [Status] names.
const StatusEntries = 100

// EntryStatus is one event that waits.
type EntryStatus struct {
	ID       string    `json:"id"`
	Class    string    `json:"class"` // announcement, state, pull request, relative
	Repos    []string  `json:"repos"`
	ByUser   bool      `json:"by_user"`
	Since    time.Time `json:"since"`
	Deadline time.Time `json:"deadline"`
	Soft     bool      `json:"soft"`    // it has expired, and can be revived
	Missing  int       `json:"missing"` // git objects that its repositories lack, as of the last look; events are never counted here
}
