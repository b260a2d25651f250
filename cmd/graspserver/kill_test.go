//go:build !race

package main

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	eventbadger "github.com/fiatjaf/eventstore/badger"
	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/sync/relaytest"
	"github.com/graspsync/graspsync/sync/relaytest/relayserver"
	"github.com/graspsync/graspsync/sync/wire"
)

// process is a server in a process of its own.
type process struct {
	*exec.Cmd
	output bytes.Buffer
	ended  chan error
}

// launch starts the server on the data folder and returns when it listens.
func launch(t *testing.T, binary, addr, data string, bootstrap ...string) *process {
	t.Helper()
	p := spawn(t, binary, addr, data, bootstrap...)
	require.Eventually(t, func() bool {
		c, err := net.DialTimeout("tcp", addr, time.Second)
		if err == nil {
			_ = c.Close()
		}
		return err == nil
	}, time.Minute, 5*time.Millisecond, "it does not start")
	return p
}

func spawn(t *testing.T, binary, addr, data string, bootstrap ...string) *process {
	t.Helper()
	args := []string{"-listen", addr, "-admin-listen", "off", "-data", data, "-allow-net", "127.0.0.0/8", "-allow-plaintext", "-batch-window", "50ms", "-base-backoff", "100ms", "-restart-pause", "50ms"}
	for _, u := range bootstrap {
		args = append(args, "-bootstrap", u)
	}
	p := &process{Cmd: exec.CommandContext(t.Context(), binary, args...), ended: make(chan error, 1)}
	p.Stdout, p.Stderr = &p.output, &p.output
	require.NoError(t, p.Start())
	go func() { p.ended <- p.Wait() }()
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("%s", p.output.Bytes()[max(0, p.output.Len()-4000):])
		}
	})
	return p
}

// await returns how the process ended, which must be soon.
func (p *process) await(t *testing.T, within time.Duration) error {
	t.Helper()
	select {
	case err := <-p.ended:
		return err
	case <-time.After(within):
		_ = p.Process.Kill()
		<-p.ended
		t.Fatal("it did not end")
		return nil
	}
}

// peers are relays that send slowly enough for a process to be killed while they do.
type peers struct {
	owner, stranger *relaytest.Key
	relays          []*relaytest.Relay
	urls            []string
	events          map[string]*nostr.Event // what must arrive
	announcement    *nostr.Event
	at              nostr.Timestamp
}

func newPeers(t *testing.T, addr string) *peers {
	p := &peers{
		owner: relaytest.NewKey("owner"), stranger: relaytest.NewKey("stranger"),
		events: make(map[string]*nostr.Event), at: nostr.Now() - 7200,
	}
	for i := range 3 {
		b := relaytest.Behavior{MessageDelay: 4 * time.Millisecond, Cap: 100}
		if i > 0 {
			b.Negentropy = relaytest.NegNotice
		}
		r := relaytest.New(fmt.Sprintf("wss://r%d.example", i), b)
		server, err := relayserver.Start(r)
		require.NoError(t, err)
		t.Cleanup(server.Close)
		p.relays, p.urls = append(p.relays, r), append(p.urls, server.URL().String())
	}
	old := p.owner.Hosted(p.at-100, "repo", "ws://"+addr, p.urls[0])
	p.relays[1].Publish(old)
	announcement := p.owner.Hosted(p.at-50, "repo", append([]string{"ws://" + addr}, p.urls...)...)
	p.events[announcement.ID], p.announcement = announcement, announcement
	p.relays[0].Publish(announcement, p.stranger.Hosted(p.at, "foreign", "ws://elsewhere.example"))
	p.publish(150)
	return p
}

// seed puts the announcement into a server's database: otherwise it would wait for its
// git data.
func (p *peers) seed(t *testing.T, data string) {
	t.Helper()
	db := &eventbadger.BadgerBackend{Path: filepath.Join(data, "events")}
	require.NoError(t, db.Init())
	defer db.Close()
	require.NoError(t, db.SaveEvent(t.Context(), p.announcement))
}

// publish has the relays get n more issues and what belongs to them.
func (p *peers) publish(n int) {
	for i := range n {
		p.at++
		r := p.relays[i%len(p.relays)]
		issue := p.owner.Issue(p.at, p.owner.Ref("repo"), fmt.Sprint(len(p.events)))
		comment := p.stranger.Comment(p.at, issue, "yes")
		gone := p.stranger.Comment(p.at, issue, "no")
		deletion := p.stranger.Deletion(p.at+1, gone, issue) // the issue is not its author's
		p.events[issue.ID], p.events[comment.ID] = issue, comment
		r.Publish(issue, comment, p.stranger.Event(p.at, 1, fmt.Sprint("foreign ", i)))
		if i%10 == 0 {
			p.relays[(i+1)%len(p.relays)].Publish(gone, deletion)
		}
	}
}

// stored asks a server for ids, or for what authors wrote of kinds.
func stored(t *testing.T, addr string, fs ...nostr.Filter) map[string]*nostr.Event {
	t.Helper()
	found := make(map[string]*nostr.Event)
	c := dial(t, addr)
	defer c.Close()
	for i, f := range fs {
		require.NoError(t, c.Send(t.Context(), wire.Request{Type: wire.TypeReq, Sub: fmt.Sprint("q", i), Filters: []nostr.Filter{f}}))
		for done := false; !done; {
			m, err := c.Receive(t.Context())
			require.NoError(t, err)
			switch m.Type {
			case wire.TypeEvent:
				found[m.Event.ID.String()] = m.Event.Event
			case wire.TypeEOSE, wire.TypeClosed:
				done = true
			}
		}
	}
	return found
}

func (p *peers) missing(t *testing.T, addr string) []string {
	t.Helper()
	var fs []nostr.Filter
	for ids := range slices.Chunk(slices.Sorted(maps.Keys(p.events)), 100) {
		fs = append(fs, nostr.Filter{IDs: ids})
	}
	found := stored(t, addr, fs...)
	var out []string
	for id := range p.events {
		if found[id] == nil {
			out = append(out, id)
		}
	}
	return out
}

// A server that is killed again and again in the midst of a sync has everything in
// the end, and nothing else.
func TestKilledInMidSync(t *testing.T) {
	kills := 10
	if testing.Short() {
		kills = 3
	}
	binary, addr, data := buildServer(t), freeAddr(t), filepath.Join(t.TempDir(), "data")
	p := newPeers(t, addr)
	p.seed(t, data)
	began := time.Now()
	for i := range kills {
		server := launch(t, binary, addr, data, p.urls[0])
		// Longer and longer, so that some of it comes to its end.
		time.Sleep(time.Duration(100+rand.IntN(200+150*i)) * time.Millisecond)
		require.NoError(t, server.Process.Kill())
		require.Error(t, server.await(t, 30*time.Second))
		p.publish(10)
	}
	server := launch(t, binary, addr, data, p.urls[0])
	here := len(p.events) - len(p.missing(t, addr))
	restarted := time.Now()
	// A dial during which the process was killed counts as one that failed: the relay
	// is not dialed again at once.
	require.Eventually(t, func() bool { return len(p.missing(t, addr)) == 0 }, 3*time.Minute, 250*time.Millisecond, "something is missing")
	t.Logf("%d kills in %v; of %d events %d were here at the last start, all %v later",
		kills, restarted.Sub(began), len(p.events), here, time.Since(restarted))

	foreign := stored(t, addr, nostr.Filter{Kinds: []int{1}, Limit: 500},
		nostr.Filter{Kinds: []int{30617}, Authors: []string{p.stranger.Hex()}, Limit: 500})
	require.Empty(t, foreign)
	require.Len(t, stored(t, addr, nostr.Filter{Kinds: []int{30617}, Authors: []string{p.owner.Hex()}}), 1)

	// A second one on the same data does no harm: it refuses.
	second := spawn(t, binary, freeAddr(t), data)
	require.Error(t, second.await(t, 20*time.Second))
	require.Empty(t, p.missing(t, addr))

	require.NoError(t, server.Process.Signal(syscall.SIGTERM))
	require.NoError(t, server.await(t, 30*time.Second))
	server = launch(t, binary, addr, data, p.urls[0])
	require.Empty(t, p.missing(t, addr), "what was there before is there at once")
	require.NoError(t, server.Process.Kill())
	require.Error(t, server.await(t, 30*time.Second))
}

// SIGTERM in the midst of a start or a sync, with relays that hang, ends it soon and without an error. In the midst
// of a start it was one: "git can't be used: asking for its version: terminated signal received".
func TestTerminatedInMidSync(t *testing.T) {
	binary := buildServer(t)
	for _, after := range []time.Duration{0, 5 * time.Millisecond, 50 * time.Millisecond, 300 * time.Millisecond, 1500 * time.Millisecond} {
		addr, data := freeAddr(t), filepath.Join(t.TempDir(), "data")
		p := newPeers(t, addr)
		p.seed(t, data)
		p.relays[1].Update(func(b *relaytest.Behavior) { b.NoAnswer = true })
		p.relays[2].Update(func(b *relaytest.Behavior) { b.NeverEOSE, b.MessageDelay = true, time.Second })
		server := launch(t, binary, addr, data, p.urls[0])
		time.Sleep(after)
		began := time.Now()
		require.NoError(t, server.Process.Signal(syscall.SIGTERM))
		require.NoError(t, server.await(t, 30*time.Second))
		require.Contains(t, server.output.String(), "graspserver ended", "the last line says that all is well")
		t.Logf("after %v: ended in %v", after, time.Since(began))
	}
}
