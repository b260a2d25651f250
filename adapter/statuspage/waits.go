package statuspage

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/graspsync/graspsync"
	relaysync "github.com/graspsync/graspsync/sync"
)

// waitsShown is the maximum number of named relays.
const waitsShown = 3

// waitsOf lists the relays that are not connected and have missing items, most items first.
func waitsOf(s relaysync.Status) (out []string) {
	var away []relaysync.RelayStatus
	for _, r := range s.Relays {
		if !r.Connected() && r.Missing() > 0 {
			away = append(away, r)
		}
	}
	slices.SortStableFunc(away, func(a, b relaysync.RelayStatus) int { return cmp.Compare(b.Missing(), a.Missing()) })
	items := 0
	for i, r := range away {
		if i >= waitsShown {
			items += r.Missing()
			continue
		}
		line := waiting(r.Missing()) + " for " + text(r.URL) + ", which is "
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
