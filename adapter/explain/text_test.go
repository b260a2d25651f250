package explain

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory"
	"github.com/graspsync/graspsync/purgatory/gitserve"
	relaysync "github.com/graspsync/graspsync/sync"
)

var now = time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC)

func told(name string, data any) string { return strings.Join(sentencesOf(now, name, data), "\n") }

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
		said := told("event", view{&Explanation{Event: &c.state}, status})
		for _, want := range c.want {
			require.Contains(t, said, want)
		}
	}
	unknown := &relaysync.EventState{Is: relaysync.IsUnknown, Reason: "disk"}
	unread := told("event", view{&Explanation{Event: unknown}, relaysync.Status{Unread: true, StoreError: "disk"}})
	require.Contains(t, unread, "The store was not read yet (the last attempt failed: disk).")
}

// A repository is never said to be complete while events of it wait, or were given up.
func TestGitData(t *testing.T) {
	state := purgatory.EventState{Class: "state", ID: graspsync.EventID{1}, Is: purgatory.IsWaiting, Deadline: now.Add(time.Hour)}
	soft := purgatory.EventState{Class: "announcement", ID: graspsync.EventID{2}, Deadline: now.Add(time.Hour), Is: purgatory.IsSoft}
	const complete = "all objects that its states and pull requests name are stored"
	for _, c := range []struct {
		state purgatory.DataState
		want  string
	}{
		{purgatory.DataState{}, complete},
		{purgatory.DataState{Waiting: []purgatory.EventState{state}}, "for their author to become a maintainer"},
		{purgatory.DataState{Waiting: []purgatory.EventState{{Class: "announcement"}}}, "when a state of it (kind 30618) arrives"},
		{purgatory.DataState{GivenUp: []purgatory.EventState{{Class: "state"}}}, "was given up"},
		{purgatory.DataState{GivenUp: []purgatory.EventState{{Class: "state"}}, Waiting: []purgatory.EventState{soft}}, "is requested any more"},
		{purgatory.DataState{Missing: []purgatory.MissingObject{{ID: "abc", For: []string{"refs/heads/main"}}}}, "The data has to be pushed to this server."},
		{purgatory.DataState{
			Missing: []purgatory.MissingObject{{ID: "abc", For: []string{"refs/heads/main"}}}, Attempts: 1, Next: now.Add(time.Minute),
			Servers: []purgatory.ServerState{{Asked: now, Wanted: 2, Missing: 1, Skipped: "server_lacks", Until: now.Add(time.Minute)}},
		}, "it lacked 1 of 2 objects; not asked after that: it had none of these objects the last time, and the request is repeated later; not asked again before 12:01:00 UTC."},
	} {
		said := told("git data", &Explanation{Data: &c.state, Repository: &relaysync.RepoFollowState{}})
		require.Contains(t, said, c.want)
		require.Equal(t, c.want == complete, strings.Contains(said, complete), said)
	}
	require.Contains(t, told("held", purgatory.EventState{Is: "refused", Class: "state"}), "The state was refused by the relay")
}

// States of strangers came first and hid the state that is wanted.
func TestMaintainersComeFirst(t *testing.T) {
	member, stranger := graspsync.PubKey{1}, graspsync.PubKey{2}
	said := told("git data", &Explanation{
		Data: &purgatory.DataState{Waiting: []purgatory.EventState{
			{Class: "state", ID: graspsync.EventID{0xbb}, Author: stranger}, {Class: "state", ID: graspsync.EventID{0xaa}, Author: member},
		}},
		Repository: &relaysync.RepoFollowState{Status: &relaysync.RepoStatus{Maintainers: []nip34.Person{{Key: member, Kind: nip34.Root}}}},
	})
	require.Less(t, strings.Index(said, "aa00"), strings.Index(said, "bb00"), said)
}

// Every code of a state has a sentence, and every sentence can be written.
func TestEveryCode(t *testing.T) {
	for key := range answers {
		subject, is, _ := strings.Cut(key, " ")
		x := &Explanation{
			Event:      &relaysync.EventState{Is: relaysync.StateCode(is), Event: &relaysync.EventHead{Kind: 1}},
			Repository: &relaysync.RepoFollowState{Is: relaysync.StateCode(is), Announcement: &relaysync.EventState{}, Waiting: 1},
			Relay:      &relaysync.RelayFollowState{Is: relaysync.StateCode(is), Listed: 2},
			Git:        &gitserve.About{Here: true}, Data: &purgatory.DataState{},
		}
		switch {
		case subject == "event" && answers[key][2] == "" && is != "unknown":
			subject = "held"
			require.Contains(t, told(subject, purgatory.EventState{Is: purgatory.EventCode(is), Data: make([]purgatory.DataState, 1)}), "It ")
			continue
		case is == "followed":
			x.Relay.Status = &relaysync.RelayStatus{Bootstrap: true, Repos: 1, LastError: "x"}
			x.Repository.Status = &relaysync.RepoStatus{Maintainers: make([]nip34.Person, 1), Relays: make([]relaysync.RepoRelay, 1)}
		}
		said := told(subject, view{x, relaysync.Status{}})
		require.NotContains(t, said, "could not be written", key)
		require.NotContains(t, said, "%!", key)
		require.NotEmpty(t, said, key)
	}
}
