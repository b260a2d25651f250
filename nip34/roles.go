package nip34

import (
	"slices"
	"strconv"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
)

// RoleTag is the name of a role tag of an announcement.
type RoleTag byte

// The roles.
const (
	// Lead may sign states. The view of an owner who names a lead begins with that lead.
	Lead RoleTag = 'M'
	// CoMaintainer may sign states.
	CoMaintainer RoleTag = 'm'
	// Moderator may close and label, but may not sign states or invite others.
	Moderator RoleTag = 'o'
)

func (l RoleTag) String() string { return string(rune(l)) }

// RoleStatus is the combined meaning of the role tags for one key. The zero value is Unnamed.
type RoleStatus uint8

// The values, the weakest first. Of several role tags for one key the strongest counts.
const (
	Unnamed   RoleStatus = iota // no role tag names the key
	Malformed                   // the times are invalid, so the role grants nothing
	Ended                       // the role has as many ends as starts
	Deferred                    // the last end is the word "defer", so the role is never active
	Moderates                   // only a moderator, regardless of the times
	Active
)

func (s RoleStatus) String() string {
	return [...]string{"unnamed", "malformed", "ended", "deferred", "moderates", "active"}[s]
}

// Role is a role tag of an announcement.
type Role struct {
	Letter   RoleTag
	Key      graspsync.PubKey
	Standing RoleStatus // Malformed, Ended, Deferred or Active
}

// wordDefer replaces the last end of a role that is never active.
const wordDefer = "defer"

// ParseRole reads a role tag. It has a letter, a key, and times in Unix seconds at which the role
// started, ended, started again and so on. The role is active if it has no times, or an odd number
// of them. ok is false for other tags and for an invalid key. Invalid times make the role
// Malformed, and bounds nil.
func ParseRole(tag nostr.Tag) (role Role, bounds []uint64, ok bool) {
	if !isRole(tag) || len(tag) < 2 {
		return Role{}, nil, false
	}
	key, err := graspsync.ParsePubKey(tag[1])
	if err != nil {
		return Role{}, nil, false
	}
	role = Role{Letter: RoleTag(tag[0][0]), Key: key, Standing: Active}
	times := tag[2:]
	if len(times) > 0 && len(times)%2 == 0 {
		role.Standing = Ended
		if last := len(times) - 1; times[last] == wordDefer {
			role.Standing, times = Deferred, times[:last]
		}
	}
	for _, t := range times {
		at, err := strconv.ParseUint(t, 10, 64)
		if err != nil {
			role.Standing = Malformed
			return role, nil, true
		}
		bounds = append(bounds, at)
	}
	return role, bounds, true
}

// isRole reports whether a tag is a role tag, valid or not. If there is one, the tag `maintainers`
// is not read, because it is for clients without roles and may be outdated.
func isRole(tag nostr.Tag) bool {
	return len(tag) > 0 && (tag[0] == "M" || tag[0] == "m" || tag[0] == "o")
}

// maxLeads is the maximum number of stored leads. Two are enough to detect an ambiguous lead.
const maxLeads = 2

// readRoles reads all role tags, even those beyond the list limits, because a later tag may name
// the author or a second lead.
func (a *Announcement) readRoles(ev *nostr.Event) {
	if !slices.ContainsFunc(ev.Tags, isRole) {
		a.Maintainers, a.UnusableMaintainers, a.DroppedMaintainers = listed(ev, "maintainers", MaxMaintainers, graspsync.ParsePubKey)
		return
	}
	type entry struct {
		letter RoleTag
		key    graspsync.PubKey
	}
	at := make(map[entry]int)
	maintains := make(map[graspsync.PubKey]struct{})
	for _, tag := range ev.Tags {
		if !isRole(tag) {
			continue
		}
		r, _, ok := ParseRole(tag)
		if !ok {
			a.UnusableMaintainers++
			continue
		}
		if r.Key == a.Ref.Owner {
			a.Own = max(a.Own, r.own())
		}
		if i, again := at[entry{r.Letter, r.Key}]; again {
			a.Roles[i].Standing = max(a.Roles[i].Standing, r.Standing)
		} else if len(a.Roles) < MaxMaintainers {
			at[entry{r.Letter, r.Key}] = len(a.Roles)
			a.Roles = append(a.Roles, r)
		}
		if r.Letter == Moderator || r.Standing != Active {
			continue
		}
		if r.Letter == Lead && len(a.Leads) < maxLeads && !slices.Contains(a.Leads, r.Key) {
			a.Leads = append(a.Leads, r.Key)
		}
		if _, again := maintains[r.Key]; again {
			continue
		}
		if len(a.Maintainers) == MaxMaintainers {
			a.DroppedMaintainers++
			continue
		}
		maintains[r.Key] = struct{}{}
		a.Maintainers = append(a.Maintainers, r.Key)
	}
}

// own returns the status of the author by one role tag.
func (r Role) own() RoleStatus {
	if r.Letter == Moderator {
		return Moderates
	}
	return r.Standing
}

// HasSay reports whether the author claims to be a maintainer: no role tag names the author, or an
// active one does. Announcements of other keys cannot restore a role that the author ended.
func (a *Announcement) HasSay() bool { return a.Own == Unnamed || a.Own == Active }
