package control_test

import (
	"context"
	"errors"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/adapter/admin"
	"github.com/graspsync/graspsync/adapter/control"
	"github.com/graspsync/graspsync/egress"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/rules"
	"github.com/graspsync/graspsync/state"
	relaysync "github.com/graspsync/graspsync/sync"
	"github.com/graspsync/graspsync/sync/relaytest"
)

// run creates a server for the duration of a test in a bubble.
func run(t *testing.T, audit func(admin.Entry), bootstrap ...string) *server {
	t.Helper()
	var relays []graspsync.RelayURL
	for _, u := range bootstrap {
		relays = append(relays, relay(t, u))
	}
	ctx, cancel := context.WithCancel(t.Context())
	s, wait, err := newServer(ctx, audit, relays...)
	require.NoError(t, err)
	t.Cleanup(func() { cancel(); wait() })
	return s
}

func relay(t *testing.T, text string) graspsync.RelayURL {
	t.Helper()
	u, err := graspsync.ParseRelayURL(text)
	require.NoError(t, err)
	return u
}

func parsed(t *testing.T, raw *nostr.Event) graspsync.Event {
	t.Helper()
	ev, err := graspsync.ParseEvent(raw)
	require.NoError(t, err)
	return ev
}

// followed returns the relays that are always followed.
func (s *server) followed() (out []string) {
	time.Sleep(time.Minute) // consequences of a change are batched
	synctest.Wait()
	for _, r := range s.manager.Status().Relays {
		if r.Bootstrap {
			out = append(out, r.URL.String())
		}
	}
	slices.Sort(out)
	return out
}

// purged executes purge or remove.
func (s *server) purged(command string, args ...string) (control.Purged, error) {
	result, err := s.control.Do(context.Background(), "", command, args...)
	purged, _ := result.(control.Purged)
	return purged, err
}

// reads returns a rules file with that text.
func reads(text string) func() (rules.File, error) {
	return func() (rules.File, error) { return rules.ParseFile(strings.NewReader(text)) }
}

func TestConfig(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := run(t, nil)
		_, err := control.New(control.Config{})
		require.ErrorIs(t, err, control.ErrConfig)
		full := control.Config{
			Rules: s.control.Rules(), Sync: s.manager, Store: s.store, Remove: s.remove, Purgatory: s.purgatory, Repositories: inMemory{},
			Lists: func(*nip34.Announcement) bool { return true },
		}
		_, ferr := control.New(full)
		require.NoError(t, ferr)
		for i := range reflect.TypeFor[control.Config]().NumField() {
			name := reflect.TypeFor[control.Config]().Field(i).Name
			optional := slices.Contains([]string{"Bootstrap", "Audit", "Logger"}, name)
			without := full
			reflect.ValueOf(&without).Elem().Field(i).SetZero()
			_, err := control.New(without)
			require.Equal(t, !optional, err != nil, name)
		}
	})
}

// Blocked addresses are denied in addition to the caller's, and bootstrap relays of the rules are
// added to the caller's.
func TestEnforce(t *testing.T) {
	mine, added := relay(t, "wss://mine.example"), relay(t, "wss://added.example")
	ruleSet, err := rules.Open(t.Context(), state.NewMemory(), rules.File{Bootstrap: []graspsync.RelayURL{added}})
	require.NoError(t, err)
	blocked, err := rules.ParseSubject("relay", "blocked.example")
	require.NoError(t, err)
	identity, err := nip34.ParseIdentity("grasp.example")
	require.NoError(t, err)
	at := func(host string) graspsync.HostPort { return relay(t, "wss://"+host).HostPort() }
	owner := relaytest.NewKey("owner")
	announcement, err := nip34.ParseAnnouncement(parsed(t, owner.Hosted(1, "repo", "grasp.example")))
	require.NoError(t, err)

	given := egress.Config{Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}}
	for _, theirs := range []func(graspsync.HostPort) bool{nil, func(h graspsync.HostPort) bool { return h == at("theirs.example") }} {
		given.Deny = theirs
		cfg, network := control.Enforce(ruleSet, relaysync.Config{
			Policy: relaysync.NewGRASPPolicy(identity), Bootstrap: []graspsync.RelayURL{mine},
		}, given)
		require.Equal(t, []graspsync.RelayURL{mine, added}, cfg.Bootstrap)
		require.Equal(t, given.Allow, network.Allow)
		require.True(t, cfg.Policy.Lists(announcement))
		require.False(t, network.Deny(at("blocked.example")))
		require.NoError(t, ruleSet.Set(t.Context(), rules.Rule{Action: rules.Block, Subject: blocked}))
		require.NoError(t, ruleSet.Set(t.Context(), rules.Rule{Action: rules.Block, Subject: rules.OfAuthor(owner.PubKey())}))
		require.True(t, network.Deny(at("blocked.example")))
		require.Equal(t, theirs != nil, network.Deny(at("theirs.example")))
		require.False(t, network.Deny(at("other.example")))
		require.False(t, cfg.Policy.Lists(announcement))
		require.True(t, cfg.Rules.BlocksRelay(relay(t, "wss://blocked.example")))
		require.NoError(t, ruleSet.Unset(t.Context(), blocked))
		require.NoError(t, ruleSet.Unset(t.Context(), rules.OfAuthor(owner.PubKey())))
	}
}

// A rules file replaces the previous one: its blocks disconnect, its relays are followed, and
// removed rules end. Configured relays stay. An unreadable file changes nothing.
func TestReload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := run(t, nil, "wss://mine.example")
		mallory := relaytest.NewKey("mallory")
		announcement := parsed(t, mallory.Hosted(nostr.Now(), "repo", "grasp.example"))
		held, err := s.manager.Judge(t.Context(), announcement)
		require.NoError(t, err)
		require.Equal(t, graspsync.Hold, held.Decision)
		require.Len(t, s.purgatory.Status().Waiting, 1)
		require.Equal(t, []string{"wss://mine.example"}, s.followed())

		c := s.control
		require.NoError(t, c.Reload(t.Context(), "file", reads("block author "+mallory.Npub()+"\nbootstrap wss://more.example\n")))
		require.Empty(t, s.purgatory.Status().Waiting)
		require.Equal(t, []string{"wss://mine.example", "wss://more.example"}, s.followed())
		refused, err := s.manager.Judge(t.Context(), announcement)
		require.NoError(t, err)
		require.Equal(t, graspsync.Reject, refused.Decision)

		wrong := c.Reload(t.Context(), "file", reads("block\n"))
		require.ErrorIs(t, wrong, rules.ErrRule)
		require.ErrorContains(t, wrong, "rules unchanged")
		require.ErrorContains(t, c.Reload(t.Context(), "file", func() (rules.File, error) { return rules.File{}, errors.New("disk") }), "disk")
		require.Len(t, c.Rules().All(), 1)

		require.NoError(t, c.Reload(t.Context(), "file", reads("")))
		require.Equal(t, []string{"wss://mine.example"}, s.followed())
		held, err = s.manager.Judge(t.Context(), announcement)
		require.NoError(t, err)
		require.Equal(t, graspsync.Hold, held.Decision)
	})
}

// Remove counts held events, although the new rule has already dropped them.
func TestRemoveCountsHeldEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := run(t, nil)
		mallory := relaytest.NewKey("mallory")
		_, err := s.manager.Judge(t.Context(), parsed(t, mallory.Hosted(nostr.Now(), "repo", "grasp.example")))
		require.NoError(t, err)
		require.Len(t, s.purgatory.Status().Waiting, 1)
		purged, err := s.purged("remove", "author", mallory.Npub(), "spam")
		require.NoError(t, err)
		require.Equal(t, []int{1, 1}, []int{purged.Events, purged.Waiting})
		require.Empty(t, s.purgatory.Status().Waiting)
	})
}

// A purge of a repository removes the events about it and no others, and never deletions.
func TestPurgeOfARepository(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := run(t, nil)
		bad, good, other := relaytest.NewKey("bad"), relaytest.NewKey("good"), relaytest.NewKey("other")
		now := nostr.Now()
		of := func(k *relaytest.Key) nostr.Tag { return nostr.Tag{"a", k.Ref("repo").String()} }
		issue := other.Issue(now, bad.Ref("repo"), "of one")
		goes := []*nostr.Event{
			bad.Hosted(now, "repo", "grasp.example"), issue, good.Comment(now, issue, "about it"),
			other.Event(now, graspsync.KindIssue, "by q", nostr.Tag{"q", bad.Ref("repo").String()}), good.Event(now, 1111, "by q", nostr.Tag{"q", issue.ID}),
		}
		stays := []*nostr.Event{
			good.Hosted(now, "repo", "grasp.example"), other.Event(now, graspsync.KindIssue, "of both", of(bad), of(good)),
			other.Deletion(now, good.Issue(now, bad.Ref("repo"), "gone before")),
		}
		var all []graspsync.Incoming
		for _, raw := range slices.Concat(goes, stays) {
			all = append(all, graspsync.Incoming{Event: parsed(t, raw)})
		}
		_, err := s.store.Save(t.Context(), all)
		require.NoError(t, err)
		for _, in := range all {
			s.manager.NotifyStored(in.Event)
			s.purgatory.NotifyStored(in.Event)
		}
		synctest.Wait()

		purged, err := s.purged("purge", "repository", bad.Ref("repo").String())
		require.NoError(t, err)
		require.Equal(t, len(goes), purged.Events)
		var left []string
		for ev, err := range s.store.Events(t.Context(), nostr.Filter{}) {
			require.NoError(t, err)
			left = append(left, ev.ID.String())
		}
		var want []string
		for _, raw := range stays {
			want = append(want, raw.ID)
		}
		require.ElementsMatch(t, want, left)
		_, err = s.purged("remove", "relay", "a.example")
		require.ErrorIs(t, err, control.ErrNothingToPurge)
		require.Empty(t, s.control.Rules().All(), "it is not blocked either")
		purged, err = s.purged("purge", "repository", bad.Ref("repo").String())
		require.ErrorIs(t, err, control.ErrNothingToPurge)
		require.Empty(t, purged.Repositories)
		_, err = s.purged("remove", "repository", bad.Ref("repo").String())
		require.ErrorContains(t, err, "it is blocked now, but nothing is stored of repository")
		require.Len(t, s.control.Rules().All(), 1)
	})
}
