package statuspage

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/graspsync/graspsync"
	relaysync "github.com/graspsync/graspsync/sync"
)

// phases of relays that are connected, as [relaysync.RelayStatus] has them.
var connected = []string{"syncing", "live", "live with gaps"}

// isConnected goes by the phase: the health is about how a relay did before as well.
func isConnected(r relaysync.RelayStatus) bool { return slices.Contains(connected, r.Phase) }

// missing is how many items of a relay are not complete.
func missing(r relaysync.RelayStatus) int { return max(0, r.Wanted-r.Confirmed) }

// headline is how it stands, in a few words.
type headline struct {
	State string // for its sign and colour
	Text  string
}

func headlineOf(s relaysync.Status, connected int) headline {
	synced, failing := 0, 0
	for _, r := range s.Relays {
		switch {
		case r.Synced:
			synced++
		case !isConnected(r) && r.Failures > 0:
			failing++
		}
	}
	switch all := len(s.Relays); {
	case s.StoreError != "":
		return headline{"dead", "The store cannot be read"}
	case s.Unread:
		return headline{"connecting", "Reading what is stored"}
	case all == 0:
		return headline{"disconnected", "Nobody to sync with"}
	case s.Synced:
		out := headline{"live", "In sync"}
		if synced < all {
			out.Text += fmt.Sprintf(" with %s of %s relays", number(synced), number(all))
		}
		if n := s.Git.Unobtainable; n > 0 {
			out.Text += fmt.Sprintf(", %s %s unobtainable", number(n), noun(n, "repository", "repositories"))
		}
		return out
	case failing == all:
		return headline{"dead", "No relay can be reached"}
	case connected == 0:
		return headline{"connecting", "Connecting"}
	}
	out := headline{"syncing", "Catching up"}
	switch {
	case s.Git.Missing > 0:
		out.Text += ": " + s.Git.String()
	case !lack(s):
		out.Text = "Taking in what has changed" // while changes are gathered, or received events are stored
	}
	return out
}

// lack reports whether a relay that is connected has items that are not complete.
func lack(s relaysync.Status) bool {
	return slices.ContainsFunc(s.Relays, func(r relaysync.RelayStatus) bool { return isConnected(r) && missing(r) > 0 })
}

// waitsShown is how many relays are named for which something waits.
const waitsShown = 3

// waitsOf says what waits for relays that are not connected, most first.
func waitsOf(s relaysync.Status) (out []string) {
	var away []relaysync.RelayStatus
	for _, r := range s.Relays {
		if !isConnected(r) && missing(r) > 0 {
			away = append(away, r)
		}
	}
	slices.SortStableFunc(away, func(a, b relaysync.RelayStatus) int { return cmp.Compare(missing(b), missing(a)) })
	items := 0
	for i, r := range away {
		if i >= waitsShown {
			items += missing(r)
			continue
		}
		line := waiting(missing(r)) + " for " + text(r.URL) + ", which is "
		switch {
		case r.Phase == "connecting":
			line += "being connected to"
		case r.Failures > 0:
			line += "not reachable"
		default:
			line += "not connected yet"
		}
		if !r.NextAttempt.IsZero() {
			line += ", tried again at " + graspsync.TimeText(r.NextAttempt, s.At)
		}
		out = append(out, line+".")
	}
	if items > 0 {
		out = append(out, fmt.Sprintf("%s for %s more that are not connected.", waiting(items), number(len(away)-waitsShown)))
	}
	return out
}

func waiting(n int) string {
	if n == 1 {
		return "1 item waits"
	}
	return number(n) + " items wait"
}
