package sync

import (
	"errors"
	"time"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/nip34"
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

	// Maintainers are the authors that decide about its refs, and those that are invited to. Unled is why nobody decides, ""
	// if somebody does. Both are zero if the Policy can't tell.
	Maintainers []Maintainer `json:"maintainers,omitempty"`
	Unled       UnledReason  `json:"unled,omitempty"`

	// Ours is how many events we have of it and its roots: those that tag them.
	Ours   int         `json:"ours"`
	Relays []RepoRelay `json:"relays"`
}

// Maintainer is an author in the maintainer set of a repository, or one that is invited to it.
type Maintainer struct {
	Key      graspsync.PubKey `json:"key"`
	Role     MaintainerRole   `json:"role"`
	ListedBy graspsync.PubKey `json:"listed_by,omitzero"` // the maintainer that lists Key; zero for the root
	Lists    graspsync.PubKey `json:"lists,omitzero"`     // the maintainer that Key lists in return; zero if that is not needed
}

// MaintainerRole is the role of a [Maintainer].
type MaintainerRole string

// The roles of a [Maintainer], as [nip34.Say] has them. Authors of the last three do not decide.
const (
	RoleRoot        MaintainerRole = "root"
	RoleMember      MaintainerRole = "member"
	RoleUnannounced MaintainerRole = "unannounced"
	RoleUnanswered  MaintainerRole = "unanswered"
	RoleResigned    MaintainerRole = "resigned"
)

// UnledReason is why nobody decides about the refs of a repository.
type UnledReason string

// The reasons of [RepoStatus].Unled, as [nip34.Walk] has them.
const (
	UnledUnannounced UnledReason = "unannounced"
	UnledNoRole      UnledReason = "no role"
	UnledLeadless    UnledReason = "leadless"
	UnledAmbiguous   UnledReason = "ambiguous"
	UnledCircular    UnledReason = "circular"
)

var (
	roles = map[nip34.Say]MaintainerRole{
		nip34.Root: RoleRoot, nip34.Member: RoleMember, nip34.Silent: RoleUnannounced, nip34.Unanswered: RoleUnanswered, nip34.Resigned: RoleResigned,
	}
	unled = map[nip34.Walk]UnledReason{
		nip34.Unannounced: UnledUnannounced, nip34.NoSay: UnledNoRole, nip34.Leadless: UnledLeadless, nip34.Ambiguous: UnledAmbiguous,
		nip34.Circular: UnledCircular,
	}
)

// setAuthority sets the maintainers.
func (s *RepoStatus) setAuthority(a *nip34.Authority) {
	s.Unled = unled[a.Walk]
	for _, p := range a.People {
		s.Maintainers = append(s.Maintainers, Maintainer{p.Key, roles[p.Say], p.ListedBy, p.Lists})
	}
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
