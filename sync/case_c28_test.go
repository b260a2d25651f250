package sync_test

import (
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	relaysync "github.com/graspsync/graspsync/sync"
	"github.com/graspsync/graspsync/sync/relaytest"
)

// loud returns the lines at levels for operators.
func (c *capture) loud() (out []logged) {
	c.shared.mu.Lock()
	defer c.shared.mu.Unlock()
	for _, l := range c.shared.records {
		if l.level >= slog.LevelWarn {
			out = append(out, l)
		}
	}
	return out
}

// Each failure of a relay caused a warning per minute. Now there is one warning after an hour of
// failures.
func TestCaseC28_RelayThatFails(t *testing.T) {
	for name, b := range map[string]relaytest.Behavior{
		"down":        {Down: true},
		"no history":  {NeverEOSE: true, Negentropy: relaytest.NegNotice},
		"rate limits": {RateLimit: 1, Negentropy: relaytest.NegNotice},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				logs, net := newCapture(), relaytest.NewNetwork()
				net.Add("wss://a.example", b)
				net.Add("wss://b.example", relaytest.Behavior{})
				r, _ := hosted(t, net, relaysync.Config{Logger: logs.logger()}, "a.example", "b.example")
				defer r.stop()
				after(50 * time.Minute)
				require.Empty(t, logs.loud())
				after(11 * time.Hour)
				lines := logs.loud()
				if name == "rate limits" { // it answers in between
					require.Empty(t, lines)
					return
				}
				require.Len(t, lines, 1)
				require.Equal(t, "wss://a.example", lines[0].attrs["relay"])
				require.NotEmpty(t, lines[0].attrs["error"])
			})
		})
	}
}

// A warning was logged for each live event that a relay lost.
func TestCaseC28_EventThatARelayLost(t *testing.T) {
	bubble(t, func(t *testing.T) {
		logs := newCapture()
		r := playGap(t, relaytest.NewNetwork(), relaysync.Config{Logger: logs.logger()}, 0)
		defer r.stop()
		after(20 * time.Hour)
		require.NotEmpty(t, logs.find("catch-up found a missed event"))
		require.Empty(t, logs.loud())
	})
}
