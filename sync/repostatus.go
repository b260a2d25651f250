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
	// reason why no author may change the refs, or "". Both are zero if the Policy cannot tell.
	Maintainers []Maintainer `json:"maintainers,omitempty"`
	Unled       UnledReason  `json:"unled,omitempty"`

	// Ours is the number of stored events that tag the repository or its roots.
	Ours   int         `json:"ours"`
	Relays []RepoRelay `json:"relays"`
}

// Maintainer is an author in the maintainer set of a repository, or an invited author.
type Maintainer struct {
	Key      graspsync.PubKey `json:"key"`
	Role     MaintainerRole   `json:"role"`
	ListedBy graspsync.PubKey `json:"listed_by,omitzero"` // maintainer that lists Key; zero for the root
	Lists    graspsync.PubKey `json:"lists,omitzero"`     // maintainer that Key lists in return; zero if not needed
}

// MaintainerRole is the role of a [Maintainer].
type MaintainerRole string

// Roles of a [Maintainer], see [nip34.MemberKind]. Authors of the last three roles may not change refs.
const (
	RoleRoot        MaintainerRole = "root"
	RoleMember      MaintainerRole = "member"
	RoleUnannounced MaintainerRole = "unannounced"
	RoleUnanswered  MaintainerRole = "unanswered"
	RoleResigned    MaintainerRole = "resigned"
)

// UnledReason is the reason why no author may change the refs of a repository.
type UnledReason string

// Values of [RepoStatus].Unled, see [nip34.LeadSearch].
const (
	UnledUnannounced UnledReason = "unannounced"
	UnledNoRole      UnledReason = "no role"
	UnledLeadless    UnledReason = "leadless"
	UnledAmbiguous   UnledReason = "ambiguous"
	UnledCircular    UnledReason = "circular"
)

var (
	roles = map[nip34.MemberKind]MaintainerRole{
		nip34.Root: RoleRoot, nip34.Member: RoleMember, nip34.Silent: RoleUnannounced, nip34.Unanswered: RoleUnanswered, nip34.Resigned: RoleResigned,
	}
	unled = map[nip34.LeadSearch]UnledReason{
		nip34.Unannounced: UnledUnannounced, nip34.NoSay: UnledNoRole, nip34.Leadless: UnledLeadless, nip34.Ambiguous: UnledAmbiguous,
		nip34.Circular: UnledCircular,
	}
)

func (s *RepoStatus) setAuthority(a *nip34.Authority) {
	s.Unled = unled[a.Walk]
	for _, p := range a.People {
		s.Maintainers = append(s.Maintainers, Maintainer{p.Key, roles[p.Say], p.ListedBy, p.Lists})
	}
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
	// reconciliation. Events stored for less than ten minutes do not count. Coverage is the share
	// of stored events that the relay has, from 0 to 1. All three are zero for a relay without
	// NIP-77.
	Lacks      int       `json:"lacks"`
	Coverage   float64   `json:"coverage"`
	ComparedAt time.Time `json:"compared_at,omitzero"`
}
