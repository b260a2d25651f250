package nip34

import (
	"slices"
	"strconv"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
)

// Letter is the name of a role tag of an announcement.
type Letter byte

// The roles.
const (
	// Lead maintains, and leads: the view of an owner who names one begins with them.
	Lead Letter = 'M'
	// CoMaintainer maintains.
	CoMaintainer Letter = 'm'
	// Moderator closes and labels, has no say about refs, and invites nobody.
	Moderator Letter = 'o'
)

func (l Letter) String() string { return string(rune(l)) }

// Standing is what the entries for somebody come to. The zero value is Unnamed.
type Standing uint8

// Of several entries for one key the strongest counts; they are in that order.
const (
	Unnamed   Standing = iota // there is no entry
	Malformed                 // its times can't be read: it grants nothing
	Ended                     // it has as many ends as starts
	Deferred                  // its last end is the word "defer": it never is active
	Moderates                 // only as a moderator, whatever the entry says of times
	Active
)

func (s Standing) String() string {
	return [...]string{"unnamed", "malformed", "ended", "deferred", "moderates", "active"}[s]
}

// Role is a role tag: what an announcement says that somebody is.
type Role struct {
	Letter   Letter
	Key      graspsync.PubKey
	Standing Standing // Malformed, Ended, Deferred or Active
}

// wordDefer stands for the last end of an entry that is not to count.
const wordDefer = "defer"

// ParseRole reads a role tag: its letter, a key, and the times, in seconds of Unix time,
// at which the role started, ended, started again and so on. It is active if it has not
// ended: without times, or with an odd number of them. What is no role tag, or has no key
// that can be read, is an ok of false; times that can't be read make the role Malformed,
// and bounds nil.
func ParseRole(tag nostr.Tag) (role Role, bounds []uint64, ok bool) {
	if !isRole(tag) || len(tag) < 2 {
		return Role{}, nil, false
	}
	key, err := graspsync.ParsePubKey(tag[1])
	if err != nil {
		return Role{}, nil, false
	}
	role = Role{Letter: Letter(tag[0][0]), Key: key, Standing: Active}
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

// isRole reports whether a tag is a role tag, be it a broken one: one is enough to have the
// tag `maintainers` not read, which is kept for clients that know no roles and may be old.
func isRole(tag nostr.Tag) bool {
	return len(tag) > 0 && (tag[0] == "M" || tag[0] == "m" || tag[0] == "o")
}

// maxLeads is how many leads are kept: two are as ambiguous as any more.
const maxLeads = 2

// readRoles reads who has which role. All tags are read, however many: what is cut off are
// lists, not what the author says of themselves, nor that there is more than one lead.
func (a *Announcement) readRoles(ev *nostr.Event) {
	if !slices.ContainsFunc(ev.Tags, isRole) {
		a.Maintainers, a.UnusableMaintainers, a.DroppedMaintainers = listed(ev, "maintainers", MaxMaintainers, graspsync.ParsePubKey)
		return
	}
	type entry struct {
		letter Letter
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

// own is what an entry for the author says of whether they maintain.
func (r Role) own() Standing {
	if r.Letter == Moderator {
		return Moderates
	}
	return r.Standing
}

// HasSay reports whether the author is a maintainer by their own word: they name themselves
// in no role tag, or in an active one. Who gave that up can't be brought back by others.
func (a *Announcement) HasSay() bool { return a.Own == Unnamed || a.Own == Active }
