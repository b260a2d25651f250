package rules_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nbd-wtf/go-nostr"
	"github.com/nbd-wtf/go-nostr/nip19"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/rules"
	"github.com/graspsync/graspsync/state"
	relaysync "github.com/graspsync/graspsync/sync"
	"github.com/graspsync/graspsync/sync/relaytest"
)

var _ relaysync.Rules = (*rules.RuleSet)(nil)

func subject(t testing.TB, kind, text string) rules.Subject {
	t.Helper()
	s, err := rules.ParseSubject(kind, text)
	require.NoError(t, err)
	return s
}

func event(t testing.TB, ev *nostr.Event) graspsync.Event {
	t.Helper()
	e, err := graspsync.ParseEvent(ev)
	require.NoError(t, err)
	return e
}

func TestParseSubject(t *testing.T) {
	alice := relaytest.NewKey("alice")
	issue := alice.Issue(1, alice.Ref("repo"), "x")
	nprofile, err := nip19.EncodeProfile(alice.Hex(), []string{"wss://relay.example"})
	require.NoError(t, err)
	naddr, err := nip19.EncodeEntity(alice.Hex(), 30617, "repo", nil)
	require.NoError(t, err)
	other, err := nip19.EncodeEntity(alice.Hex(), 30023, "repo", nil)
	require.NoError(t, err)
	note, err := nip19.EncodeNote(issue.ID)
	require.NoError(t, err)
	nevent, err := nip19.EncodeEvent(issue.ID, nil, alice.Hex())
	require.NoError(t, err)
	nsec, err := nip19.EncodePrivateKey(alice.Secret())
	require.NoError(t, err)
	for _, c := range []struct{ kind, text, want string }{
		{"author", alice.Npub(), alice.Hex()}, {"author", alice.Hex(), alice.Hex()}, {"author", nprofile, alice.Hex()},
		{"repository", alice.Ref("repo").String(), alice.Ref("repo").String()},
		{"repository", naddr, alice.Ref("repo").String()},
		{"repository", alice.Npub() + "/repo", alice.Ref("repo").String()},
		{"repository", "https://grasp.example/" + alice.Npub() + "/repo.git", alice.Ref("repo").String()},
		{"repository", alice.Npub() + "/with a space: and more", alice.Ref("with a space: and more").String()},
		{"event", issue.ID, issue.ID}, {"event", note, issue.ID}, {"event", nevent, issue.ID},
		{"relay", "spam.example", "spam.example"}, {"relay", "SPAM.example.", "spam.example"}, {"relay", "spam.example:4443", "spam.example:4443"},
		{"relay", "wss://spam.example/path", "spam.example:443"}, {"relay", "https://spam.example:8443", "spam.example:8443"},
		{"relay", "ws://spam.example", "spam.example:80"}, {"relay", "::1", "::1"}, {"relay", "[2606:4700::1]:443", "[2606:4700::1]:443"},
	} {
		s := subject(t, c.kind, c.text)
		require.Equal(t, rules.Subject{Kind: rules.Kind(c.kind), Name: c.want}, s, c.text)
		require.Equal(t, s, subject(t, c.kind, s.Name), "its one spelling")
	}
	for _, c := range [][2]string{
		{"", "x"}, {"planet", "mars"}, {"author", ""}, {"author", "npub1"}, {"author", nsec}, {"author", naddr}, {"repository", alice.Hex()},
		{"repository", other}, {"repository", alice.Npub()}, {"repository", alice.Npub() + "/"}, {"event", alice.Npub()}, {"event", "note1"},
		{"relay", ""}, {"relay", "a b"}, {"relay", "ftp://x.example"}, {"relay", "user@x.example"}, {"relay", strings.Repeat("x", 10_000)},
		{"relay", "x.example:0x1"},
	} {
		_, err := rules.ParseSubject(c[0], c[1])
		require.ErrorIs(t, err, rules.ErrSubject, "%v", c)
		require.NotContains(t, err.Error(), nsec, "a secret does not belong into a log")
	}
	for _, c := range [][2]string{{"author", alice.Npub()[:60]}, {"repository", alice.Npub()[:60] + "x/repo"}, {"repository", naddr[:50]}, {"event", note[:40]}} {
		_, err := rules.ParseSubject(c[0], c[1])
		require.ErrorContains(t, err, "mistyped", c)
		require.NotContains(t, err.Error(), "hex digits")
	}
}

func FuzzParseFile(f *testing.F) {
	f.Add("block author npub1x # why\nbootstrap wss://x.example\n")
	f.Add("allow relay x.example:1\n\n#\nblock repository 30617:aa:b c")
	f.Fuzz(func(t *testing.T, text string) {
		file, err := rules.ParseFile(strings.NewReader(text))
		if err != nil {
			return
		}
		for _, r := range file.Rules {
			again, err := rules.ParseFile(strings.NewReader(rules.Rule{Action: r.Action, Subject: r.Subject}.String()))
			if strings.Contains(r.Subject.Name, " #") || strings.Contains(r.Subject.Name, "\t#") {
				continue
			}
			if err != nil || len(again.Rules) != 1 || again.Rules[0].Subject != r.Subject {
				t.Fatalf("%q: %v, %v", r, again, err)
			}
		}
	})
}

func TestParseFile(t *testing.T) {
	alice := relaytest.NewKey("alice")
	file, err := rules.ParseFile(strings.NewReader(strings.Join([]string{
		"# who is not welcome", "", "  block author " + alice.Npub() + "   # spam since May", "block repository " + alice.Npub() + "/a b",
		"allow relay good.example:4443", "bootstrap relay.example", "\t#", "block relay c#sharp.example#x",
	}[:7], "\n")))
	require.NoError(t, err)
	require.Equal(t, []rules.Rule{
		{Action: rules.Block, Subject: subject(t, "author", alice.Hex()), Reason: "spam since May", By: "file"},
		{Action: rules.Block, Subject: rules.OfRepository(alice.Ref("a b")), By: "file"},
		{Action: rules.Allow, Subject: subject(t, "relay", "good.example:4443"), By: "file"},
	}, file.Rules)
	require.Len(t, file.Bootstrap, 1)
	require.Equal(t, "wss://relay.example", file.Bootstrap[0].String())
	for text, says := range map[string]string{
		"block author " + alice.Npub() + "\nblok relay x.example": `line 2: not a rule: it begins with "blok": want block, allow or bootstrap`,
		"block": "line 1", "block relay": "line 1", "bootstrap": "bootstrap <URL", "bootstrap ftp://x": "line 1", "block author bob": "line 1",
		strings.Repeat("x", 10_000):                               "too long",
		strings.Repeat("bootstrap x.example\n", rules.MaxRules+1): "too many rules",
	} {
		_, err := rules.ParseFile(strings.NewReader(text))
		require.ErrorContains(t, err, says)
	}
}

// Rules survive a restart, have precedence over the file, and can be removed.
func TestRuleSet(t *testing.T) {
	ctx, store := t.Context(), state.NewMemory()
	alice, bob := relaytest.NewKey("alice"), relaytest.NewKey("bob")
	file, err := rules.ParseFile(strings.NewReader("block author " + bob.Npub() + "\nbootstrap wss://file.example\nblock relay spam.example"))
	require.NoError(t, err)
	open := func() *rules.RuleSet {
		b, err := rules.Open(ctx, store, file)
		require.NoError(t, err)
		return b
	}
	relay := func(s string) graspsync.RelayURL {
		u, err := graspsync.ParseRelayURL(s)
		require.NoError(t, err)
		return u
	}
	b := open()
	require.True(t, b.BlocksRepository(bob.Ref("x")))
	require.False(t, b.BlocksRepository(alice.Ref("x")))
	require.True(t, b.BlocksRelay(relay("wss://spam.example:4443")), "all its ports")
	require.ErrorIs(t, b.Unset(ctx, rules.OfAuthor(bob.PubKey())), rules.ErrNoRule)

	require.NoError(t, b.Set(ctx, rules.Rule{Action: rules.Block, Subject: rules.OfAuthor(alice.PubKey()), Reason: "why\x00not", By: "me"}))
	require.NoError(t, b.Set(ctx, rules.Rule{Action: rules.Allow, Subject: rules.OfRepository(alice.Ref("good"))}))
	require.NoError(t, b.Set(ctx, rules.Rule{Action: rules.Allow, Subject: rules.OfAuthor(bob.PubKey())}))
	require.NoError(t, b.Set(ctx, rules.Rule{Action: rules.Allow, Subject: subject(t, "relay", "spam.example:443")}))
	for _, bad := range []rules.Rule{
		{}, {Action: "ban", Subject: rules.OfAuthor(bob.PubKey())}, {Action: rules.Block}, {Action: rules.Block, Subject: rules.Subject{Kind: "relay", Name: "X.example"}},
	} {
		require.ErrorIs(t, b.Set(ctx, bad), rules.ErrRule)
	}
	for range 2 {
		require.True(t, b.BlocksRepository(alice.Ref("x")))
		require.False(t, b.BlocksRepository(alice.Ref("good")))
		require.False(t, b.BlocksRepository(bob.Ref("x")), "what was set comes before the file")
		require.False(t, b.Deny(graspsync.HostPort{Host: "spam.example", Port: 443}))
		require.True(t, b.Deny(graspsync.HostPort{Host: "spam.example", Port: 80}))
		require.False(t, b.Deny(graspsync.HostPort{Host: "a.spam.example", Port: 80}))
		require.Len(t, b.All(), 5)
		r, ok := b.RepositoryBlock(alice.Ref("x"))
		require.True(t, ok)
		require.Equal(t, "why not", r.Reason)
		require.Equal(t, "me", r.By)
		require.False(t, r.Since.IsZero())
		require.Equal(t, "[wss://configured.example wss://file.example]", fmt.Sprint(b.Bootstrap([]graspsync.RelayURL{relay("configured.example")})))
		b = open()
	}
	require.NoError(t, b.Unset(ctx, rules.OfAuthor(bob.PubKey())))
	require.True(t, b.BlocksRepository(bob.Ref("x")), "the file says so")
	b.SetFile(rules.File{})
	require.False(t, b.BlocksRepository(bob.Ref("x")))
	require.False(t, open().BlocksRepository(alice.Ref("good")))

	_, err = rules.Open(ctx, nil, rules.File{})
	require.Error(t, err)
	err = store.Put(ctx, state.Record{Key: "rules/rule/author x", Value: []byte("{}")})
	require.NoError(t, err)
	_, err = rules.Open(ctx, store, rules.File{})
	require.ErrorIs(t, err, rules.ErrRule, "who is blocked is not forgotten without a word")
}

// A rule was rounded to a time after its first refusal.
func TestRuleTimeIsNotRoundedUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ruleSet, err := rules.Open(t.Context(), state.NewMemory(), rules.File{})
		require.NoError(t, err)
		time.Sleep(700 * time.Millisecond)
		require.NoError(t, ruleSet.Set(t.Context(), rules.Rule{Action: rules.Block, Subject: subject(t, "author", relaytest.NewKey("mallory").Hex())}))
		require.False(t, ruleSet.All()[0].Since.After(time.Now()))
	})
}

func TestBlocks(t *testing.T) {
	b, err := rules.Open(t.Context(), state.NewMemory(), rules.File{})
	require.NoError(t, err)
	alice, bob, carol := relaytest.NewKey("alice"), relaytest.NewKey("bob"), relaytest.NewKey("carol")
	set := func(a rules.Action, s rules.Subject) {
		require.NoError(t, b.Set(t.Context(), rules.Rule{Action: a, Subject: s}))
	}
	both := carol.Event(1, 1621, "", nostr.Tag{"a", alice.Ref("bad").String()}, nostr.Tag{"a", alice.Ref("good").String()})
	one := carol.Issue(1, alice.Ref("bad"), "x")
	ofBob := carol.Issue(1, bob.Ref("any"), "x")
	announcement := bob.Hosted(1, "any", "grasp.example")
	allowed := bob.Hosted(1, "allowed", "grasp.example")
	note := bob.Event(1, 1, "hello")
	deletion := bob.Deletion(1, note)
	saved := bob.Event(2, 1, "but this one")
	set(rules.Block, rules.OfRepository(alice.Ref("bad")))
	set(rules.Block, rules.OfAuthor(bob.PubKey()))
	set(rules.Allow, rules.OfRepository(bob.Ref("allowed")))
	set(rules.Allow, rules.OfEvent(event(t, saved).ID))
	set(rules.Block, rules.OfEvent(event(t, carol.Event(9, 1, "this")).ID))
	for _, c := range []struct {
		ev     *nostr.Event
		reason string
	}{
		{alice.Hosted(1, "bad", "grasp.example"), "repository"}, {alice.State(1, "bad", nil, "main"), "repository"}, {alice.Hosted(1, "good", "grasp.example"), ""},
		{one, "repository"}, {both, ""}, {ofBob, "repository"}, {announcement, "author"}, {allowed, ""}, {bob.State(1, "allowed", nil, "main"), ""},
		{note, "author"}, {deletion, ""}, {bob.Event(1, 62, "", nostr.Tag{"relay", "ALL_RELAYS"}), ""}, {saved, ""}, {carol.Event(9, 1, "this"), "event"},
		{carol.Event(1, 1, "hello"), ""},
	} {
		reason, until := b.Blocks(event(t, c.ev))
		if c.reason == "" {
			require.Empty(t, reason, c.ev)
			require.Empty(t, until)
			continue
		}
		require.True(t, strings.HasPrefix(reason, "blocked: "), reason)
		require.Contains(t, reason, c.reason, c.ev)
		require.Contains(t, until, rules.OnRuleRemoved(rules.OfEvent(event(t, c.ev).ID)))
	}
	_, until := b.Blocks(event(t, announcement))
	require.Contains(t, until, rules.OnRuleRemoved(rules.OfAuthor(bob.PubKey())))
	require.Contains(t, until, rules.OnRuleRemoved(rules.OfRepository(bob.Ref("any"))))
	// A rule for a repository lifts the rule for its owner. One allowed repository of an event is
	// sufficient.
	several := event(t, carol.Event(2, 1621, "", nostr.Tag{"a", bob.Ref("any").String()}, nostr.Tag{"a", alice.Ref("bad").String()}))
	_, until = b.Blocks(several)
	for _, s := range []rules.Subject{
		rules.OfRepository(bob.Ref("any")), rules.OfAuthor(bob.PubKey()), rules.OfRepository(alice.Ref("bad")), rules.OfAuthor(alice.PubKey()),
	} {
		require.Contains(t, until, rules.OnRuleRemoved(s), s)
	}
	set(rules.Allow, rules.OfRepository(bob.Ref("any")))
	reason, _ := b.Blocks(several)
	require.Empty(t, reason)
	reason, _ = b.Blocks(graspsync.Event{})
	require.Empty(t, reason)
}

// A server blocks one author.
func ExampleRuleSet() {
	ctx := context.Background()
	identity, err := nip34.ParseIdentity("grasp.example")
	if err != nil {
		panic(err)
	}
	ruleSet, err := rules.Open(ctx, state.NewMemory(), rules.File{})
	if err != nil {
		panic(err)
	}
	mallory := relaytest.NewKey("mallory")
	subject, err := rules.ParseSubject("author", mallory.Npub())
	if err != nil {
		panic(err)
	}
	if err := ruleSet.Set(ctx, rules.Rule{Action: rules.Block, Subject: subject, Reason: "spam"}); err != nil {
		panic(err)
	}
	policy := relaysync.WithRules(relaysync.NewGRASPPolicy(identity), ruleSet) // sync.Config{Rules: ruleSet} does the same
	announcement, err := graspsync.ParseEvent(mallory.Hosted(1_700_000_000, "repo", "wss://grasp.example"))
	if err != nil {
		panic(err)
	}
	verdict, err := policy.Judge(ctx, announcement, graspsync.Source{}, nil)
	fmt.Println(verdict.Reason, err)
	// Output: blocked: this server takes nothing by this author <nil>
}
