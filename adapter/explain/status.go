package explain

import (
	"fmt"

	"github.com/graspsync/graspsync"
	relaysync "github.com/graspsync/graspsync/sync"
)

// Headline returns a status in a few words, and the phase of a relay, or "dead", that shows its color. The
// words begin with "In sync" if and only if Synced is true.
func Headline(s relaysync.Status) (state, words string) {
	synced, connected, failing, unfollowed, lacking := 0, 0, 0, 0, 0
	for _, r := range s.Relays {
		switch {
		case r.Synced:
			synced++
		case !r.Connected() && r.Failures > 0:
			failing++
		case r.Connected() && r.Missing() > 0:
			lacking++
		case r.Connected() && r.Phase != "syncing" && r.Following == "":
			unfollowed++
		}
		if r.Connected() {
			connected++
		}
	}
	switch all := len(s.Relays); {
	case s.StoreError != "":
		return "dead", "The store cannot be read"
	case s.Unread:
		return "connecting", "Reading what is stored"
	case all == 0:
		return "disconnected", "Nobody to sync with"
	case s.Synced:
		words = "In sync"
		if synced < all {
			words += fmt.Sprintf(" with %d of %s", synced, plural(all, "relay", "relays"))
		}
		if n := s.Git.Unobtainable; n > 0 {
			words += ", " + plural(n, "repository", "repositories") + " unobtainable"
		}
		return "live", words
	case failing == all:
		return "dead", "No relay can be reached"
	case connected == 0:
		return "connecting", "Connecting"
	case s.Git.Missing > 0:
		words = "Catching up: " + progress(s.Git)
	case lacking > 0:
		words = "Catching up"
	case unfollowed > 0:
		words = plural(unfollowed, "relay takes", "relays take") + " no subscription"
	default: // changes are collected, or received events are stored
		words = "Taking in what has changed"
	}
	return "syncing", words
}

// progress returns "35 of 120 repositories, 2 unobtainable", without the parts that are 0.
func progress(g relaysync.GitStatus) string {
	out := fmt.Sprintf("%d of %s", g.Complete, plural(g.All(), "repository", "repositories"))
	if g.Unobtainable > 0 {
		out += fmt.Sprintf(", %d unobtainable", g.Unobtainable)
	}
	return out
}

// Trouble returns what is wrong with a relay besides what its Phase says, "" if nothing is.
func Trouble(r relaysync.RelayStatus) string {
	switch {
	case r.Health == "dead":
		return "failing for a day or more, and tried once a day"
	case r.Health == "rate limited":
		return "asked for fewer requests"
	case r.Health == "degraded" && r.Connected():
		return "connected for a short while only"
	case !r.Connected() && r.Failures > 0:
		return plural(r.Failures, "attempt", "attempts") + " in a row failed"
	}
	return ""
}

// Maintainers returns the maintainers of a repository and why they are, or why it has none, a line for each.
func Maintainers(r relaysync.RepoStatus) (lines []string) {
	if r.Unled != 0 {
		lines = append(lines, "nobody: "+r.Unled.String())
	}
	for _, m := range r.Maintainers {
		line := m.Key.String() + ": " + m.Say.String()
		if m.ListedBy != (graspsync.PubKey{}) {
			line += ", listed by " + m.ListedBy.String()
		}
		if m.Lists != (graspsync.PubKey{}) {
			line += ", lists " + m.Lists.String()
		}
		lines = append(lines, line)
	}
	return lines
}
