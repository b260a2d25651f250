package grasp_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/fiatjaf/khatru"
	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/adapter/grasp"
	"github.com/graspsync/graspsync/rules"
	"github.com/graspsync/graspsync/sync/relaytest"
)

// Whoever asks about what is blocked hears that first: by whom, since when, why, and what lifts it.
func TestExplainBlocked(t *testing.T) {
	c := newCommanded(t)
	work, commit := c.work()
	owner, mallory, stranger := relaytest.NewKey("owner"), relaytest.NewKey("mallory"), relaytest.NewKey("stranger")
	announcement, _ := c.serve(work, commit, owner)
	issue := stranger.Issue(nostr.Now()-50, owner.Ref("repo"), "issue")
	require.Empty(t, c.publish(issue))
	first, err := graspsync.ParseRelayURL("wss://first.example")
	require.NoError(t, err)
	record := c.configure
	c.configure = func(relay *khatru.Relay, cfg *grasp.Config) {
		record(relay, cfg)
		cfg.Sync.Bootstrap = []graspsync.RelayURL{first}
	}
	c.restart()
	c.eventually("served", func() bool { return c.serves(issue) })

	// What is here stays, and a file has no command that takes it back.
	file, err := rules.ParseFile(strings.NewReader("block author " + stranger.Npub() + " # of the file"))
	require.NoError(t, err)
	require.NoError(t, c.server.Control("SIGHUP").Reload(t.Context(), reads(file)))
	x, err := c.server.Explain(t.Context(), issue.ID)
	require.NoError(t, err)
	require.Equal(t, "stored", x.Is)
	require.Equal(t, `Blocked: author `+stranger.Npub()+`, by file: "of the file". It is lifted where it is taken out of that file, or by the command: allow author `+stranger.Npub(), x.Answer[0])
	require.Contains(t, x.String(), "stays until it is purged")
	require.NoError(t, c.server.Control("SIGHUP").Reload(t.Context(), reads(rules.File{})))
	x, err = c.server.Explain(t.Context(), issue.ID)
	require.NoError(t, err)
	require.Nil(t, x.Blocked)

	c.must("remove", "repository", owner.Npub()+"/repo", "takedown test")
	c.must("block", "author", mallory.Npub(), "spam")
	c.must("block", "event", stranger.Issue(nostr.Now()-40, owner.Ref("other"), "by id").ID, "by id")
	c.must("block", "relay", "first.example", "too loud")
	late := stranger.Issue(nostr.Now(), owner.Ref("repo"), "late")
	theirs := mallory.Event(nostr.Now(), 1, "hello")
	for _, ev := range []*nostr.Event{late, theirs} {
		require.Len(t, c.publish(ev), 1)
	}
	repository := owner.Npub() + "/repo"
	explained := func(asked, rule, reason string) {
		t.Helper()
		x, err := c.server.Explain(t.Context(), asked)
		require.NoError(t, err)
		require.NotNil(t, x.Blocked, x)
		require.Equal(t, "blocked", x.Is, x)
		require.Equal(t, rule, x.Blocked.Rule)
		require.Equal(t, c.owner.Npub(), x.Blocked.By)
		require.Equal(t, reason, x.Blocked.Reason)
		require.False(t, x.Blocked.Since.IsZero())
		require.True(t, strings.HasPrefix(x.Answer[0], "Blocked: "+rule+", by "+c.owner.Npub()+", since "), x.Answer[0])
		require.True(t, strings.HasSuffix(x.Answer[0], `: "`+reason+`". It is lifted by the command: unset `+rule), x.Answer[0])
		for _, wrong := range []string{"not remembered any more", "must list", "no announcement of it", "released", "never came here", "not among the bootstrap", "does not list"} {
			require.NotContains(t, x.String(), wrong)
		}
		data, err := json.Marshal(x)
		require.NoError(t, err)
		require.Contains(t, string(data), `"blocked":{"rule":"`+rule+`","by":"`)
	}
	for i := range 2 {
		explained(repository, "repository "+repository, "takedown test")
		explained(mallory.Npub()+"/anything", "author "+mallory.Npub(), "spam")
		explained("wss://first.example", "relay first.example", "too loud")
		if i == 0 {
			explained(announcement.ID, "repository "+repository, "takedown test")
			explained(issue.ID, "repository "+repository, "takedown test")
			explained(late.ID, "repository "+repository, "takedown test")
			explained(theirs.ID, "author "+mallory.Npub(), "spam")
		}
		c.restart()
	}
	c.must("unset", "repository", repository)
	x, err = c.server.Explain(t.Context(), repository)
	require.NoError(t, err)
	require.Nil(t, x.Blocked)
	require.NotEqual(t, "blocked", x.Is)
	require.NotContains(t, x.String(), "Blocked")
}
