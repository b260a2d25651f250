package grasp_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/fiatjaf/khatru"
	"github.com/nbd-wtf/go-nostr"
	"github.com/nbd-wtf/go-nostr/nip19"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/adapter/grasp"
	"github.com/graspsync/graspsync/rules"
	"github.com/graspsync/graspsync/sync/relaytest"
)

// Explain on a blocked subject begins with the rule: by whom, since when, why, and the command that
// lifts it.
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

	// Stored events stay. A rule from a file has no command that lifts it.
	file, err := rules.ParseFile(strings.NewReader("block author " + stranger.Npub() + " # of the file"))
	require.NoError(t, err)
	require.NoError(t, c.server.Control("SIGHUP").Reload(t.Context(), reads(file)))
	x, err := c.server.Explain(t.Context(), issue.ID)
	require.NoError(t, err)
	require.Equal(t, "stored", x.Is)
	require.Equal(t, `Blocked: author `+stranger.Npub()+`, by file: "of the file". To lift it, change the file, or use the command: allow author `+stranger.Npub(), x.Answer[0])
	require.Contains(t, x.String(), "stay until they are purged")
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
		require.True(t, strings.HasSuffix(x.Answer[0], `: "`+reason+`". To lift it, use the command: unset `+rule), x.Answer[0])
		for _, wrong := range []string{"no record", "must list", "no announcement of it", "released", "never arrived since", "no bootstrap relay", "does not list"} {
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
		explained(announcement.ID, "repository "+repository, "takedown test")
		explained(issue.ID, "repository "+repository, "takedown test")
		if i == 0 {
			explained(late.ID, "repository "+repository, "takedown test")
			explained(theirs.ID, "author "+mallory.Npub(), "spam")
		}
		c.restart()
	}
	// After a restart the event of a client is forgotten, and an id does not show its author, so
	// another submission is allowed.
	x, err = c.server.Explain(t.Context(), theirs.ID)
	require.NoError(t, err)
	require.Nil(t, x.Blocked)
	require.Equal(t, "unknown", x.Is)
	require.Contains(t, x.String(), "ask with an nevent")
	for author, said := range map[string]string{
		mallory.Hex():  "If it is by " + mallory.Npub() + ", as was asked, it is kept out. Blocked: author " + mallory.Npub() + ", by " + c.owner.Npub(),
		stranger.Hex(): "",
	} {
		nevent, err := nip19.EncodeEvent(theirs.ID, nil, author)
		require.NoError(t, err)
		x, err = c.server.Explain(t.Context(), nevent)
		require.NoError(t, err)
		require.Equal(t, theirs.ID, x.Asked)
		require.Nil(t, x.Blocked, "anybody may write any author into one")
		if said == "" {
			require.NotContains(t, x.String(), "kept out")
		} else {
			require.Contains(t, x.Answer[0], said)
			require.NotContains(t, x.String(), "ask with an nevent")
		}
	}

	c.must("unset", "repository", repository)
	x, err = c.server.Explain(t.Context(), repository)
	require.NoError(t, err)
	require.Nil(t, x.Blocked)
	require.NotEqual(t, "blocked", x.Is)
	require.NotContains(t, x.String(), "Blocked")
}
