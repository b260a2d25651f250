package explain

import (
	"fmt"
	"strings"

	relaysync "github.com/graspsync/graspsync/sync"
)

// Headline returns a status in a few words, which begin with "In sync" if and only if Synced is true, and
// the phase of a relay, or "dead", for its color.
func Headline(s relaysync.Status) (state, words string) {
	synced, connected, failing, lacking := 0, 0, 0, 0
	for _, r := range s.Relays {
		switch {
		case r.Synced:
			synced++
		case !r.Connected() && r.Failures > 0:
			failing++
		case r.Connected() && r.Missing() > 0:
			lacking++
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

// Trouble returns the problem of a relay, or "".
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

// answers are the color, the verdict and the first sentence, with subject [1] and reason [2].
var answers = map[string][3]string{
	"event stored":         {"live", "Stored and served", "%[1]s is stored and served."},
	"event held":           {"syncing", "Waits for its git data", "%[1]s is held until its git data arrives."},
	"event waits":          {"syncing", "Waits for its git data"},
	"event in flight":      {"syncing", "Being judged or saved", "%[1]s is being judged or saved now."},
	"event failing":        {"dead", "Could not be judged or saved, and is retried", "%[1]s could not be judged or saved, and is retried: %[2]s."},
	"event waiting":        {"syncing", "Waits for other events", "%[1]s waits for %[2]s. It is judged again when that arrives."},
	"event postponed":      {"syncing", "Judged again later", "%[1]s is not accepted yet, and is judged again later: %[2]s."},
	"event rejected":       {"dead", "Rejected", "%[1]s was rejected: %[2]s."},
	"event refused":        {"dead", "Refused by this relay", "%[1]s was refused by this relay: %[2]s."},
	"event not held":       {"dead", "Refused"},
	"event superseded":     {"disconnected", "Replaced by a newer version", "%[1]s is not stored because a newer version of it is."},
	"event deleted":        {"disconnected", "Deleted by its author", "%[1]s is deleted, as its author asked."},
	"event removed":        {"disconnected", "Removed", "%[1]s was removed by moderation, because it expired, or because its git data never arrived."},
	"event gone":           {"disconnected", "Not stored any more", "%[1]s was stored, and is not stored any more. Submit it again if it should be."},
	"event expired":        {"dead", "Expired without its git data"},
	"event expired softly": {"dead", "Expired without its git data"},
	"event unknown":        {"disconnected", "Not stored"},
	"repository followed":  {"live", "Hosted", "%[1]s is hosted here."},
	"repository held":      {"syncing", "Waits for its git data", "%[1]s is announced, and is served when its git data arrives. Until then only its states are followed."},
	"repository left":      {"disconnected", "Not hosted: its announcement lists other servers", "%[1]s is not hosted here: %[2]s."},
	"repository rejected":  {"dead", "Not hosted: its announcement was rejected", "%[1]s is not hosted here because its announcement was not stored: %[2]s."},
	"repository deleted":   {"disconnected", "Deleted by its owner", "%[1]s is not hosted here because its owner has deleted it (deletion %[2]s)."},
	"repository unknown":   {"disconnected", "Not hosted", "%[1]s is not hosted here: no announcement of it arrived."},
	"repository blocked":   {"dead", "Blocked by the operator", "%[1]s is not hosted here because the operator has blocked it or its owner."},
	"repository not read":  {"connecting", "Unknown: the store was not read yet", "Whether %[1]s is hosted here is unknown because the store was not read yet%[2]s."},
	"relay followed":       {"live", "Followed"},
	"relay ours":           {"live", "This server", "%[1]s is this server."},
	"relay unresolvable":   {"disconnected", "Not followed", "%[1]s is not followed: public DNS has no such name."},
	"relay plaintext":      {"disconnected", "Not followed", "%[1]s is not followed: it is not encrypted (ws://), and plaintext is not allowed."},
	"relay no room":        {"disconnected", "Not followed", "%[1]s is not followed: there is no room for more."},
	"relay batch window":   {"disconnected", "Not followed", "%[1]s is not followed. If an announcement has just listed it, it is followed within seconds. Otherwise its repositories list too many relays before it (MaxRelaysPerRepo, by default 16)."},
	"relay not followed":   {"disconnected", "Not followed", "%[1]s is not followed: no repository of this server lists it, and it is no bootstrap relay."},
	"relay blocked":        {"dead", "Blocked by the operator", "%[1]s is not followed because the operator has blocked it."},
	"relay not read":       {"connecting", "Unknown: the store was not read yet", "%[1]s is not followed because the store was not read yet%[2]s."},
}

// Verdict is a [Headline] of the answer.
func (x Explanation) Verdict() (state, words string) {
	switch v, ok := answers[string(x.Subject)+" "+x.Is]; {
	case x.Relay != nil && x.Relay.Status != nil:
		return x.Relay.Status.Phase, "Followed, " + x.Relay.Status.Phase
	case ok && x.Data != nil && len(x.Data.Missing)+x.Data.More+len(x.Data.Waiting) > 0:
		return "syncing", v[1] + "; git data is missing"
	case ok:
		return v[0], v[1]
	case x.Blocked != nil:
		return "dead", "Blocked by the operator"
	}
	return "disconnected", strings.ToUpper(x.Is[:min(1, len(x.Is))]) + x.Is[min(1, len(x.Is)):]
}
