package sync

import (
	"fmt"
	"log/slog"

	"github.com/graspsync/graspsync/sync/internal/plan"
)

// Headline returns a status in a few words, and the phase of a relay, or "dead", to show it by. The
// words begin with "In sync" if and only if Synced is true.
func (s Status) Headline() (state, text string) {
	synced, connected, failing, silent, lack := 0, 0, 0, 0, 0
	for _, r := range s.Relays {
		switch {
		case r.Synced:
			synced++
		case !r.Connected() && r.Failures > 0:
			failing++
		case r.Connected() && r.Missing() > 0:
			lack++
		case r.isLive() && r.Following == "":
			silent++
		}
		if r.Connected() {
			connected++
		}
	}
	switch all := len(s.Relays); {
	case s.StoreError != "":
		return "dead", "The store cannot be read"
	case s.Unread:
		return plan.Connecting.String(), "Reading what is stored"
	case all == 0:
		return plan.Disconnected.String(), "Nobody to sync with"
	case s.Synced:
		text = "In sync"
		if synced < all {
			text += fmt.Sprintf(" with %d of %s", synced, plural(all, "relay", "relays"))
		}
		if n := s.Git.Unobtainable; n > 0 {
			text += ", " + plural(n, "repository", "repositories") + " unobtainable"
		}
		return plan.Live.String(), text
	case failing == all:
		return "dead", "No relay can be reached"
	case connected == 0:
		return plan.Connecting.String(), "Connecting"
	case s.Git.Missing > 0:
		text = "Catching up: " + s.Git.String()
	case lack > 0:
		text = "Catching up"
	case silent > 0:
		text = plural(silent, "relay takes", "relays take") + " no subscription"
	default: // while changes are gathered, or received events are stored
		text = "Taking in what has changed"
	}
	return plan.Syncing.String(), text
}

// LogValue implements [slog.LogValuer]: a group for a line of the log once a minute. Counts are since the start.
func (s Status) LogValue() slog.Value {
	_, headline := s.Headline()
	connected, synced, dead := 0, 0, 0
	for _, r := range s.Relays {
		connected += b2i(r.Connected())
		synced += b2i(r.Synced)
		dead += b2i(r.dead())
	}
	return slog.GroupValue(
		slog.Bool("synced", s.Synced), slog.String("headline", headline), slog.String("git", s.Git.String()),
		slog.Int("relays_connected", connected), slog.Int("relays_known", len(s.Relays)),
		slog.Int("relays_synced", synced), slog.Int("relays_dead", dead),
		slog.Int("repos", s.Repos), slog.Int("roots", s.Roots),
		slog.Uint64("stored", s.Events.Stored), slog.Uint64("rejected", total(s.Events.Rejected)),
		slog.Uint64("dropped", total(s.Events.Dropped)), slog.Uint64("failed", s.Events.Failed),
		slog.Int64("waiting", s.Events.Waiting), slog.Int64("in_flight", s.Events.InFlight),
	)
}

func b2i(is bool) int {
	if is {
		return 1
	}
	return 0
}

func total(counts map[string]uint64) (n uint64) {
	for _, c := range counts {
		n += c
	}
	return n
}
