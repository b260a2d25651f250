package purgatory

import (
	"time"

	"github.com/graspsync/graspsync"
)

// Status is a snapshot of a [Purgatory].
type Status struct {
	At      time.Time     `json:"at"`
	Waiting []EntryStatus `json:"waiting"` // the first [StatusEntries] to expire
	// Number of held events by class, and their size in bytes.
	Announcements int   `json:"announcements"`
	States        int   `json:"states"`
	PullRequests  int   `json:"pull_requests"`
	Relatives     int   `json:"relatives"` // announcements of maintainers whom a held announcement lists
	Bytes         int64 `json:"bytes"`
	// Counters since the start.
	Held       uint64            `json:"held"`
	Released   uint64            `json:"released"`
	Expired    uint64            `json:"expired"`
	Replaced   uint64            `json:"replaced"`
	Deleted    uint64            `json:"deleted"`
	Refused    uint64            `json:"refused"`   // by the relay, after their data had arrived
	Displaced  uint64            `json:"displaced"` // evicted, because the table was full
	Unwanted   uint64            `json:"unwanted"`  // relatives whom no held announcement lists any more
	Fetches    uint64            `json:"fetches"`   // requests for git data
	Failed     uint64            `json:"failed"`    // failed fetches
	Objects    uint64            `json:"objects"`   // received objects that were missing
	Fetched    uint64            `json:"fetched_bytes"`
	Dropped    map[string]uint64 `json:"dropped"`    // by limit
	Unreadable uint64            `json:"unreadable"` // unreadable records on the disk
	Panics     map[string]uint64 `json:"panics"`     // contained panics by component; each is a bug
	// Failures are the dependencies whose last call failed, for example "relay save" or "store
	// write".
	Failures []graspsync.Failure `json:"failures,omitempty"`

	// Unconfirmed is the number of repositories without announcement that stay in service until the
	// operator confirms their removal. See [Purgatory.Ready].
	Unconfirmed int `json:"unconfirmed_departures,omitempty"`

	// Queue is the number of repositories whose git data is being fetched or waits for a fetch.
	Queue int `json:"queue"`
	// Domains are up to 200 git servers that received requests since the start, by name. The last
	// entry, "other", sums up the rest.
	Domains []DomainStatus `json:"domains"`

	Maintenance MaintenanceStatus `json:"maintenance"`
}

// DomainStatus counts the requests to one git server.
type DomainStatus struct {
	Domain   string `json:"domain"` // host and port
	InFlight int    `json:"in_flight"`
	Requests uint64 `json:"requests"`
	Failed   uint64 `json:"failed"` // failed requests
	// LastRequest is the start of the last request. LastFailure is the time of the last failure,
	// and LastError its text: one printable line that may quote the server.
	LastRequest time.Time `json:"last_request,omitzero"`
	LastFailure time.Time `json:"last_failure,omitzero"`
	LastError   string    `json:"last_error,omitempty"`

	failing time.Time // start of the failures; zero: the last request succeeded
}

// StatusEntries is the maximum number of entries in a [Status].
const StatusEntries = 100

// EntryStatus is one held event.
type EntryStatus struct {
	ID       string    `json:"id"`
	Class    string    `json:"class"` // announcement, state, pull request, relative
	Repos    []string  `json:"repos"`
	ByUser   bool      `json:"by_user"`
	Since    time.Time `json:"since"`
	Deadline time.Time `json:"deadline"`
	Soft     bool      `json:"soft"`    // expired, and can be revived
	Missing  int       `json:"missing"` // git objects that its repositories lacked at the last release
}
