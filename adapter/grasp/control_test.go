package grasp_test

import (
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fiatjaf/khatru"
	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/adapter/admin"
	"github.com/graspsync/graspsync/adapter/control"
	"github.com/graspsync/graspsync/adapter/grasp"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/rules"
	"github.com/graspsync/graspsync/state"
	"github.com/graspsync/graspsync/sync/relaytest"
)

// commanded is a server with an owner who sends commands over HTTP.
type commanded struct {
	*rig
	owner *relaytest.Key

	mu  sync.Mutex
	log []admin.Entry // guarded by mu
}

func newCommanded(t *testing.T) *commanded {
	t.Helper()
	c := &commanded{rig: unstarted(t), owner: relaytest.NewKey("admin")}
	c.configure = func(_ *khatru.Relay, cfg *grasp.Config) {
		cfg.Audit = func(e admin.Entry) {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.log = append(c.log, e)
		}
	}
	c.before = func(next http.Handler) http.Handler {
		identity, err := nip34.ParseIdentity(c.addr)
		require.NoError(t, err)
		h, err := admin.New(c.server.Control(), admin.Config{Owners: []graspsync.PubKey{c.owner.PubKey()}, Identity: identity, State: state.NewMemory()})
		require.NoError(t, err)
		return h.Middleware(next)
	}
	c.start()
	t.Cleanup(func() { c.stop() })
	return c
}

func (c *commanded) restart() {
	c.stop()
	c.start()
}

// do executes a command of the owner. The server ignores commands that were signed in the second of
// its start.
func (c *commanded) do(method string, params ...string) (result string, err error) {
	c.t.Helper()
	client := admin.Client{URL: "http://" + c.addr, Key: c.owner.Secret()}
	for {
		raw, err := client.Do(c.t.Context(), method, params...)
		if err != nil && strings.Contains(err.Error(), "signed before") {
			time.Sleep(100 * time.Millisecond)
			continue
		}
		return string(raw), err
	}
}

func (c *commanded) must(method string, params ...string) string {
	c.t.Helper()
	result, err := c.do(method, params...)
	require.NoError(c.t, err, "%s %v", method, params)
	return result
}

func (c *commanded) clonable(k *relaytest.Key) bool {
	_, err := c.try(c.t.TempDir(), "ls-remote", "--exit-code", k.CloneURL("ws://"+c.addr, "repo"))
	return err == nil
}

// An owner blocks and unblocks a repository over HTTP, with a restart in between.
func TestRepositoryIsBlockedAndRemoved(t *testing.T) {
	c := newCommanded(t)
	work, commit := c.work()
	owner, other, stranger := relaytest.NewKey("owner"), relaytest.NewKey("other"), relaytest.NewKey("stranger")
	announcement, state := c.serve(work, commit, owner)
	issue := stranger.Issue(nostr.Now()-50, owner.Ref("repo"), "issue")
	comment := other.Comment(nostr.Now()-40, issue, "comment")
	require.Empty(t, c.publish(issue, comment))
	kept := other.Hosted(nostr.Now()-100, "repo", "ws://"+c.addr)
	keptState := other.State(nostr.Now()-90, "repo", map[string]string{"refs/heads/main": commit}, "main")
	require.Empty(t, c.publish(kept, keptState))
	c.git(work, "push", "-q", other.CloneURL("ws://"+c.addr, "repo"), "main")
	both := stranger.Event(nostr.Now()-30, 1621, "of both", nostr.Tag{"a", owner.Ref("repo").String()}, nostr.Tag{"a", other.Ref("repo").String()})
	require.Empty(t, c.publish(both))
	c.eventually("served", func() bool { return len(c.served()) == 7 })

	c.must("block", "repository", owner.Npub()+"/repo", "copied from elsewhere")
	c.eventually("out of service", func() bool { return !c.clonable(owner) })
	require.True(t, c.clonable(other))
	late := stranger.Issue(nostr.Now(), owner.Ref("repo"), "late")
	for range 2 {
		refused := c.publish(late)
		require.Len(t, refused, 1)
		require.ErrorContains(t, refused[0], "blocked: this server takes nothing about this repository")
		_, err := c.try(work, "push", owner.CloneURL("ws://"+c.addr, "repo"), "main")
		require.Error(t, err)
		require.Len(t, c.served(), 7, "what is here is not purged")
		require.Contains(t, c.must("rules"), "copied from elsewhere")
		c.restart()
	}

	c.must("allow", "repository", owner.Ref("repo").String())
	c.eventually("in service again", func() bool { return c.clonable(owner) })
	require.Empty(t, c.publish(late))

	result := c.must("remove", "repository", owner.Ref("repo").String(), "for good")
	require.JSONEq(t, `{"events":5,"waiting":0,"repositories":["`+owner.Ref("repo").String()+`"]}`, result)
	for range 2 {
		require.ElementsMatch(t, []string{kept.ID, keptState.ID, both.ID}, c.served())
		require.False(t, c.clonable(owner))
		require.True(t, c.clonable(other))
		require.Empty(t, c.folders(owner), "nor is it kept for a week")
		require.Len(t, c.publish(announcement, state, issue), 3)
		c.restart()
	}
	c.must("unset", "repository", owner.Ref("repo").String())
	require.Empty(t, c.publish(announcement, state))
	require.True(t, c.waits(announcement), "it begins anew")
	_, err := c.do("unset", "repository", owner.Ref("repo").String())
	require.ErrorContains(t, err, "rule not found")

	c.mu.Lock()
	entries := slices.Clone(c.log)
	c.mu.Unlock()
	require.Len(t, entries, 10)
	entries = slices.DeleteFunc(entries, func(e admin.Entry) bool { return e.Outcome == admin.Begun })
	require.Equal(t, "block", entries[0].Command)
	require.Equal(t, []string{"repository", owner.Ref("repo").String(), "copied from elsewhere"}, entries[0].Args)
	require.Equal(t, c.owner.Npub(), entries[0].By)
	require.Empty(t, entries[3].Error)
	require.NotEmpty(t, entries[4].Error)
}

// folders returns the possible folders of a repository.
func (c *commanded) folders(k *relaytest.Key) (out []string) {
	require.NoError(c.t, filepath.WalkDir(c.dir, func(path string, d os.DirEntry, err error) error {
		if err == nil && d.IsDir() && strings.HasSuffix(path, ".git") && (strings.Contains(path, k.Npub()) || strings.Contains(path, k.Hex())) {
			out = append(out, path)
		}
		return nil
	}))
	return out
}

// A blocked author cannot publish or push, and their held events are dropped. The methods are those
// of NIP-86.
func TestAuthorIsBannedAndPurged(t *testing.T) {
	c := newCommanded(t)
	work, commit := c.work()
	owner, mallory := relaytest.NewKey("owner"), relaytest.NewKey("mallory")
	c.serve(work, commit, owner)
	announcement := mallory.Hosted(nostr.Now()-100, "repo", "ws://"+c.addr)
	state := mallory.State(nostr.Now()-90, "repo", map[string]string{"refs/heads/main": commit}, "main")
	spam := mallory.Issue(nostr.Now()-50, owner.Ref("repo"), "spam")
	require.Empty(t, c.publish(announcement, state, spam))
	require.True(t, c.waits(announcement))

	c.must("banpubkey", mallory.Hex(), "spam")
	require.False(t, c.waits(announcement))
	require.False(t, c.waits(state))
	_, err := c.try(work, "push", mallory.CloneURL("ws://"+c.addr, "repo"), "main")
	require.Error(t, err)
	for range 2 {
		require.JSONEq(t, `[{"pubkey":"`+mallory.Hex()+`","reason":"spam"}]`, c.must("listbannedpubkeys"))
		for _, err := range c.publish(announcement, state, mallory.Event(nostr.Now(), 1, "x"), mallory.Event(nostr.Now(), 20_001, "ephemeral")) {
			require.ErrorContains(t, err, "blocked: this server takes nothing by this author")
		}
		require.Len(t, c.served(), 3)
		c.eventually("counted", func() bool {
			return c.server.Sync().Manager().Status().Events.Rejected["blocked: this server takes nothing by this author"] == 3 // ephemeral events are not recorded
		})
		c.restart()
	}
	require.Empty(t, c.publish(mallory.Deletion(nostr.Now(), spam)), "what they delete is deleted")
	c.eventually("deleted", func() bool { return len(c.served()) == 3 })
	require.JSONEq(t, `{"events":0,"waiting":0}`, c.must("purge", "author", mallory.Npub()))

	c.must("allowpubkey", mallory.Hex())
	require.JSONEq(t, `[]`, c.must("listbannedpubkeys"))
	require.Empty(t, c.publish(announcement, state))
	c.git(work, "push", "-q", mallory.CloneURL("ws://"+c.addr, "repo"), "main")
	c.eventually("served", func() bool { return c.clonable(mallory) })
	require.JSONEq(t, `{"events":2,"waiting":0,"repositories":["`+mallory.Ref("repo").String()+`"]}`, c.must("purge", "author", mallory.Npub()))
	require.False(t, c.clonable(mallory))
	require.True(t, c.clonable(owner))
}

// commitOn adds a commit.
func commitOn(c *commanded, work string) string {
	c.git(work, "commit", "-q", "--allow-empty", "-m", "more")
	return c.git(work, "rev-parse", "HEAD")
}

func TestOtherCommands(t *testing.T) {
	c := newCommanded(t)
	work, commit := c.work()
	owner := relaytest.NewKey("owner")
	announcement, _ := c.serve(work, commit, owner)
	ref := owner.Ref("repo").String()
	bootstrap, err := graspsync.ParseRelayURL("wss://127.0.0.2:8443")
	require.NoError(t, err)
	file := func(b ...graspsync.RelayURL) { // SIGHUP
		require.NoError(t, c.server.Control().Reload(t.Context(), "test", reads(rules.File{Bootstrap: b})))
	}
	file(bootstrap)
	c.eventually("followed", func() bool { return len(c.server.Sync().Manager().Status().Relays) == 1 })
	c.must("retry", "wss://127.0.0.2:8443")
	c.must("resync", "relay", "127.0.0.2:8443")
	c.eventually("followed after the batch window", func() bool { _, err := c.do("resync", "repository", ref); return err == nil })
	c.must("refetch", ref)
	require.Contains(t, c.must("maintain", ref), `"packs":1`)
	file()
	c.eventually("left", func() bool { return len(c.server.Sync().Manager().Status().Relays) == 0 })

	pull := relaytest.NewKey("stranger").PullRequest(nostr.Now()-20, owner.Ref("repo"), "copied", commitOn(c, work))
	require.Empty(t, c.publish(pull))
	c.git(work, "push", "-q", owner.CloneURL("ws://"+c.addr, "repo"), "HEAD:refs/nostr/"+pull.ID)
	refs := func() string { return c.git(work, "ls-remote", owner.CloneURL("ws://"+c.addr, "repo")) }
	c.eventually("served", func() bool { return strings.Contains(refs(), pull.ID) && len(c.served()) == 3 })
	require.JSONEq(t, `{"events":1,"waiting":0}`, c.must("remove", "event", pull.ID))
	require.NotContains(t, refs(), pull.ID)
	require.Contains(t, refs(), "refs/heads/main")

	other := relaytest.NewKey("other")
	theirs := other.Issue(nostr.Now()-10, owner.Ref("repo"), "an issue")
	deletion := other.Deletion(nostr.Now(), theirs)
	require.Empty(t, c.publish(theirs, deletion))
	_, err = c.do("purge", "event", deletion.ID)
	require.ErrorContains(t, err, control.ErrStillServed.Error(), "it does not say that it is gone")
	require.JSONEq(t, `{"events":0,"waiting":0}`, c.must("remove", "event", deletion.ID))

	require.Equal(t, "true", c.must("banevent", announcement.ID, "no reason"))
	require.Len(t, c.publish(announcement), 1)
	for _, bad := range [][]string{
		{"block"}, {"block", "author", "bob"}, {"block", "planet", "mars"}, {"retry", "nobody.example"}, {"resync", "x", "y"}, {"refetch", relaytest.NewKey("x").Ref("y").String()},
		{"purge", "relay", "x.example"}, {"remove", "relay", "x.example"}, {"stop"},
		{"maintain", relaytest.NewKey("x").Ref("y").String()},
	} {
		_, err := c.do(bad[0], bad[1:]...)
		require.ErrorIs(t, err, admin.ErrAnswer, "%v", bad)
	}
	require.NotEmpty(t, control.Usage())
}

// A retry fetches git data immediately although a push is expected, but not from a blocked host.
// After the block is lifted, earlier failures of the host do not count.
func TestRefetchAndBlockedGitServer(t *testing.T) {
	c := newCommanded(t)
	_, commit := c.work()
	var asked atomic.Int64
	elsewhere := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		w.WriteHeader(http.StatusNotFound)
	}))
	defer elsewhere.Close()
	there := strings.TrimPrefix(elsewhere.URL, "http://")
	c.stop()
	configure := c.configure
	c.configure = func(relay *khatru.Relay, cfg *grasp.Config) {
		configure(relay, cfg)
		cfg.Egress.Allow = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
	}
	c.start()
	owner := relaytest.NewKey("owner")
	announcement := owner.Hosted(nostr.Now()-100, "repo", "ws://"+c.addr, "ws://"+there)
	state := owner.State(nostr.Now()-90, "repo", map[string]string{"refs/heads/main": commit}, "main")
	c.must("block", "relay", elsewhere.URL, "slow")
	require.Empty(t, c.publish(announcement, state))
	c.must("refetch", owner.Npub()+"/repo")
	time.Sleep(1200 * time.Millisecond)
	require.Zero(t, asked.Load(), "it is blocked")
	c.must("unset", "relay", there)
	c.must("refetch", owner.Npub()+"/repo")
	c.eventually("hunted for", func() bool { return asked.Load() > 0 })
}

// reads returns a reader of f.
func reads(f rules.File) func() (rules.File, error) {
	return func() (rules.File, error) { return f, nil }
}
