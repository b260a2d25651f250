package explain

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory"
	relaysync "github.com/graspsync/graspsync/sync"
)

var now = time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC)

func told(explain func(t *text)) string {
	t := &text{now: now}
	explain(t)
	return strings.Join(t.lines, "\n")
}

// The verdict on an event comes first, then its reason and what happens next.
func TestEvents(t *testing.T) {
	relay, err := graspsync.ParseRelayURL("wss://a.example")
	require.NoError(t, err)
	status := relaysync.Status{Relays: []relaysync.RelayStatus{{URL: relay, Phase: "disconnected", LastError: "refused", NextAttempt: now.Add(time.Minute)}}}
	for _, c := range []struct {
		state relaysync.EventState
		want  []string
	}{
		{relaysync.EventState{Is: relaysync.IsStored}, []string{"is stored and served"}},
		{relaysync.EventState{Is: relaysync.IsWaiting, Detail: "an announcement"}, []string{"waits for an announcement. It is judged again"}},
		{relaysync.EventState{Is: relaysync.IsRejected, Reason: "blocked: announcement", Again: true, Relay: relay, At: now}, []string{
			"was rejected: blocked: announcement.", "It came from wss://a.example.", "That was at 12:00:00 UTC.", "A newer announcement that lists this server is accepted",
		}},
		{relaysync.EventState{Is: relaysync.IsRefused, Detail: "blocked: banned", Source: "direct"}, []string{"refused by this relay: blocked: banned", "It came from a client."}},
		{relaysync.EventState{Is: relaysync.IsRejected}, []string{"there is no record of the reason"}},
		{relaysync.EventState{Is: relaysync.IsUnknown, Since: now.Add(-time.Hour)}, []string{
			"never arrived since the start at 11:00:00 UTC", "1 relay is followed. The requests to 1 of them are not complete:",
			"wss://a.example is disconnected: refused.",
		}},
		{relaysync.EventState{Is: relaysync.IsUnknown}, []string{"because older records were evicted"}},
		{relaysync.EventState{Is: relaysync.IsDeleted}, []string{"is deleted, as its author asked"}},
	} {
		said := told(func(x *text) { x.event(c.state, status) })
		for _, want := range c.want {
			require.Contains(t, said, want)
		}
	}
	unread := told(func(x *text) {
		x.event(relaysync.EventState{Is: relaysync.IsUnknown, Reason: "disk"}, relaysync.Status{Unread: true, StoreError: "disk"})
	})
	require.Contains(t, unread, "The store was not read yet (the last attempt failed: disk).")
}

// A repository is never said to be complete while events of it wait, or were given up.
func TestGitData(t *testing.T) {
	state := purgatory.EntryStatus{Class: "state", ID: "1", Deadline: now.Add(time.Hour)}
	soft := purgatory.EntryStatus{Class: "announcement", ID: "2", Deadline: now.Add(time.Hour), Soft: true}
	const complete = "all objects that its states and pull requests name are stored"
	for _, c := range []struct {
		state purgatory.DataState
		want  string
	}{
		{purgatory.DataState{}, complete},
		{purgatory.DataState{Waiting: []purgatory.EntryStatus{state}}, "for their author to become a maintainer"},
		{purgatory.DataState{Waiting: []purgatory.EntryStatus{{Class: "announcement"}}}, "when a state of it (kind 30618) arrives"},
		{purgatory.DataState{GivenUp: []purgatory.EventState{{Class: "state"}}}, "was given up"},
		{purgatory.DataState{GivenUp: []purgatory.EventState{{Class: "state"}}, Waiting: []purgatory.EntryStatus{soft}}, "is requested any more"},
		{purgatory.DataState{Missing: []purgatory.MissingObject{{ID: "abc", For: []string{"refs/heads/main"}}}}, "The data has to be pushed to this server."},
		{purgatory.DataState{
			Missing: []purgatory.MissingObject{{ID: "abc", For: []string{"refs/heads/main"}}}, Attempts: 1, Next: now.Add(time.Minute),
			Servers: []purgatory.ServerState{{Asked: now, Wanted: 2, Missing: 1, Skipped: "server_lacks", Until: now.Add(time.Minute)}},
		}, "it had 1 of 2 objects; not asked after that: it had none of these objects the last time, and the request is repeated later; not asked again before 12:01:00 UTC."},
	} {
		said := told(func(x *text) { x.repoData(c.state, nil) })
		require.Contains(t, said, c.want)
		require.Equal(t, c.want == complete, strings.Contains(said, complete), said)
	}
	require.Empty(t, told(func(x *text) { x.held(purgatory.EventState{Is: purgatory.IsUnknown}) }))
	require.Contains(t, told(func(x *text) { x.held(purgatory.EventState{Is: "refused", Class: "state"}) }), "The state was refused by the relay")
}

// States of strangers came first and hid the state that is wanted.
func TestMaintainersComeFirst(t *testing.T) {
	member, stranger := graspsync.PubKey{1}, graspsync.PubKey{2}
	said := told(func(x *text) {
		x.repoData(purgatory.DataState{Waiting: []purgatory.EntryStatus{
			{Class: "state", ID: "theirs", Author: stranger.String()}, {Class: "state", ID: "ours", Author: member.String()},
		}}, &relaysync.RepoStatus{Maintainers: []nip34.Person{{Key: member, Kind: nip34.Root}}})
	})
	require.Less(t, strings.Index(said, "ours"), strings.Index(said, "theirs"), said)
}
