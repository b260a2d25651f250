package sync

import (
	"errors"
	"time"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/nip34"
)

// Errors of questions about repositories.
var (
	// ErrUnknownRepo reports that a repository is not followed.
	ErrUnknownRepo = errors.New("repository not followed")
	// ErrNotRunning reports that Run has returned.
	ErrNotRunning = errors.New("not running")
)

// RepoStatus is the state of one repository.
type RepoStatus struct {
	Ref graspsync.RepoRef `json:"ref"`
	// Level is "full", or "state only" while the Policy holds its announcement.
	Level string `json:"level"`
	Roots int    `json:"roots"` // patches, pull requests and issues
	// Git is "complete", "missing" or "unobtainable", see [GitStatus]. It is "" without
	// [Config].Lacking.
	Git string `json:"git,omitempty"`

	// Items are the repository and its root events, counted once per relay. With
	// [Config].HostedStatesOnly its states are another item.
	Wanted    int `json:"wanted"`
	InFlight  int `json:"in_flight"`
	Confirmed int `json:"confirmed"`

	// Maintainers are the members of the maintainer set and the invited authors. Unled is the
	// reason why no author may change the refs, or 0. Both are zero if the Policy cannot tell.
	Maintainers []nip34.Person   `json:"maintainers,omitempty"`
	Unled       nip34.LeadSearch `json:"unled,omitzero"`

	Relays []RepoRelay `json:"relays"`
}

// RepoRelay is the state of a repository at one relay.
type RepoRelay struct {
	URL graspsync.RelayURL `json:"url"`
	// ListedBy is the author whose announcement lists the relay: the owner, or a maintainer listed
	// directly or indirectly. If several authors list it, ListedBy is the one with precedence. It
	// is zero if the announcements have just changed.
	ListedBy  graspsync.PubKey `json:"listed_by,omitzero"`
	Phase     string           `json:"phase"` // as in [RelayStatus]
	Live      bool             `json:"live"`  // all items are followed live
	Wanted    int              `json:"wanted"`
	InFlight  int              `json:"in_flight"`
	Confirmed int              `json:"confirmed"`

	// Missed is the number of events of this repository in the relay's Gaps ([RelayStatus]): events
	// that a live subscription should have delivered.
	Missed int `json:"missed"`
	// Lacks is the number of stored events that the relay lacked at ComparedAt, the end of its last
	// reconciliation. Events of the last ten minutes do not count. Both are zero for a relay without
	// NIP-77.
	Lacks      int       `json:"lacks"`
	ComparedAt time.Time `json:"compared_at,omitzero"`
}
