package grasp_test

import (
	"fmt"
	"log/slog"
	"testing"

	"github.com/fiatjaf/khatru"
	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/adapter/grasp"
	"github.com/graspsync/graspsync/internal/racetest"
	"github.com/graspsync/graspsync/sync/relaytest"
)

// Blocking an author and lifting the block logged a failed survey of a repository in half of the
// attempts.
func TestCaseC19_BlockAndUnset(t *testing.T) {
	c := newCommanded(t)
	record := c.configure
	var warned racetest.Buffer
	c.configure = func(relay *khatru.Relay, cfg *grasp.Config) {
		record(relay, cfg)
		cfg.Logger = slog.New(slog.NewTextHandler(&warned, &slog.HandlerOptions{Level: slog.LevelWarn}))
	}
	c.restart()
	work, commit := c.work()
	owner := relaytest.NewKey("owner")
	var states []*nostr.Event
	for i := range 4 {
		name := fmt.Sprint("repo", i)
		state := owner.State(nostr.Now()-90, name, map[string]string{"refs/heads/main": commit}, "main")
		require.Empty(t, c.publish(owner.Hosted(nostr.Now()-100, name, "ws://"+c.addr), state))
		c.git(work, "push", "-q", owner.CloneURL("ws://"+c.addr, name), "main")
		states = append(states, state)
	}
	for range 8 {
		c.must("block", "author", owner.Npub(), "a mistake")
		c.must("unset", "author", owner.Npub())
	}
	for _, state := range states {
		c.eventually("served", func() bool { return c.serves(state) })
	}
	require.Empty(t, warned.String())
}
