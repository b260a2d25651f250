package nip34

import (
	"slices"

	"github.com/graspsync/graspsync"
)

// Target is a relay of a repository, and whose announcement names it.
type Target struct {
	Relay graspsync.RelayURL
	By    graspsync.PubKey
}

// TargetBounds is which of the relays count that announcements name.
type TargetBounds struct {
	People int // whom an owner lists, recursively: of so many the relays count at most
	Each   int // relays of one announcement: the first ones
	Most   int // relays of a repository that its owner does not name
	Usable func(graspsync.RelayURL) bool
}

// Targets returns what says of an owner which relays count for the repository, in order of right:
// those that the owner names, then those that people name whom the owner lists, recursively, though
// the owner does not. Of these everybody has a relay in turn, so that who names many takes nothing
// from others: by turns one of those who have a say, or lead to who has, and one of those who
// are invited, the nearest first. Whoever is invited and says that they are no maintainer names
// none. left is about how many more there were, where there were too many: what several name
// may count several times.
//
// What is returned is for one goroutine.
func (f *Family) Targets(rule TargetBounds) func(owner graspsync.PubKey) (targets []Target, left int) {
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

// namer is somebody whose turn comes, and which of their relays are left.
type namer struct {
	who  graspsync.PubKey
	rest []graspsync.RelayURL
}

// counting is which relays of one repository count so far.
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

// more reports whether somebody has a relay left that may count and does not yet: their next one.
func (c *counting) more(n *namer) bool {
	for ; len(n.rest) > 0; n.rest = n.rest[1:] {
		if _, seen := c.seen[n.rest[0]]; !seen && c.rule.Usable(n.rest[0]) {
			return true
		}
	}
	return false
}

// take has the next relay of somebody count.
func (c *counting) take(n *namer) {
	c.seen[n.rest[0]] = struct{}{}
	c.targets = append(c.targets, Target{n.rest[0], n.who})
	n.rest = n.rest[1:]
}

// inTurns has the relays of people count as long as there is room. The lines take turns, and
// in each of them who stands there.
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

// count is how many relays are left that may count.
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
