package explain

import (
	"fmt"
	"strings"
	"time"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/nip34"
	relaysync "github.com/graspsync/graspsync/sync"
)

// Headline returns a status in a few words, and the phase of a relay, or "dead", for its color. The
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
		return "disconnected", "No relay is followed"
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

// Maintainers returns the maintainers of a repository and why they are, or why there are none.
func Maintainers(r relaysync.RepoStatus) (lines []string) {
	if r.Unled != 0 {
		lines = append(lines, "nobody: "+r.Unled.String())
	}
	for _, m := range r.Maintainers {
		line := nip34.NPub(m.Key) + ": " + m.Say.String()
		if m.ListedBy != (graspsync.PubKey{}) {
			line += ", listed by " + nip34.NPub(m.ListedBy)
		}
		if m.Lists != (graspsync.PubKey{}) {
			line += ", lists " + nip34.NPub(m.Lists)
		}
		lines = append(lines, line)
	}
	return lines
}

// Pace estimates when a number of missing things is 0. It is not safe for concurrent use.
type Pace struct{ from, next count }

type count struct {
	at      time.Time
	missing int
}

const (
	paceWindow = 5 * time.Minute  // estimates use the numbers of one to two windows
	paceLeast  = 30 * time.Second // time before the first estimate
)

// Left returns the remaining time at the pace of the last minutes, or 0 if that is unknown.
func (p *Pace) Left(now time.Time, missing int) time.Duration {
	c := count{now, missing}
	switch {
	case p.from.at.IsZero() || missing > p.from.missing: // there is more to do
		p.from, p.next = c, c
	case now.Sub(p.next.at) > paceWindow:
		p.from, p.next = p.next, c
	}
	done, took := p.from.missing-missing, now.Sub(p.from.at)
	if done == 0 || took < paceLeast {
		return 0
	}
	return took / time.Duration(done) * time.Duration(missing)
}

var verdicts = map[string][2]string{
	"event stored":         {"live", "Stored and served"},
	"event held":           {"syncing", "Waits for its git data"},
	"event waits":          {"syncing", "Waits for its git data"},
	"event in flight":      {"syncing", "Being judged or saved"},
	"event failing":        {"dead", "Could not be judged or saved, and is retried"},
	"event waiting":        {"syncing", "Waits for other events"},
	"event postponed":      {"syncing", "Judged again later"},
	"event rejected":       {"dead", "Rejected"},
	"event refused":        {"dead", "Refused by this relay"},
	"event not held":       {"dead", "Refused"},
	"event superseded":     {"disconnected", "Replaced by a newer version"},
	"event deleted":        {"disconnected", "Deleted by its author"},
	"event removed":        {"disconnected", "Removed"},
	"event gone":           {"disconnected", "Not stored any more"},
	"event expired":        {"dead", "Expired without its git data"},
	"event expired softly": {"dead", "Expired without its git data"},
	"event unknown":        {"disconnected", "Not stored"},
	"repository followed":  {"live", "Hosted"},
	"repository held":      {"syncing", "Waits for its git data"},
	"repository left":      {"disconnected", "Not hosted: its announcement lists other servers"},
	"repository rejected":  {"dead", "Not hosted: its announcement was rejected"},
	"repository deleted":   {"disconnected", "Deleted by its owner"},
	"repository unknown":   {"disconnected", "Not hosted"},
	"relay ours":           {"live", "This server"},
	"relay excluded":       {"disconnected", "Not followed"},
	"relay not followed":   {"disconnected", "Not followed"},
}

// Verdict returns the answer in a few words, and the phase of a relay, or "dead", for its color.
func (x Explanation) Verdict() (state, words string) {
	switch v, ok := verdicts[x.Subject.String()+" "+x.Is]; {
	case x.Relay != nil && x.Relay.Status != nil:
		return x.Relay.Status.Phase, "Followed, " + x.Relay.Status.Phase
	case ok && x.Is == string(relaysync.RepoFollowed):
		return x.hosted()
	case ok:
		return v[0], v[1]
	case x.Is == "blocked" || x.Is == "withheld":
		return "dead", "Blocked by the operator"
	case x.Is == string(relaysync.RepoStarting):
		return "connecting", "Unknown: the store was not read yet"
	}
	return "disconnected", strings.ToUpper(x.Is[:min(1, len(x.Is))]) + x.Is[min(1, len(x.Is)):]
}

func (x Explanation) hosted() (state, words string) {
	missing := 0
	if s := x.Repository.Status; s != nil {
		missing = s.Wanted - s.Confirmed
	}
	switch {
	case x.Data != nil && len(x.Data.Missing)+x.Data.More > 0:
		return "syncing", "Hosted; git data is missing"
	case x.Data != nil && len(x.Data.Waiting) > 0:
		return "syncing", "Hosted; newer events wait for git data"
	case missing > 0:
		return "syncing", "Hosted; its relays are not read completely"
	}
	return "live", "Hosted and complete"
}
