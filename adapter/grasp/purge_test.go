package grasp_test

import (
	"fmt"
	"testing"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/internal/racetest"
	"github.com/graspsync/graspsync/sync/relaytest"
)

// A purge that failed half-way left the ref of a pull request whose event was gone, and no command
// removed the ref.
func TestRefOfAnEventThatIsGoneIsRemoved(t *testing.T) {
	c := newCommanded(t)
	work, commit := c.work()
	owner := relaytest.NewKey("owner")
	c.serve(work, commit, owner)
	pull := relaytest.NewKey("mallory").PullRequest(nostr.Now()-20, owner.Ref("repo"), "copied", commitOn(c, work))
	require.Empty(t, c.publish(pull))
	c.git(work, "push", "-q", owner.CloneURL("ws://"+c.addr, "repo"), "HEAD:refs/nostr/"+pull.ID)
	c.eventually("served", func() bool { return c.serves(pull) })
	require.NoError(t, c.db.DeleteEvent(t.Context(), pull))
	refs := func() string { return c.git(work, "ls-remote", owner.CloneURL("ws://"+c.addr, "repo")) }
	require.Contains(t, refs(), pull.ID)
	for range 2 {
		require.JSONEq(t, `{"events":0,"waiting":0}`, c.must("remove", "event", pull.ID))
		require.NotContains(t, refs(), pull.ID)
		require.Contains(t, refs(), "refs/heads/main")
	}
}

// If an author had more events in one second than a page of the store, the purge removed none of
// the author's events.
func TestAuthorOfManyEventsInOneSecondIsRemoved(t *testing.T) {
	racetest.Amounts(t)
	c := newCommanded(t)
	work, commit := c.work()
	mallory, owner := relaytest.NewKey("mallory"), relaytest.NewKey("owner")
	c.serve(work, commit, owner)
	second := nostr.Now() - 1000
	var all []*nostr.Event
	for i := range 1_700 { // a page is 500
		raw := mallory.Event(second+nostr.Timestamp(max(0, i-1_500)), 1621, fmt.Sprint(i), nostr.Tag{"a", owner.Ref("repo").String()})
		if i%2 == 0 {
			raw = mallory.Hosted(second, fmt.Sprint("of one second ", i), "ws://"+c.addr)
		}
		all = append(all, raw)
	}
	c.store(all...)
	require.EqualValues(t, len(all), c.stored(mallory))
	c.must("remove", "author", mallory.Npub())
	require.Zero(t, c.stored(mallory))
	require.Len(t, c.served(), 2)
}

// stored returns the number of an author's events in the backend.
func (c *commanded) stored(k *relaytest.Key) int64 {
	n, err := c.db.CountEvents(c.t.Context(), nostr.Filter{Authors: []string{k.Hex()}})
	require.NoError(c.t, err)
	return n
}
