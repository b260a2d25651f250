package grasp_test

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fiatjaf/eventstore/slicestore"
	"github.com/nbd-wtf/go-nostr"
	"github.com/nbd-wtf/go-nostr/nip19"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/adapter/explain"
	"github.com/graspsync/graspsync/internal/racetest"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/state"
	"github.com/graspsync/graspsync/sync/relaytest"
)

// Explain answers in sentences about an event, a repository and a relay in any spelling: before and
// after git data arrives, and about refusals.
func TestExplain(t *testing.T) {
	r := &rig{t: t, addr: "127.0.0.1:0", dir: filepath.Join(t.TempDir(), "git"), kept: state.NewMemory(), db: &slicestore.SliceStore{}}
	require.NoError(t, r.db.Init())
	racetest.Foreign(t, "go-nostr connects with one while it is closed")
	r.start()
	defer func() { r.stop() }()
	work := t.TempDir()
	r.git(work, "init", "-q", "-b", "main")
	r.git(work, "commit", "-q", "--allow-empty", "-m", "first")
	tip := r.git(work, "rev-parse", "main")

	alice := relaytest.NewKey("alice")
	client, err := nostr.RelayConnect(t.Context(), "ws://"+r.addr)
	require.NoError(t, err)
	defer client.Close()
	announcement := alice.Hosted(nostr.Now(), "repo", "ws://"+r.addr)
	st := alice.State(nostr.Now(), "repo", map[string]string{"refs/heads/main": tip}, "main")
	for _, ev := range []*nostr.Event{announcement, st} {
		require.NoError(t, client.Publish(t.Context(), *ev))
	}
	explain := func(text string) explain.Explanation {
		t.Helper()
		x, err := r.server.Explain(t.Context(), text)
		require.NoError(t, err)
		require.NotEmpty(t, x.Answer)
		return x
	}
	note, err := nip19.EncodeNote(st.ID)
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		x := explain(note)
		return strings.Contains(x.String(), "git object "+tip+" of refs/heads/main")
	}, time.Minute, 20*time.Millisecond)
	x := explain(st.ID)
	require.Equal(t, "held", x.Is)
	require.Equal(t, nip34.SubjectEvent, x.Subject)
	require.Equal(t, "state", x.Waiting.Class)
	require.Contains(t, x.String(), "has to be pushed to this server")

	clone := "http://" + r.addr + "/" + alice.Npub() + "/repo.git"
	x = explain(clone)
	require.Equal(t, "held", x.Is)
	require.Equal(t, alice.Ref("repo").String(), x.Asked)
	require.True(t, x.Git.Here)
	require.Len(t, x.Data.Missing, 1)
	require.Contains(t, x.String(), "has no branch and no tag yet")
	require.NotContains(t, x.String(), "attempt", "there is nobody to ask")

	// A refusal names the expected and the actual value.
	wrong := alice.Hosted(nostr.Now(), "wrong", "ws://"+r.addr)
	for i, tag := range wrong.Tags {
		if tag[0] == "clone" {
			wrong.Tags[i][1] = strings.Replace(tag[1], alice.Npub(), relaytest.NewKey("bob").Npub(), 1)
		}
	}
	alice.Sign(wrong)
	err = client.Publish(t.Context(), *wrong)
	for _, want := range []string{"blocked: ", "does not list this service in clone", "ws://" + r.addr, "http://" + r.addr + "/" + alice.Npub() + "/wrong.git", relaytest.NewKey("bob").Npub()} {
		require.ErrorContains(t, err, want)
	}
	x = explain(alice.Npub() + "/wrong")
	require.Equal(t, "rejected", x.Is)
	require.Contains(t, x.String(), "does not list this service in clone")
	issue := alice.Issue(nostr.Now(), alice.Ref("nowhere"), "x")
	err = client.Publish(t.Context(), *issue)
	require.ErrorContains(t, err, "/nowhere.git")
	require.Contains(t, explain(issue.ID).String(), "/nowhere.git")

	// A client that is too early is told that the announcement is valid and when to submit again.
	early := alice.Issue(nostr.Now(), alice.Ref("repo"), "early")
	err = client.Publish(t.Context(), *early)
	for _, want := range []string{"blocked: ", alice.Npub() + "/repo", "waits for its git data", "submit this again"} {
		require.ErrorContains(t, err, want)
		require.Contains(t, explain(early.ID).String(), want)
	}
	require.NotContains(t, err.Error(), "want an announcement")

	r.git(work, "push", "-q", clone, "main")
	require.Eventually(t, func() bool { return explain(st.ID).Is == "stored" }, time.Minute, 20*time.Millisecond)
	require.NoError(t, client.Publish(t.Context(), *early), "it is taken once the repository is served")
	require.Equal(t, "stored", explain(early.ID).Is)
	x = explain("nostr:" + naddr(t, alice, "repo"))
	require.Equal(t, "followed", x.Is)
	require.Equal(t, 1, x.Git.Branches)
	require.Contains(t, x.String(), "1 branch, 0 tags, HEAD is refs/heads/main")
	require.Contains(t, x.String(), "No git data of "+alice.Npub()+"/repo is missing")

	// A replaced or deleted event is explained as such. Claims of other authors do not count.
	st2 := alice.State(nostr.Now()+1, "repo", map[string]string{"refs/heads/main": tip}, "main")
	require.NoError(t, client.Publish(t.Context(), *st2))
	require.Eventually(t, func() bool { return explain(st2.ID).Is == "stored" }, time.Minute, 20*time.Millisecond)
	x = explain(st.ID)
	require.Equal(t, "superseded", x.Is, x)
	require.Contains(t, x.String(), "is not stored because a newer version of it is")
	served := alice.Issue(nostr.Now(), alice.Ref("repo"), "y")
	deletion := alice.Deletion(nostr.Now(), served)
	for _, ev := range []*nostr.Event{served, deletion, alice.Event(nostr.Now()+2, 5, "", []string{"a", "30618:" + alice.Hex() + ":repo"})} {
		require.NoError(t, client.Publish(t.Context(), *ev))
	}
	x = explain(served.ID)
	require.Equal(t, "deleted", x.Is, x)
	require.Equal(t, "deleted", explain(st2.ID).Is)

	// An event that moderation removed is not explained as released.
	require.Equal(t, "stored", explain(announcement.ID).Is)
	removed, err := graspsync.ParseEvent(announcement)
	require.NoError(t, err)
	require.NoError(t, r.server.Sync().Remove(t.Context(), removed))
	x = explain(announcement.ID)
	require.Equal(t, "removed", x.Is, x)
	require.Contains(t, x.Answer[0], "was removed by moderation")
	require.Contains(t, x.String(), "was released when its git data arrived")

	require.Equal(t, "ours", explain("ws://"+r.addr).Is)
	x = explain("wss://relay.example.com")
	require.Equal(t, "not followed", x.Is)
	_, err = r.server.Explain(t.Context(), "what is this")
	require.ErrorIs(t, err, nip34.ErrSubject)
}

func naddr(t *testing.T, of *relaytest.Key, identifier string) string {
	t.Helper()
	s, err := nip19.EncodeEntity(of.Hex(), 30617, identifier, nil)
	require.NoError(t, err)
	return s
}
