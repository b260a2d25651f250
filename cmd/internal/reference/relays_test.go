package reference

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/sync/relaytest"
)

// TestRelays checks that docs/relays.md contains the limits of the relays in relaytest, and the
// reaction to each phrase in the test data of the session.
func TestRelays(t *testing.T) {
	phrases, err := os.ReadFile(filepath.Join(root, "sync/internal/session/testdata/phrases.md"))
	require.NoError(t, err)
	_, table, ok := strings.Cut(string(phrases), "\n\n")
	require.True(t, ok)
	generated(t, "relays.md", "\n### Limits\n\n"+relayLimits()+"\n### Refusals\n\n"+table)
}

// relayLimits returns a table with a column for each relay and a line for each limit.
func relayLimits() string {
	columns := []struct {
		name string
		b    relaytest.Behavior
	}{
		{"LocalRelay", relaytest.LocalRelay()},
		{"GraspRelay", relaytest.GraspRelay()},
		{"Strfry", relaytest.Strfry()},
		{"StrfryNosLol", relaytest.StrfryNosLol()},
		{"StrfryDamus", relaytest.StrfryDamus()},
		{"StrfryPrimal", relaytest.StrfryPrimal()},
		{"Khatru", relaytest.Khatru()},
		{"KhatruDefaults", relaytest.KhatruDefaults()},
	}
	lines := []struct {
		what string
		of   func(b relaytest.Behavior) int
	}{
		{"subscriptions of a connection", func(b relaytest.Behavior) int { return b.MaxSubs }},
		{"bytes of all its REQs", func(b relaytest.Behavior) int { return b.MaxSubBytes }},
		{"filters of a REQ", func(b relaytest.Behavior) int { return b.MaxFilters }},
		{"tag names of a filter", func(b relaytest.Behavior) int { return b.RefuseTagNamesOver }},
		{"bytes of a value", func(b relaytest.Behavior) int { return b.RefuseValueOver }},
		{"bytes of the values of a list", func(b relaytest.Behavior) int { return b.RefuseSetOver }},
		{"events that answer a filter", func(b relaytest.Behavior) int { return b.Cap }},
		{"bytes of a message", func(b relaytest.Behavior) int { return b.MaxMessage }},
		{"bytes of an event", func(b relaytest.Behavior) int { return b.MaxEvent }},
		{"bytes of a subscription id", func(b relaytest.Behavior) int { return b.MaxSubID }},
		{"queries per minute", func(b relaytest.Behavior) int { return b.RateLimit }},
		{"concurrent queries", func(b relaytest.Behavior) int { return b.RateBurst }},
		{"NEG-MSGs per minute", func(b relaytest.Behavior) int { return b.NegRate }},
		{"messages per minute", func(b relaytest.Behavior) int { return b.MessageRate }},
		{"concurrent reconciliations", func(b relaytest.Behavior) int {
			if b.Negentropy != relaytest.NegOn {
				return 0
			}
			return cmp.Or(b.MaxNegs, b.MaxSubs)
		}},
		{"records to reconcile", func(b relaytest.Behavior) int {
			if b.Negentropy != relaytest.NegOn {
				return 0
			}
			return b.NegMax
		}},
		{"live events that wait for a slow reader", func(b relaytest.Behavior) int { return b.MaxLive }},
	}
	var out strings.Builder
	out.WriteString("| |")
	for _, c := range columns {
		fmt.Fprintf(&out, " %s |", c.name)
	}
	out.WriteString("\n|---|" + strings.Repeat("---|", len(columns)) + "\n")
	for _, l := range lines {
		fmt.Fprintf(&out, "| %s |", l.what)
		for _, c := range columns {
			fmt.Fprintf(&out, " %s |", amount(l.of(c.b)))
		}
		out.WriteString("\n")
	}
	return out.String()
}

// amount formats a number with thousands separators, or "" for no limit.
func amount(n int) string {
	if n == 0 {
		return ""
	}
	s := fmt.Sprint(n)
	for at := len(s) - 3; at > 0; at -= 3 {
		s = s[:at] + "," + s[at:]
	}
	return s
}
