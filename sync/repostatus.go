package sync

import (
	"errors"
	"time"

	"github.com/graspsync/graspsync"
)

// Sentinels of what is asked about repositories.
var (
	// ErrUnknownRepo is wrapped by what RepoStatus returns for a repository that is
	// not followed.
	ErrUnknownRepo = errors.New("repository not followed")
	// ErrNotRunning is returned by questions that only Run can answer, once it has
	// returned.
	ErrNotRunning = errors.New("not running")
)

// RepoStatus is what is known of one repository.
type RepoStatus struct {
	Ref graspsync.RepoRef `json:"ref"`
	// Level is "full", or "state only" while its announcement is held by the Policy.
	Level string `json:"level"`
	Roots int    `json:"roots"` // patches, pull requests and issues
	// Git is "complete", "missing" or "unobtainable", as [GitStatus] counts the repository, and ""
	// without [Config].Lacking.
	Git string `json:"git,omitempty"`

	// Items are the repository and its roots, of each relay; its states are one more
	// with [Config].NarrowLayer1.
	Wanted    int `json:"wanted"`
	InFlight  int `json:"in_flight"`
	Confirmed int `json:"confirmed"`

	// Authority says who has a say about its refs and why, or why nobody has, a line for
	// each; who is invited and has not agreed is named as well. It is nil if the Policy
	// can't tell.
	Authority []string `json:"authority,omitempty"`

	// Ours is how many events we have of it and its roots: those that tag them.
	Ours   int         `json:"ours"`
	Relays []RepoRelay `json:"relays"`
}

// RepoRelay is what one relay has to do with a repository.
type RepoRelay struct {
	URL graspsync.RelayURL `json:"url"`
	// ListedBy is whose announcement names it: the owner's, or that of somebody whom the
	// owner lists, recursively. Of several who name it who comes first by right counts. It is
	// zero if that has changed just now.
	ListedBy  graspsync.PubKey `json:"listed_by,omitzero"`
	Phase     string           `json:"phase"` // as in [RelayStatus]
	Live      bool             `json:"live"`  // all of it is followed live
	Wanted    int              `json:"wanted"`
	InFlight  int              `json:"in_flight"`
	Confirmed int              `json:"confirmed"`

	// Missed counts its events that the relay had and we should have had by then: of the relay's
	// Gaps ([RelayStatus]) those of this repository.
	Missed int `json:"missed"`
	// Lacks counts the events that we have and the relay has not, as of ComparedAt,
	// when its last reconciliation ended. What we had had for less than ten minutes then does
	// not count: it was on its way. Coverage is the share that it has, from 0 to
	// 1. All three are zero for a relay without NIP-77: nobody knows.
	Lacks      int       `json:"lacks"`
	Coverage   float64   `json:"coverage"`
	ComparedAt time.Time `json:"compared_at,omitzero"`
}
