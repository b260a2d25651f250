package grasp_test

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/fiatjaf/eventstore"
	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/sync/relaytest"
)

// listener is a client with one subscription.
type listener struct {
	t    *testing.T
	conn *websocket.Conn
}

func (r *rig) subscribe(f nostr.Filter) *listener {
	r.t.Helper()
	conn, _, err := websocket.Dial(r.t.Context(), "ws://"+r.addr, nil)
	require.NoError(r.t, err)
	r.t.Cleanup(func() { _ = conn.CloseNow() })
	message, err := json.Marshal([]any{"REQ", "x", f})
	require.NoError(r.t, err)
	require.NoError(r.t, conn.Write(r.t.Context(), websocket.MessageText, message))
	return &listener{r.t, conn}
}

// next returns the id of the next event, or "" at EOSE.
func (l *listener) next() string {
	l.t.Helper()
	ctx, cancel := context.WithTimeout(l.t.Context(), time.Minute)
	defer cancel()
	for {
		_, data, err := l.conn.Read(ctx)
		require.NoError(l.t, err)
		parsed, err := nostr.NewMessageParser().ParseMessage(string(data))
		require.NoError(l.t, err)
		switch e := parsed.(type) {
		case *nostr.EventEnvelope:
			return e.ID
		case *nostr.EOSEEnvelope:
			return ""
		}
	}
}

// asked returns the ids that a client receives.
func (r *rig) asked(f nostr.Filter) (ids []string) {
	r.t.Helper()
	l := r.subscribe(f)
	for id := l.next(); id != ""; id = l.next() {
		ids = append(ids, id)
	}
	_ = l.conn.CloseNow()
	return ids
}

// reconciled returns the ids that a client learns by NIP-77.
func (r *rig) reconciled(f nostr.Filter) (ids []string) {
	r.t.Helper()
	for _, q := range r.relay.QueryEvents {
		ch, err := q(eventstore.SetNegentropy(r.t.Context()), f)
		require.NoError(r.t, err)
		for e := range ch {
			ids = append(ids, e.ID)
		}
	}
	return ids
}

// store stores events that no client has submitted.
func (r *rig) store(events ...*nostr.Event) {
	r.t.Helper()
	var all []graspsync.Incoming
	for _, raw := range events {
		ev, err := graspsync.ParseEvent(raw)
		require.NoError(r.t, err)
		all = append(all, graspsync.Incoming{Event: ev})
	}
	outcomes, err := r.server.Sync().Store().Save(r.t.Context(), all)
	require.NoError(r.t, err)
	for _, o := range outcomes {
		require.NoError(r.t, o.Err)
	}
}

// The content of a deletion or request to vanish could not be removed. A blocked author could
// spread text by deleting something.
func TestTextOfADeletionIsTakenDown(t *testing.T) {
	c := newCommanded(t)
	work, commit := c.work()
	owner, mallory, other := relaytest.NewKey("owner"), relaytest.NewKey("mallory"), relaytest.NewKey("other")
	c.serve(work, commit, owner)
	issue := mallory.Issue(nostr.Now()-50, owner.Ref("repo"), "an issue")
	second := mallory.Issue(nostr.Now()-49, owner.Ref("repo"), "another issue")
	theirs := other.Issue(nostr.Now()-48, owner.Ref("repo"), "theirs")
	kept := other.Issue(nostr.Now()-47, owner.Ref("repo"), "theirs as well")
	require.Empty(t, c.publish(issue, second, theirs, kept))
	fine := other.Event(nostr.Now()-40, nostr.KindDeletion, "a mistake", nostr.Tag{"e", theirs.ID})
	deletion := mallory.Event(nostr.Now()-30, nostr.KindDeletion, "slander", nostr.Tag{"e", issue.ID})
	require.Empty(t, c.publish(fine, deletion))
	all := nostr.Filter{Kinds: []int{nostr.KindDeletion, 62}}
	require.Equal(t, []string{deletion.ID, fine.ID}, c.asked(all))

	_, err := c.do("purge", "event", deletion.ID)
	require.ErrorContains(t, err, "deletions and requests to vanish stay", "nothing keeps it from being served")
	require.JSONEq(t, `{"events":0,"waiting":0}`, c.must("remove", "event", deletion.ID))
	gone := func() {
		t.Helper()
		one := all
		one.Limit = 1
		require.Equal(t, []string{fine.ID}, c.asked(all))
		require.Equal(t, []string{fine.ID}, c.asked(one), "who asks for one gets the next one")
		require.Empty(t, c.asked(nostr.Filter{IDs: []string{deletion.ID}}))
		require.Empty(t, c.asked(nostr.Filter{Authors: []string{mallory.Hex()}, Kinds: []int{5}}))
		require.Equal(t, []string{fine.ID}, c.reconciled(all))
		require.Len(t, c.publish(issue), 1, "it stays in force")
	}
	for range 2 {
		gone()
		c.restart()
	}
	c.must("unset", "event", deletion.ID)
	require.Equal(t, []string{deletion.ID, fine.ID}, c.asked(all))

	since := nostr.Now() - 10
	listens := c.subscribe(nostr.Filter{Since: &since, Kinds: all.Kinds})
	require.Empty(t, listens.next())
	c.must("block", "author", mallory.Npub())
	gone()
	later := mallory.Event(nostr.Now(), nostr.KindDeletion, "more slander", nostr.Tag{"e", second.ID})
	vanish := mallory.Event(nostr.Now(), 62, "even more", nostr.Tag{"relay", "ALL_RELAYS"})
	require.Empty(t, c.publish(later, vanish), "what they delete is deleted")
	c.eventually("deleted", func() bool { return len(c.asked(nostr.Filter{IDs: []string{second.ID}})) == 0 })
	gone()
	heard := other.Event(nostr.Now(), nostr.KindDeletion, "", nostr.Tag{"e", kept.ID})
	require.Empty(t, c.publish(heard))
	require.Equal(t, heard.ID, listens.next(), "and nobody heard of what mallory said")
	c.must("remove", "author", mallory.Npub())
	require.ElementsMatch(t, []string{fine.ID, heard.ID}, c.asked(all))
}
