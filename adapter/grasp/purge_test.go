package grasp_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/racetest"
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
	alone := spammer.Issue(nostr.Now()-50_000, bad.Ref("repo"), "of one")
	both := []*nostr.Event{alone}
	for i := range many {
		both = append(both, spammer.Event(nostr.Now()-60-nostr.Timestamp(i), 1621, fmt.Sprint("of both ", i),
			nostr.Tag{"a", bad.Ref("repo").String()}, nostr.Tag{"a", good.Ref("repo").String()}))
	}
	c.store(both...)
	result := c.must("remove", "repository", bad.Ref("repo").String())
	require.True(t, strings.HasPrefix(result, `{"events":3,`), result)
	require.Empty(t, c.folders(bad))
	require.True(t, c.clonable(good))
	require.False(t, c.serves(alone))
}

// What a repository had that its owner has taken out of service was kept for a week all the same when the
// owner was removed, and came back with its announcement.
func TestAuthorIsRemovedWithWhatHasLeft(t *testing.T) {
	c := newCommanded(t)
	work, commit := c.work()
	mallory, owner := relaytest.NewKey("mallory"), relaytest.NewKey("owner")
	for _, k := range []*relaytest.Key{mallory, owner} {
		require.Empty(t, c.publish(k.Hosted(nostr.Now()-100, "repo", "ws://"+c.addr), k.State(nostr.Now()-90, "repo", map[string]string{"refs/heads/main": commit}, "main")))
		c.git(work, "push", "-q", k.CloneURL("ws://"+c.addr, "repo"), "main")
		c.eventually("served", func() bool { return c.clonable(k) })
		require.Empty(t, c.publish(k.Event(nostr.Now(), nostr.KindDeletion, "", nostr.Tag{"a", k.Ref("repo").String()})))
		c.eventually("out of service", func() bool { return !c.clonable(k) && len(c.folders(k)) == 1 })
		require.Contains(t, c.folders(k)[0], "departed")
	}
	require.Contains(t, c.must("remove", "author", mallory.Npub()), mallory.Ref("repo").String())
	require.Empty(t, c.folders(mallory))
	require.Len(t, c.folders(owner), 1)
	require.JSONEq(t, `{"events":0,"waiting":0,"withheld":1}`, c.must("purge", "author", mallory.Npub()), "there is nothing else any more")
}

// Of more events in one second than the store gives at once nothing was removed, nor of anything else of
// their author's.
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

// Deletions stay. Where they were all that the store gave of a second, removing their author failed for ever, with
// what else they have of it left.
func TestAuthorOfManyDeletionsInOneSecondIsRemoved(t *testing.T) {
	racetest.Amounts(t)
	c := newCommanded(t)
	work, commit := c.work()
	mallory, owner := relaytest.NewKey("mallory"), relaytest.NewKey("owner")
	c.serve(work, commit, owner)
	second := nostr.Now() - 1000
	var all []*nostr.Event
	for i := range 700 {
		all = append(all, mallory.Event(second, 1621, fmt.Sprint(i), nostr.Tag{"a", owner.Ref("repo").String()}),
			mallory.Event(second, nostr.KindDeletion, "", nostr.Tag{"e", fmt.Sprintf("%064x", i+1)}))
	}
	c.store(all...)
	for range 2 {
		require.Contains(t, c.must("remove", "author", mallory.Npub()), `"withheld":`)
		require.EqualValues(t, 700, c.stored(mallory))
		require.Empty(t, c.asked(nostr.Filter{Authors: []string{mallory.Hex()}}))
	}
}

// That git data could not be removed was forgotten where the store had to be read again.
func TestRepositoryThatStaysIsToldOf(t *testing.T) {
	racetest.Amounts(t)
	c := newCommanded(t)
	work, commit := c.work()
	mallory := relaytest.NewKey("mallory")
	c.serve(work, commit, mallory)
	folder := c.folders(mallory)[0]
	for _, in := range []string{"departed-since", "departed", "since"} { // what it can't be moved over
		require.NoError(t, os.MkdirAll(filepath.Join(folder, in, "x"), 0o700))
	}
	var all []*nostr.Event
	for i := range 1_200 {
		all = append(all, mallory.Hosted(nostr.Now()-1000, fmt.Sprint("of one second ", i), "ws://"+c.addr))
	}
	c.store(all...)
	_, err := c.do("remove", "author", mallory.Npub())
	require.Len(t, c.folders(mallory), 1)
	require.Error(t, err)
}

// stored is how many events the backend has of somebody.
func (c *commanded) stored(k *relaytest.Key) int64 {
	n, err := c.db.CountEvents(c.t.Context(), nostr.Filter{Authors: []string{k.Hex()}})
	require.NoError(c.t, err)
	return n
}
