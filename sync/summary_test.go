package sync_test

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	relaysync "github.com/graspsync/graspsync/sync"
	"github.com/graspsync/graspsync/sync/relaytest"
)

func TestSummary(t *testing.T) {
	bubble(t, func(t *testing.T) {
		net := relaytest.NewNetwork()
		a := net.Add("wss://a.example", relaytest.Behavior{})
		net.Add("wss://down.example", relaytest.Behavior{Down: true})
		owner := relaytest.NewCheapKey("owner")
		a.Publish(owner.Issue(at(time.Hour), owner.Ref("repo"), "x"), owner.Hosted(at(time.Hour), "foreign", "elsewhere.example"))
		r, _ := hosted(t, net, relaysync.Config{}, "a.example", "down.example")
		defer r.stop()
		after(2 * time.Minute)
		before := r.manager.Status()
		s := before.Summary(relaysync.Status{})
		require.Positive(t, s.Errors)
		s.Errors = 0
		require.Equal(t, relaysync.Summary{
			Synced: true, Known: 2, Connected: 1, InSync: 1, Unreached: 3, Repos: 1, Roots: 1, CatchUp: 1, Rejected: 1,
		}, s)
		a.Publish(owner.Issue(at(0), owner.Ref("repo"), "live"))
		after(time.Minute)
		now := r.manager.Status()
		s = now.Summary(before)
		require.Equal(t, uint64(1), s.Live)
		require.Zero(t, s.CatchUp+s.Rejected+s.Direct)
		require.Positive(t, s.Since)

		var out bytes.Buffer
		slog.New(slog.NewTextHandler(&out, nil)).Info("sync", "status", s)
		require.Equal(t, 1, strings.Count(out.String(), "\n"))
		require.Contains(t, out.String(), "status.relays_connected=1 status.relays_known=2")
		require.Contains(t, out.String(), "status.stored_live=1")
	})
}
