package grasp_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/sync/relaytest"
)

// A removal that failed half-way left the ref of a pull request whose event was gone, and no command
// removed it any more.
func TestRefOfAnEventThatIsGoneIsRemoved(t *testing.T) {
	c := newCommanded(t)
	work, commit := c.work()
	owner := relaytest.NewKey("owner")
	c.serve(work, commit, owner)
	pull := relaytest.NewKey("mallory").PullRequest(nostr.Now()-20, owner.Ref("repo"), "copied", commitOn(c, work))
	require.Empty(t, c.publish(pull))
	c.git(work, "push", "-q", owner.CloneURL("ws://"+c.addr, "repo"), "HEAD:refs/nostr/"+pull.ID)
	c.eventually("served", func() bool { return c.serves(pull) })
	ev, err := graspsync.ParseEvent(pull)
	require.NoError(t, err)
	require.NoError(t, c.server.Sync().Remove(t.Context(), ev))
	refs := func() string { return c.git(work, "ls-remote", owner.CloneURL("ws://"+c.addr, "repo")) }
	require.Contains(t, refs(), pull.ID)
	for range 2 {
		require.JSONEq(t, `{"events":0,"waiting":0}`, c.must("remove", "event", pull.ID))
		require.NotContains(t, refs(), pull.ID)
		require.Contains(t, refs(), "refs/heads/main")
	}
}

// A thousand events that are about other repositories as well kept one from being removed, its git data
// included, and what was about it alone.
func TestManyThatBelongElsewhereKeepNothing(t *testing.T) {
	c := newCommanded(t)
	work, commit := c.work()
	bad, good, spammer := relaytest.NewKey("bad"), relaytest.NewKey("good"), relaytest.NewKey("spammer")
	c.serve(work, commit, bad)
	announcement := good.Hosted(nostr.Now()-100, "repo", "ws://"+c.addr)
	require.Empty(t, c.publish(announcement, good.State(nostr.Now()-90, "repo", map[string]string{"refs/heads/main": commit}, "main")))
	c.git(work, "push", "-q", good.CloneURL("ws://"+c.addr, "repo"), "main")
	c.eventually("served", func() bool { return c.serves(announcement) })

	const many = 1_001
	var both []graspsync.Incoming
	save := func(raw *nostr.Event) {
		ev, err := graspsync.ParseEvent(raw)
		require.NoError(t, err)
		both = append(both, graspsync.Incoming{Event: ev})
	}
	alone := spammer.Issue(nostr.Now()-50_000, bad.Ref("repo"), "of one")
	save(alone)
	for i := range many {
		save(spammer.Event(nostr.Now()-60-nostr.Timestamp(i), 1621, fmt.Sprint("of both ", i),
			nostr.Tag{"a", bad.Ref("repo").String()}, nostr.Tag{"a", good.Ref("repo").String()}))
	}
	outcomes, err := c.server.Sync().Store().Save(t.Context(), both)
	require.NoError(t, err)
	for _, o := range outcomes {
		require.NoError(t, o.Err)
	}
	result := c.must("remove", "repository", bad.Ref("repo").String())
	require.True(t, strings.HasPrefix(result, `{"events":3,`), result)
	require.Empty(t, c.folders(bad))
	require.True(t, c.clonable(good))
	require.False(t, c.serves(alone))
}
