package graspadapter_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"
	gonostr "github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/adapter/admin"
	"github.com/graspsync/graspsync/adapter/gate"
	graspadapter "github.com/graspsync/graspsync/adapter/nostrlib/grasp"
	khatruadapter "github.com/graspsync/graspsync/adapter/nostrlib/khatru"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/state"
	"github.com/graspsync/graspsync/sync/relaytest"
)

// commanded is a server with an owner who sends commands over HTTP.
type commanded struct {
	*place
	listener net.Listener
	open     func() (*graspadapter.Server, error)
	server   *graspadapter.Server
	owner    *relaytest.Key
	stop     func()
}

// newCommanded starts a server with open1.
func newCommanded(t *testing.T, open1 func(p *place) (*graspadapter.Server, error)) *commanded {
	t.Helper()
	p, listener := open(t)
	c := &commanded{place: p, listener: listener, owner: relaytest.NewKey("admin")}
	c.open = func() (*graspadapter.Server, error) { return open1(p) }
	c.start()
	t.Cleanup(func() { c.stop() })
	return c
}

func (c *commanded) start() {
	c.t.Helper()
	var err error
	c.server, err = c.open()
	require.NoError(c.t, err)
	identity, err := nip34.ParseIdentity(c.addr)
	require.NoError(c.t, err)
	handler, err := admin.New(c.server.Control(), admin.Config{Owners: []graspsync.PubKey{c.owner.PubKey()}, Identity: identity, State: state.NewMemory()})
	require.NoError(c.t, err)
	door := gate.New(c.relay, gate.Config{})
	c.server.Sync().Pace(door.Wait)
	ctx, cancel := context.WithCancel(c.t.Context())
	ended := make(chan error, 1)
	go func() { ended <- gate.Serve(ctx, c.listener, handler.Before(door), c.server.Run) }()
	<-c.server.Sync().Manager().Ready()
	c.stop = func() {
		cancel()
		require.NoError(c.t, <-ended)
		door.Close()
		require.NoError(c.t, c.server.Close())
	}
}

// restart ends the server and starts it like a new process.
func (c *commanded) restart() {
	c.t.Helper()
	c.stop()
	c.swap(again(c.t, c.place))
	var err error
	c.listener, err = new(net.ListenConfig).Listen(c.t.Context(), "tcp", c.addr)
	require.NoError(c.t, err)
	c.start()
}

// do executes a command of the owner. The server ignores commands that were signed in the second of
// its start.
func (c *commanded) do(method string, params ...string) (result string, err error) {
	c.t.Helper()
	for {
		raw, err := admin.Client{URL: "http://" + c.addr, Key: c.owner.Secret()}.Do(c.t.Context(), method, params...)
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

// say sends a message to the relay and returns the answers up to the first with label until.
func (c *commanded) say(until string, message ...any) (answers [][]json.RawMessage) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), soon)
	defer cancel()
	conn, _, err := websocket.Dial(ctx, "ws://"+c.addr, nil)
	require.NoError(c.t, err)
	defer func() { _ = conn.CloseNow() }()
	conn.SetReadLimit(1 << 20)
	data, err := json.Marshal(message)
	require.NoError(c.t, err)
	require.NoError(c.t, conn.Write(ctx, websocket.MessageText, data))
	for {
		_, data, err := conn.Read(ctx)
		require.NoError(c.t, err)
		var answer []json.RawMessage
		require.NoError(c.t, json.Unmarshal(data, &answer))
		answers = append(answers, answer)
		if string(answer[0]) == strconv.Quote(until) {
			return answers
		}
	}
}

// submit publishes an event as a client. The error is the refusal.
func (c *commanded) submit(e *gonostr.Event) error {
	c.t.Helper()
	answers := c.say("OK", "EVENT", e)
	ok := answers[len(answers)-1]
	if string(ok[2]) == "true" {
		return nil
	}
	return errors.New(string(ok[3]))
}

// asked returns the ids that a client receives.
func (c *commanded) asked(f gonostr.Filter) (ids []string) {
	c.t.Helper()
	for _, answer := range c.say("EOSE", "REQ", "x", f) {
		if string(answer[0]) == `"EVENT"` {
			var e gonostr.Event
			require.NoError(c.t, json.Unmarshal(answer[2], &e))
			ids = append(ids, e.ID)
		}
	}
	return ids
}

// serves reports whether a repository can be cloned and whether it has a page.
func (c *commanded) serves(k *relaytest.Key) (data, page bool) {
	c.t.Helper()
	_, err := try(c.t, c.t.TempDir(), "ls-remote", "--exit-code", c.url(k, "repo"))
	answer, status := get(c.t, c.url(k, "repo"), "text/html")
	require.NotEmpty(c.t, answer)
	return err == nil, status == http.StatusOK
}

func get(t *testing.T, url, accept string) (body string, status int) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	require.NoError(t, err)
	req.Header.Set("Accept", accept)
	answer, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	text, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	require.NoError(t, answer.Body.Close())
	return string(text), answer.StatusCode
}

// push announces a repository and pushes to it.
func (c *commanded) push(k *relaytest.Key) (announcement *gonostr.Event) {
	c.t.Helper()
	dir, commit := work(c.t)
	announcement = k.Hosted(gonostr.Now()-100, "repo", "ws://"+c.addr)
	require.NoError(c.t, c.submit(announcement))
	require.NoError(c.t, c.submit(k.State(gonostr.Now()-90, "repo", map[string]string{"refs/heads/main": commit}, "main")))
	git(c.t, dir, "push", "-q", c.url(k, "repo"), "main")
	require.Eventually(c.t, func() bool { data, page := c.serves(k); return data && page }, soon, often)
	return announcement
}

// An owner blocks an author across a restart, removes their repository with its git data, and lifts
// the block. The audit log has entries.
func TestOwnerCommands(t *testing.T) {
	var mu sync.Mutex
	var entries []admin.Entry // guarded by mu
	kept := state.NewMemory()
	c := newCommanded(t, func(p *place) (*graspadapter.Server, error) {
		identity, err := nip34.ParseIdentity(p.addr)
		require.NoError(t, err)
		cfg := graspadapter.Config{State: kept, Audit: func(e admin.Entry) {
			mu.Lock()
			defer mu.Unlock()
			entries = append(entries, e)
		}}
		cfg.Sync.AllowPlaintext = true
		return graspadapter.New(t.Context(), p.grasp, p.db, identity, cfg)
	})
	alice, mallory := relaytest.NewKey("alice"), relaytest.NewKey("mallory")
	c.push(alice)
	announcement := c.push(mallory)
	issue := mallory.Issue(gonostr.Now()-50, alice.Ref("repo"), "an issue")
	slander := mallory.Event(gonostr.Now()-40, gonostr.KindDeletion, "slander", gonostr.Tag{"e", issue.ID})
	require.NoError(t, c.submit(issue))
	require.NoError(t, c.submit(slander))
	mistake := alice.Issue(gonostr.Now()-70, alice.Ref("repo"), "a mistake")
	require.NoError(t, c.submit(mistake))
	fine := alice.Event(gonostr.Now()-60, gonostr.KindDeletion, "a mistake", gonostr.Tag{"e", mistake.ID})
	require.NoError(t, c.submit(fine))
	deletions := gonostr.Filter{Kinds: []int{gonostr.KindDeletion}}
	require.Equal(t, []string{slander.ID, fine.ID}, c.asked(deletions))

	c.must("block", "author", mallory.Npub(), "spam")
	require.Eventually(t, func() bool { data, page := c.serves(mallory); return !data && !page }, soon, often, "out of service")
	for range 2 {
		spam := mallory.Issue(gonostr.Now(), alice.Ref("repo"), "spam")
		require.ErrorContains(t, c.submit(spam), "blocked: this server takes nothing by this author")
		for id, is := range map[string]string{spam.ID: "blocked", slander.ID: "withheld", c.url(mallory, "repo"): "blocked"} {
			x, err := c.server.Explain(t.Context(), id)
			require.NoError(t, err)
			require.Equal(t, is, x.Is, x)
			require.Equal(t, "author "+mallory.Npub(), x.Blocked.Rule)
			require.Contains(t, x.String(), "unset author "+mallory.Npub(), "what lifts it")
		}
		require.Equal(t, []string{fine.ID}, c.asked(deletions), "it is withheld")
		one := deletions
		one.Limit = 1
		require.Equal(t, []string{fine.ID}, c.asked(one))
		require.Error(t, c.submit(issue), "and counts")
		require.Len(t, c.asked(gonostr.Filter{Authors: []string{mallory.Hex()}}), 2, "what is here is not purged")
		require.Contains(t, c.must("rules"), "spam")
		data, page := c.serves(alice)
		require.True(t, data && page)
		c.restart()
	}
	folder := filepath.Join(c.dir, "git", mallory.Hex())
	ref := mallory.Ref("repo").String()
	require.JSONEq(t, `{"events":2,"waiting":0,"repositories":["`+ref+`"]}`, c.must("purge", "repository", ref))
	require.NoDirExists(t, filepath.Join(folder, "repo"))
	left, err := filepath.Glob(filepath.Join(c.dir, "git", "departed", "*"+mallory.Hex()+"*"))
	require.NoError(t, err)
	require.Empty(t, left, "nor is it kept for a week")
	require.Empty(t, c.asked(gonostr.Filter{Authors: []string{mallory.Hex()}}))
	require.Error(t, c.submit(announcement))

	c.must("unset", "author", mallory.Npub())
	require.Equal(t, []string{slander.ID, fine.ID}, c.asked(deletions))
	require.NoError(t, c.submit(announcement))
	require.NotEmpty(t, c.server.Purgatory().Status().Waiting, "it begins anew")
	_, err = c.do("unset", "author", mallory.Npub())
	require.ErrorContains(t, err, "rule not found")

	mu.Lock()
	defer mu.Unlock()
	var said []string
	for _, e := range entries {
		require.Equal(t, c.owner.Npub(), e.By)
		said = append(said, e.Command+" "+e.Outcome)
	}
	require.Equal(t, []string{
		"block begun", "block done", "purge begun", "purge done", "unset begun", "unset done", "unset begun", "unset failed",
	}, said)
	require.Equal(t, []string{"author", mallory.Hex(), "spam"}, entries[1].Args)
}

// A server whose OverwriteRelayInformation hook was replaced does not run.
func TestInformationThatWasReplaced(t *testing.T) {
	p, listener := open(t)
	require.NoError(t, listener.Close())
	identity, err := nip34.ParseIdentity(p.addr)
	require.NoError(t, err)
	server, err := graspadapter.New(t.Context(), p.grasp, p.db, identity, graspadapter.Config{State: state.NewMemory()})
	require.NoError(t, err)
	p.relay.OverwriteRelayInformation = nil
	require.ErrorIs(t, server.Run(t.Context()), khatruadapter.ErrReplaced)
	require.NoError(t, server.Close())
}
