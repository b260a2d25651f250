package nip34

import (
	"github.com/graspsync/graspsync"
)

// Target is a relay of a repository, with the author whose announcement lists it.
type Target struct {
	Relay graspsync.RelayURL
	By    graspsync.PubKey
}

// TargetBounds limits the relays of a repository.
type TargetBounds struct {
	People int // maximum number of other authors, of those that the owner lists recursively
	Each   int // maximum number of relays per announcement; the first ones are used
	Most   int // maximum number of relays that only other authors list
	Usable func(graspsync.RelayURL) bool
}

// Targets returns a function, not for concurrent use, that returns the relays of an owner's
// repository by priority: those that the owner lists, then those of authors whom the owner lists
// recursively, one per author and turn. Members (and keys on the way to the root) and invited keys
// alternate, the nearest first. left is the number of relays beyond the limit.
func (f *AnnouncementSet) Targets(rule TargetBounds) func(owner graspsync.PubKey) (targets []Target, left int) {
	r := f.newReach(rule.People)
	return func(owner graspsync.PubKey) (targets []Target, left int) {
		seen := make(map[graspsync.RelayURL]struct{})
		isSeen := func(u graspsync.RelayURL) bool { _, is := seen[u]; return is }
		for _, u := range rule.relays(f.Announcement(owner)) {
			seen[u] = struct{}{}
			targets = append(targets, Target{u, owner})
		}
		own := len(targets)
		lists, leading, _ := r.of(owner)
		lines := [2][]relaysOf{rule.line(lists[:leading], true), rule.line(lists[leading:], false)}
		for i := 0; len(lines[0])+len(lines[1]) > 0; {
			line := &lines[i%len(lines)]
			if len(*line) == 0 {
				i++
				continue
			}
			t := (*line)[0]
			*line = (*line)[1:]
			t.rest = t.rest[skip(t.rest, isSeen):]
			if len(t.rest) == 0 {
				continue
			}
			seen[t.rest[0]] = struct{}{}
			if len(targets)-own < rule.Most {
				targets = append(targets, Target{t.rest[0], t.by})
			} else {
				left++
			}
			*line = append(*line, relaysOf{t.by, t.rest[1:]})
			i++
		}
		return targets, left
	}
}

type relaysOf struct {
	by   graspsync.PubKey
	rest []graspsync.RelayURL
}

// line returns the authors with announcements. Without ended, those who ended their own role are left
// out.
func (b TargetBounds) line(of []*relation, ended bool) (line []relaysOf) {
	for _, r := range of {
		if r.own != nil && (ended || r.own.ClaimsRole()) {
			line = append(line, relaysOf{r.key, b.relays(r.own)})
		}
	}
	return line
}

func (b TargetBounds) relays(a *Announcement) (relays []graspsync.RelayURL) {
	if a == nil {
		return nil
	}
	each := 0
	for _, u := range a.Relays {
		if !u.HostPort().Resolvable() {
			continue
		}
		if each++; each > b.Each {
			break
		}
		if b.Usable(u) {
			relays = append(relays, u)
		}
	}
	return relays
}
