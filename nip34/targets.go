package nip34

import (
	"slices"

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

// Targets returns a function that returns the relays of an owner's repository in order of priority.
// The relays that the owner lists come first, then relays of other authors, whom the owner lists
// recursively. These authors take turns, one relay per turn, so that an author with many relays
// does not displace others. Turns alternate between members (with keys on the way to the root) and
// invited keys, the nearest first. Invited keys that ended their own role have no turn. left is the
// approximate number of relays beyond the limit. A relay of several authors may count several
// times.
//
// The function must not be called concurrently.
func (f *AnnouncementSet) Targets(rule TargetBounds) func(owner graspsync.PubKey) (targets []Target, left int) {
	r, heads := f.newReach(rule.People), f.heads()
	return func(owner graspsync.PubKey) ([]Target, int) {
		c := counting{rule: rule, seen: make(map[graspsync.RelayURL]struct{})}
		at, known := f.place(owner)
		if own := f.by[owner]; known && own != nil {
			for n := c.names(own); c.more(&n); {
				c.take(&n)
			}
		}
		if !known || len(f.all[at].lists) == 0 {
			return c.targets, 0
		}
		first := heads(owner)
		lists, _ := r.of(owner, first)
		leads := make(map[int32]bool, len(first))
		for _, m := range first {
			leads[m] = true
		}
		var say, invited []namer
		for _, m := range lists {
			switch own := f.all[m].own; {
			case own == nil:
			case leads[m]:
				say = append(say, c.names(own))
			case own.HasSay():
				invited = append(invited, c.names(own))
			}
		}
		left := c.inTurns(say, invited)
		return c.targets, left
	}
}

// namer is an author with the relays that are not chosen yet.
type namer struct {
	who  graspsync.PubKey
	rest []graspsync.RelayURL
}

// counting contains the chosen relays of one repository.
type counting struct {
	rule    TargetBounds
	seen    map[graspsync.RelayURL]struct{}
	targets []Target
}

func (c *counting) names(a *Announcement) namer {
	relays := a.Relays
	elsewhere := func(u graspsync.RelayURL) bool { return !u.HostPort().Resolvable() }
	if slices.ContainsFunc(relays, elsewhere) {
		relays = slices.DeleteFunc(slices.Clone(relays), elsewhere)
	}
	return namer{a.Ref.Owner, relays[:min(len(relays), c.rule.Each)]}
}

// more reports whether an author has a relay that may still be chosen, and selects it.
func (c *counting) more(n *namer) bool {
	for ; len(n.rest) > 0; n.rest = n.rest[1:] {
		if _, seen := c.seen[n.rest[0]]; !seen && c.rule.Usable(n.rest[0]) {
			return true
		}
	}
	return false
}

func (c *counting) take(n *namer) {
	c.seen[n.rest[0]] = struct{}{}
	c.targets = append(c.targets, Target{n.rest[0], n.who})
	n.rest = n.rest[1:]
}

// inTurns chooses relays of authors while there is room. The lines alternate, and so do the authors
// of a line.
func (c *counting) inTurns(lines ...[]namer) (left int) {
	for room := c.rule.Most; ; {
		waits := false
		for i, line := range lines {
			for len(line) > 0 && !c.more(&line[0]) {
				line = line[1:]
			}
			if lines[i] = line; len(line) == 0 {
				continue
			}
			if waits = true; room > 0 {
				room--
				c.take(&line[0])
				lines[i] = append(line[1:], line[0])
			}
		}
		switch {
		case !waits:
			return 0
		case room == 0:
			return c.count(lines)
		}
	}
}

// count returns the number of remaining relays that may be chosen.
func (c *counting) count(lines [][]namer) (left int) {
	for _, line := range lines {
		for i := range line {
			if c.more(&line[i]) {
				left += len(line[i].rest)
			}
		}
	}
	return left
}
