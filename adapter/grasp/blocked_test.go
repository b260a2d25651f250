package grasp_test

import (
	"strings"
	"testing"

	"github.com/nbd-wtf/go-nostr"
	"github.com/nbd-wtf/go-nostr/nip19"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/adapter/explain"
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
	c.eventually("served", func() bool { return c.serves(issue) })

	// Stored events stay. A rule from a file has no command that lifts it.
	file, err := rules.ParseFile(strings.NewReader("block author " + stranger.Npub() + " # of the file"))
	require.NoError(t, err)
	reload := func(file rules.File) {
		require.NoError(t, c.server.Control().Reload(t.Context(), "SIGHUP", func() (rules.File, error) { return file, nil }))
	}
	explain := func(asked string) explain.Explanation {
		t.Helper()
		x, err := c.server.Explain(t.Context(), asked)
		require.NoError(t, err)
		return x
	}
	reload(file)
	x := explain(issue.ID)
	require.Equal(t, "stored", x.Is)
	require.Equal(t, `Blocked: author `+stranger.Npub()+`, by file: "of the file". To lift it, change the file, or use the command: allow author `+stranger.Npub(), x.Answer[0])
	reload(rules.File{})
	require.Nil(t, explain(issue.ID).Blocked)

	c.must("remove", "repository", owner.Npub()+"/repo", "takedown test")
	c.must("block", "author", mallory.Npub(), "spam")
	c.must("block", "relay", "first.example", "too loud")
	theirs := mallory.Event(nostr.Now(), 1, "hello")
	require.Len(t, c.publish(theirs), 1)
	repository := owner.Npub() + "/repo"
	for range 2 {
		for _, want := range []struct{ asked, rule, reason string }{
			{repository, "repository " + repository, "takedown test"},
			{announcement.ID, "repository " + repository, "takedown test"},
			{mallory.Npub() + "/anything", "author " + mallory.Npub(), "spam"},
			{"wss://first.example", "relay first.example", "too loud"},
		} {
			x := explain(want.asked)
			require.Equal(t, "blocked", x.Is, x)
			require.True(t, strings.HasPrefix(x.Answer[0], "Blocked: "+want.rule+", by "+c.owner.Npub()+", since "), x.Answer[0])
			require.True(t, strings.HasSuffix(x.Answer[0], `: "`+want.reason+`". To lift it, use the command: unset `+want.rule), x.Answer[0])
		}
		c.restart()
	}
	// After a restart the event of a client is forgotten, and an id does not show its author.
	require.Equal(t, "unknown", explain(theirs.ID).Is)
	nevent, err := nip19.EncodeEvent(theirs.ID, nil, mallory.Hex())
	require.NoError(t, err)
	x = explain(nevent)
	require.Contains(t, x.Answer[0], "If it is by "+mallory.Npub()+", as was asked, it is kept out. Blocked: author "+mallory.Npub())
	require.Nil(t, x.Blocked, "anybody may write any author into one")

	c.must("unset", "repository", repository)
	require.NotEqual(t, "blocked", explain(repository).Is)
}
