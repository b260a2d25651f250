package sync

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/eventtest"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/sync/internal/pending"
)

// policyView is the View of an index and a list of events. It counts the queries that read the Store.
type policyView struct {
	storeView
	events *listStore
	reads  int
}

func newPolicyView() *policyView {
	store := &listStore{}
	return &policyView{storeView: newView(store), events: store}
}

func (v *policyView) Event(ctx context.Context, id graspsync.EventID) (graspsync.Event, error) {
	v.reads++
	return v.storeView.Event(ctx, id)
}

func (v *policyView) Events(ctx context.Context, ids []graspsync.EventID) (map[graspsync.EventID]graspsync.Event, error) {
	v.reads++
	return v.storeView.Events(ctx, ids)
}

func (v *policyView) Addressed(ctx context.Context, at []graspsync.Address) (bool, error) {
	v.reads++
	return v.storeView.Addressed(ctx, at)
}

func (v *policyView) Near(ctx context.Context, ids []graspsync.EventID, at []graspsync.Address) ([]graspsync.Event, error) {
	v.reads++
	return v.storeView.Near(ctx, ids, at)
}

// announce stores an accepted announcement.
func (v *policyView) announce(owner int, identifier string, maintainers ...int) {
	list := nostr.Tag{"maintainers"}
	for _, m := range maintainers {
		list = append(list, testKey(m).String())
	}
	v.Stored(eventtest.Of(testEvent(300+owner, graspsync.KindAnnouncement, owner, 1, nostr.Tag{"d", identifier}, list)))
}

func (v *policyView) save(events ...*nostr.Event) {
	v.events.events = append(v.events.events, events...)
}

// graspView is the usual view. Repository 1/x has maintainer 2, whose own announcement lists 3, and
// 3 lists a member in return. Other content: repository 4/a:b, root event 50, comment 60 by 6,
// deletion 61 by 6, announcement 62 of 1/x. Event 69 mentions 70.
func graspView() *policyView {
	v := graspViewWithout3()
	v.announce(3, "x", 2)
	return v
}

func graspViewWithout3() *policyView {
	v := newPolicyView()
	v.announce(1, "x", 2)
	v.announce(2, "x", 3, 1)
	v.announce(4, "a:b")
	root := testEvent(50, 1621, 5, 1, tagRepo(testRepo(1, "x")))
	v.Stored(eventtest.Of(root))
	v.save(root, testEvent(60, 1111, 6, 1),
		testEvent(61, graspsync.KindDeletion, 6, 1), testAnnouncement(62, 1, "x", 1, ""),
		testAnnouncement(63, 8, "foreign", 1, ""), testEvent(64, 30617, 1, 1),
		testEvent(69, 1111, 6, 1, tagRepo(testRepo(1, "x")), tagEvent(70)))
	return v
}

const graspHost = "grasp.example"

func graspPolicy(t testing.TB, specs ...string) *GRASPPolicy {
	t.Helper()
	us, err := nip34.ParseIdentity(specs...)
	require.NoError(t, err)
	return NewGRASPPolicy(us)
}

func coordinates(kind, author int, identifier string) graspsync.Address {
	return graspsync.Address{Kind: kind, Author: testKey(author), Identifier: identifier}
}

// judge judges an event from a relay and checks the properties of every verdict.
func judge(t *testing.T, ev *nostr.Event, v View) graspsync.Verdict {
	t.Helper()
	verdict, err := graspPolicy(t, graspHost).Judge(t.Context(), eventtest.Of(ev), graspsync.Source{Kind: graspsync.CatchUp}, v)
	require.NoError(t, err)
	require.Equal(t, verdict.Decision == graspsync.Reject, verdict.Reason != "")
	require.NotEqual(t, graspsync.Accept == verdict.Decision, verdict.Decision == graspsync.Depend || verdict.Decision == graspsync.Reject)
	require.False(t, verdict.Decision == graspsync.Depend && len(verdict.DependsOn) == 0)
	require.LessOrEqual(t, len(verdict.DependsOn), pending.MaxDependencies)
	return verdict
}

func stateOf(author int, identifier string, tags ...nostr.Tag) *nostr.Event {
	return testEvent(90, graspsync.KindState, author, 1, append(nostr.Tags{{"d", identifier}}, tags...)...)
}

// related returns an event of a kind without a special rule.
func related(tags ...nostr.Tag) *nostr.Event { return testEvent(91, 1111, 9, 1, tags...) }

func deletion(author int, tags ...nostr.Tag) *nostr.Event {
	return testEvent(92, graspsync.KindDeletion, author, 1, tags...)
}

func vanish(author int, relay string) *nostr.Event {
	return testEvent(93, graspsync.KindVanish, author, 1, nostr.Tag{"relay", relay})
}

func TestGRASPPolicy(t *testing.T) {
	x, stateX := testRepo(1, "x"), nostr.Tag{"a", testRepo(1, "x").Address(graspsync.KindState)}
	stranger := testRepo(9, "x")
	for name, c := range map[string]struct {
		ev   *nostr.Event
		want graspsync.Decision
		on   []graspsync.Dependency
	}{
		"state by the owner":                 {stateOf(1, "x"), graspsync.Accept, nil},
		"state by a maintainer":              {stateOf(2, "x"), graspsync.Accept, nil},
		"state by a maintainer's maintainer": {stateOf(3, "x"), graspsync.Accept, nil},
		"state with a colon":                 {stateOf(4, "a:b"), graspsync.Accept, nil},
		"state by a stranger":                {stateOf(9, "x"), graspsync.Depend, []graspsync.Dependency{graspsync.OnBecomesMaintainer("x", testKey(9))}},
		"state by another's maintainer":      {stateOf(2, "a:b"), graspsync.Depend, []graspsync.Dependency{graspsync.OnBecomesMaintainer("a:b", testKey(2))}},
		"state with the identifier cut":      {stateOf(4, "a"), graspsync.Depend, []graspsync.Dependency{graspsync.OnBecomesMaintainer("a", testKey(4))}},
		"state that tags a repository":       {stateOf(9, "x", tagRepo(x), tagEvent(50)), graspsync.Depend, []graspsync.Dependency{graspsync.OnBecomesMaintainer("x", testKey(9))}},
		"state without identifier":           {testEvent(90, 30618, 1, 1), graspsync.Reject, nil},
		"state with a bare d":                {testEvent(90, 30618, 1, 1, nostr.Tag{"d"}), graspsync.Reject, nil},

		"patch of a repository":                 {testEvent(91, 1617, 9, 1, tagRepo(x)), graspsync.Accept, nil},
		"pull request of a repository":          {testEvent(91, 1618, 9, 1, tagRepo(x)), graspsync.Accept, nil},
		"issue of a repository":                 {testEvent(91, 1621, 9, 1, tagRepo(x)), graspsync.Accept, nil},
		"issue of an unknown repository":        {testEvent(91, 1621, 9, 1, tagRepo(stranger)), graspsync.Depend, []graspsync.Dependency{graspsync.OnRepo(stranger)}},
		"issue of both":                         {testEvent(91, 1621, 9, 1, tagRepo(stranger), tagRepo(x)), graspsync.Accept, nil},
		"issue of none":                         {testEvent(91, 1621, 9, 1), graspsync.Reject, nil},
		"update of a pull request":              {testEvent(91, 1619, 9, 1, nostr.Tag{"E", testID(50).String()}), graspsync.Accept, nil},
		"update of an unknown one":              {testEvent(91, 1619, 9, 1, nostr.Tag{"E", testID(51).String()}), graspsync.Depend, []graspsync.Dependency{graspsync.OnEvent(testID(51))}},
		"A tag":                                 {related(nostr.Tag{"A", x.String()}), graspsync.Accept, nil},
		"q tag of a repository":                 {related(nostr.Tag{"q", x.String()}), graspsync.Accept, nil},
		"tag of its state":                      {related(stateX), graspsync.Accept, nil},
		"r tag":                                 {related(nostr.Tag{"r", x.String()}), graspsync.Reject, nil},
		"e tag":                                 {related(tagEvent(50)), graspsync.Accept, nil},
		"E tag":                                 {related(nostr.Tag{"E", testID(50).String()}), graspsync.Accept, nil},
		"q tag of an issue":                     {related(nostr.Tag{"q", testID(50).String()}), graspsync.Accept, nil},
		"e tag of an announcement":              {related(tagEvent(62)), graspsync.Accept, nil},
		"e tag of a foreign announcement":       {related(tagEvent(63)), graspsync.Depend, []graspsync.Dependency{graspsync.OnRepo(testRepo(8, "foreign"))}},
		"e tag of a broken announcement":        {related(tagEvent(64)), graspsync.Reject, nil},
		"e tag of a comment":                    {related(tagEvent(60)), graspsync.Reject, nil},
		"unknown repository and event":          {related(tagEvent(51), tagRepo(stranger), tagEvent(51)), graspsync.Depend, []graspsync.Dependency{graspsync.OnRepo(stranger), graspsync.OnEvent(testID(51))}},
		"announcement and state, unknown":       {related(tagRepo(stranger), nostr.Tag{"a", stranger.Address(30618)}), graspsync.Depend, []graspsync.Dependency{graspsync.OnRepo(stranger)}},
		"known comment, unknown event":          {related(tagEvent(60), tagEvent(51)), graspsync.Depend, []graspsync.Dependency{graspsync.OnEvent(testID(51))}},
		"a late tag counts":                     {related(tagEvent(51), tagEvent(60), nostr.Tag{"p", "x"}, tagEvent(50)), graspsync.Accept, nil},
		"an unknown article's address":          {related(nostr.Tag{"a", "30023:" + testKey(1).String() + ":x"}), graspsync.Depend, []graspsync.Dependency{graspsync.OnVersion(coordinates(30023, 1, "x"))}},
		"an address of no such kind":            {related(nostr.Tag{"a", "1:" + testKey(1).String() + ":x"}), graspsync.Reject, nil},
		"nothing":                               {related(), graspsync.Reject, nil},
		"malformed tags":                        {related(nostr.Tag{}, nil, nostr.Tag{"a"}, nostr.Tag{"e", "x"}, nostr.Tag{"q", ":::"}), graspsync.Reject, nil},
		"mentioned":                             {testEvent(70, 1, 9, 1), graspsync.Accept, nil},
		"mentioned though it could wait":        {testEvent(70, 1, 9, 1, tagEvent(51)), graspsync.Accept, nil},
		"mentioned, but a foreign announcement": {testAnnouncement(70, 9, "x", 1, ""), graspsync.Reject, nil},
		"mentioned, but a stranger's state":     {testEvent(70, 30618, 9, 1, nostr.Tag{"d", "x"}), graspsync.Depend, []graspsync.Dependency{graspsync.OnBecomesMaintainer("x", testKey(9))}},

		"deletion by the owner":             {deletion(1, tagRepo(x)), graspsync.Accept, nil},
		"deletion of somebody's repository": {deletion(2, tagRepo(x)), graspsync.Reject, nil},
		"deletion of a state by its author": {deletion(1, stateX), graspsync.Accept, nil},
		"deletion of a maintainer's state":  {deletion(3, nostr.Tag{"a", testRepo(3, "x").Address(30618)}), graspsync.Accept, nil},
		"deletion of a state elsewhere":     {deletion(9, nostr.Tag{"a", stranger.Address(30618)}), graspsync.Depend, []graspsync.Dependency{graspsync.OnBecomesMaintainer("x", testKey(9)), graspsync.OnVersion(coordinates(30618, 9, "x"))}},
		"deletion of an unknown repository": {deletion(9, tagRepo(stranger)), graspsync.Depend, []graspsync.Dependency{graspsync.OnRepo(stranger), graspsync.OnVersion(coordinates(30617, 9, "x"))}},
		"deletion of one's comment":         {deletion(6, tagEvent(60)), graspsync.Accept, nil},
		"deletion of somebody's comment":    {deletion(7, tagEvent(60)), graspsync.Reject, nil},
		"deletion of an unknown event":      {deletion(6, tagEvent(51)), graspsync.Depend, []graspsync.Dependency{graspsync.OnEvent(testID(51))}},
		"deletion, foreign and unknown":     {deletion(7, tagEvent(60), tagEvent(51)), graspsync.Depend, []graspsync.Dependency{graspsync.OnEvent(testID(60)), graspsync.OnEvent(testID(51))}},
		"deletion, foreign and own":         {deletion(6, tagEvent(50), tagRepo(x), tagEvent(60)), graspsync.Accept, nil},
		"deletion of a deletion":            {deletion(6, tagEvent(61)), graspsync.Reject, nil},
		"deletion of what is gone":          {deletion(7, tagEvent(80)), graspsync.Depend, []graspsync.Dependency{graspsync.OnEvent(testID(80))}},
		"vanishing from us":                 {vanish(6, "wss://grasp.example"), graspsync.Accept, nil},
		"vanishing from everywhere":         {vanish(5, "ALL_RELAYS"), graspsync.Accept, nil},
		"vanishing from elsewhere":          {vanish(6, "wss://elsewhere.example"), graspsync.Reject, nil},
		"vanishing of a stranger":           {vanish(77, "ALL_RELAYS"), graspsync.Depend, []graspsync.Dependency{graspsync.OnAuthor(testKey(77)), graspsync.OnHeldBy(testKey(77))}},
		"deletion of nothing":               {deletion(6), graspsync.Reject, nil},
		"deletion by E and A tags":          {deletion(1, nostr.Tag{"A", x.String()}, nostr.Tag{"E", testID(62).String()}), graspsync.Reject, nil},
		"deletion of an announcement by id": {deletion(1, tagEvent(62)), graspsync.Accept, nil},
		"deletion of a profile":             {deletion(6, nostr.Tag{"a", "0:" + testKey(6).String() + ":"}), graspsync.Reject, nil},
		"deletion that is mentioned":        {testEvent(70, 5, 7, 1, tagEvent(60)), graspsync.Reject, nil},

		"ephemeral":                         {testEvent(91, 20001, 9, 1, tagRepo(x)), graspsync.Reject, nil},
		"authentication":                    {testEvent(91, 22242, 9, 1, tagRepo(x)), graspsync.Reject, nil},
		"last ephemeral kind":               {testEvent(91, 29999, 9, 1, tagRepo(x)), graspsync.Reject, nil},
		"first kind after":                  {testEvent(91, 30000, 9, 1, tagRepo(x)), graspsync.Accept, nil},
		"protected":                         {related(tagRepo(x), nostr.Tag{"-"}), graspsync.Reject, nil},
		"protected state":                   {stateOf(1, "x", nostr.Tag{"-"}), graspsync.Reject, nil},
		"protected deletion":                {deletion(1, tagRepo(x), nostr.Tag{"-"}), graspsync.Reject, nil},
		"expired, which is not ours to see": {related(tagRepo(x), nostr.Tag{"expiration", "1"}), graspsync.Accept, nil},
	} {
		t.Run(name, func(t *testing.T) {
			verdict := judge(t, c.ev, graspView())
			assert.Equal(t, c.want, verdict.Decision)
			var on []graspsync.Dependency
			for _, d := range verdict.DependsOn {
				if d.Kind != graspsync.AwaitMention && verdict.Decision == graspsync.Depend {
					on = append(on, d)
				}
			}
			assert.Equal(t, c.on, on)
		})
	}
}

// A reply to a comment that does not tag the issue was rejected, like every event that refers to an
// accepted event only through another one. Half of each conversation was missing.
func TestGRASPPolicyConversations(t *testing.T) {
	x, gone := testRepo(1, "x"), testRepo(8, "foreign")
	release := nostr.Tag{"a", coordinates(30063, 7, "v1").String()}
	for name, c := range map[string]struct {
		stored []*nostr.Event
		ev     *nostr.Event
		want   graspsync.Decision
		on     graspsync.Dependency
	}{
		"answer to a note about a repository": {
			[]*nostr.Event{testEvent(200, 1, 7, 1, nostr.Tag{"q", x.String()})}, testEvent(91, 1, 9, 1, tagEvent(200)), graspsync.Accept, graspsync.Dependency{}},
		"like of an answer to a comment on an issue": {
			[]*nostr.Event{testEvent(200, 1111, 7, 1, tagEvent(50)), testEvent(201, 1, 7, 1, tagEvent(200))},
			testEvent(91, 7, 9, 1, tagEvent(201)), graspsync.Accept, graspsync.Dependency{}},
		"answer to what an accepted event refers to": {
			[]*nostr.Event{testEvent(200, 1, 7, 1), testEvent(201, 1111, 7, 1, tagRepo(x), nostr.Tag{"q", testID(200).String()})},
			testEvent(91, 1, 9, 1, tagEvent(200)), graspsync.Accept, graspsync.Dependency{}},
		"what an answer to an answer refers to": {
			[]*nostr.Event{testEvent(200, 1, 7, 1, tagEvent(50)), testEvent(201, 1, 7, 1, tagEvent(200), nostr.Tag{"q", testID(91).String()})},
			testEvent(91, 1, 9, 1), graspsync.Accept, graspsync.Dependency{}},
		"comment on a release": {
			[]*nostr.Event{testEvent(200, 30063, 7, 1, nostr.Tag{"d", "v1"}, tagRepo(x))}, testEvent(91, 1111, 9, 1, release), graspsync.Accept, graspsync.Dependency{}},
		"release that a comment names": {
			[]*nostr.Event{testEvent(200, 1111, 7, 1, tagRepo(x), release)}, testEvent(91, 30063, 7, 1, nostr.Tag{"d", "v1"}), graspsync.Accept, graspsync.Dependency{}},
		"another release than a comment names": {
			[]*nostr.Event{testEvent(200, 1111, 7, 1, tagRepo(x), release)}, testEvent(91, 30063, 7, 1, nostr.Tag{"d", "v2"}), graspsync.Reject,
			graspsync.OnVersionMention(coordinates(30063, 7, "v2"))},
		"comment on a maintainer's state": {
			[]*nostr.Event{testEvent(200, 30618, 3, 1, nostr.Tag{"d", "x"})}, testEvent(91, 1, 9, 1, tagEvent(200)), graspsync.Accept, graspsync.Dependency{}},
		"comment on the address of a maintainer's state": {
			[]*nostr.Event{testEvent(200, 30618, 3, 1, nostr.Tag{"d", "x"})},
			testEvent(91, 1, 9, 1, nostr.Tag{"a", testRepo(3, "x").Address(30618)}), graspsync.Accept, graspsync.Dependency{}},
		"comment on a stranger's state": {
			[]*nostr.Event{testEvent(200, 30618, 9, 1, nostr.Tag{"d", "x"}, tagRepo(x))}, testEvent(91, 1, 9, 1, tagEvent(200)), graspsync.Depend,
			graspsync.OnBecomesMaintainer("x", testKey(9))},
		"answer to a comment on an issue that is gone": {
			[]*nostr.Event{testEvent(200, 1111, 7, 1, tagEvent(51)), testEvent(201, 1, 7, 1, tagEvent(200))},
			testEvent(91, 1, 9, 1, tagEvent(201)), graspsync.Depend, graspsync.OnEvent(testID(51))},
		"answer to a comment on a repository that left": {
			[]*nostr.Event{testEvent(200, 1111, 7, 1, tagRepo(gone)), testEvent(201, 1, 7, 1, tagEvent(200))},
			testEvent(91, 1, 9, 1, tagEvent(201)), graspsync.Depend, graspsync.OnRepo(gone)},
		"answer to an announcement that an issue of ours names as well": {
			[]*nostr.Event{testEvent(200, 1621, 7, 1, tagRepo(gone), tagRepo(x))}, testEvent(91, 1, 9, 1, tagEvent(63)), graspsync.Depend, graspsync.OnRepo(gone)},
		"answer to a note that nothing of ours refers to": {
			[]*nostr.Event{testEvent(200, 1, 7, 1), testEvent(201, 1, 7, 1, tagEvent(200))},
			testEvent(91, 1, 9, 1, tagEvent(200)), graspsync.Reject, graspsync.OnMention(testID(200))},
		"answer to a deletion": {
			[]*nostr.Event{testEvent(200, graspsync.KindDeletion, 5, 1, tagEvent(50))}, testEvent(91, 1, 9, 1, tagEvent(200)), graspsync.Reject, graspsync.OnMention(testID(91))},
		"what is deleted": {
			[]*nostr.Event{testEvent(200, graspsync.KindDeletion, 5, 1, tagEvent(50), tagEvent(91))}, testEvent(91, 1, 9, 1), graspsync.Reject, graspsync.OnMention(testID(91))},
	} {
		t.Run(name, func(t *testing.T) {
			v := graspView()
			v.save(c.stored...)
			verdict := judge(t, c.ev, v)
			require.Equal(t, c.want, verdict.Decision)
			if c.want != graspsync.Accept {
				require.Contains(t, verdict.DependsOn, c.on, "what would have it judged again")
			}
			for _, ev := range c.stored { // and the dependency on it is reported
				if c.want == graspsync.Depend {
					require.NotContains(t, verdict.DependsOn, graspsync.OnEvent(testIDOf(ev)))
				}
			}
		})
	}
}

// Clients did not find a server by the lists of its users, because these lists name no repository.
func TestGRASPListsOfAnybody(t *testing.T) {
	list := testEvent(91, graspsync.KindGRASPList, 9, 1, nostr.Tag{"g", "wss://grasp.example"})
	protected := testEvent(91, graspsync.KindGRASPList, 9, 1, nostr.Tag{"-"})
	p := graspPolicy(t, graspHost)
	for _, wanted := range []bool{false, true} {
		p.GRASPLists = wanted
		v, err := p.Judge(t.Context(), eventtest.Of(list), graspsync.Source{}, graspView())
		require.NoError(t, err)
		require.Equal(t, wanted, v.Decision == graspsync.Accept)
		for size, want := range map[int]graspsync.Decision{maxGRASPList: graspsync.Accept, maxGRASPList + 1: graspsync.Reject} {
			for _, tags := range []nostr.Tags{nil, {{"g", strings.Repeat("x", 1000)}}, slices.Repeat(nostr.Tags{{}, {""}}, 1000)} {
				long := testEvent(91, graspsync.KindGRASPList, 9, 1, tags...)
				long.Content = strings.Repeat("x", size-length(long))
				v, err = p.Judge(t.Context(), eventtest.Of(long), graspsync.Source{}, graspView())
				require.NoError(t, err)
				require.Equal(t, wanted && want == graspsync.Accept, v.Decision == graspsync.Accept)
				require.True(t, !wanted || v.Decision == want)
			}
		}
		v, err = p.Judge(t.Context(), eventtest.Of(protected), graspsync.Source{Kind: graspsync.Live}, graspView())
		require.NoError(t, err)
		require.Equal(t, graspsync.Reject, v.Decision)
	}
}

func testIDOf(ev *nostr.Event) graspsync.EventID {
	id, err := graspsync.ParseEventID(ev.ID)
	if err != nil {
		panic(err)
	}
	return id
}

// listing returns an announcement of "x" by key 1.
func listing(t *testing.T, relay, clone string) *nostr.Event {
	t.Helper()
	return testEvent(90, graspsync.KindAnnouncement, 1, 1, nostr.Tag{"d", "x"},
		nostr.Tag{"relays", "wss://elsewhere.example", relay}, nostr.Tag{"clone", clone})
}

// Substring checks of the own name mistook evil-x.org for x.org, and one server on a host for
// another.
func TestTrapD2_AnnouncementsListUsByAuthority(t *testing.T) {
	path := "/" + nip34.NPub(testKey(1)) + "/x.git"
	for name, c := range map[string]struct {
		us, relay, clone string
		want             graspsync.Decision
	}{
		"both":             {"x.org", "wss://x.org", "https://x.org" + path, graspsync.Accept},
		"other spelling":   {"x.org", "X.ORG:443/", "https://X.org." + path + "/", graspsync.Accept},
		"relay only":       {"x.org", "wss://x.org", "https://y.org" + path, graspsync.Reject},
		"clone only":       {"x.org", "wss://y.org", "https://x.org" + path, graspsync.Reject},
		"longer name":      {"x.org", "wss://evil-x.org", "https://evil-x.org" + path, graspsync.Reject},
		"as a subdomain":   {"x.org", "wss://x.org.evil.net", "https://x.org.evil.net" + path, graspsync.Reject},
		"in the path":      {"x.org", "wss://evil.net/x.org", "https://evil.net/x.org" + path, graspsync.Reject},
		"same host":        {"127.0.0.1:7001", "ws://127.0.0.1:7002", "http://127.0.0.1:7002" + path, graspsync.Reject},
		"our port":         {"127.0.0.1:7001", "ws://127.0.0.1:7001", "http://127.0.0.1:7001" + path, graspsync.Accept},
		"another's clone":  {"x.org", "wss://x.org", "https://x.org" + strings.Replace(path, "x.git", "y.git", 1), graspsync.Reject},
		"without the npub": {"x.org", "wss://x.org", "https://x.org/x.git", graspsync.Reject},
	} {
		t.Run(name, func(t *testing.T) {
			ev := listing(t, c.relay, c.clone)
			p := graspPolicy(t, c.us)
			verdict, err := p.Judge(t.Context(), eventtest.Of(ev), graspsync.Source{}, newPolicyView())
			require.NoError(t, err)
			assert.Equal(t, c.want, verdict.Decision)
			a, err := nip34.ParseAnnouncement(eventtest.Of(ev))
			require.NoError(t, err)
			assert.Equal(t, c.want == graspsync.Accept, p.Lists(a))
		})
	}
	verdict := judge(t, testEvent(90, graspsync.KindAnnouncement, 1, 1, nostr.Tag{"d"}), graspView())
	assert.Equal(t, "invalid: the d tag is missing or has no value", verdict.Reason)
	assert.Equal(t, graspsync.Reject, judge(t, listing(t, "x.org", "x.org"+path), newPolicyView()).Decision)
}

// A protected event is accepted from a client and rejected from relays.
func TestGRASPPolicyProtectedFromTheAuthor(t *testing.T) {
	ev := related(tagRepo(testRepo(1, "x")), nostr.Tag{"-"})
	for kind, want := range map[graspsync.SourceKind]graspsync.Decision{graspsync.Direct: graspsync.Accept, graspsync.Live: graspsync.Reject, graspsync.CatchUp: graspsync.Reject, graspsync.Daily: graspsync.Reject} {
		verdict, err := graspPolicy(t, graspHost).Judge(t.Context(), eventtest.Of(ev), graspsync.Source{Kind: kind}, graspView())
		require.NoError(t, err)
		assert.Equal(t, want, verdict.Decision, kind)
	}
}

func TestGRASPPolicyFailsWithTheView(t *testing.T) {
	v := graspView()
	v.events.fail = errors.New("disk gone")
	for _, ev := range []*nostr.Event{related(tagEvent(51)), related(), deletion(6, tagEvent(60))} {
		verdict, err := graspPolicy(t, graspHost).Judge(t.Context(), eventtest.Of(ev), graspsync.Source{}, v)
		require.ErrorIs(t, err, v.events.fail)
		assert.Zero(t, verdict, "an error is no verdict")
	}
}

// An event may name thousands of others. The cost for the Store is limited.
func TestGRASPPolicyBoundsWork(t *testing.T) {
	var ids, repos, mixed nostr.Tags
	for i := range 10_000 {
		ids = append(ids, tagEvent(1000+i))
		repos = append(repos, tagRepo(testRepo(1000+i, "x")))
		mixed = append(mixed, []nostr.Tag{{}, {"d"}, {"a"}, {"e"}, tagEvent(1000 + i), {"q", fmt.Sprint(i)}}[i%6])
	}
	for name, ev := range map[string]*nostr.Event{
		"ids": related(ids...), "repositories": related(repos...), "mixed": related(mixed...),
		"deleted ids": deletion(9, ids...), "deleted repositories": deletion(1000, repos...),
		"deletion, mixed": deletion(9, mixed...),
	} {
		t.Run(name, func(t *testing.T) {
			v := graspView()
			verdict := judge(t, ev, v)
			assert.Equal(t, graspsync.Depend, verdict.Decision)
			assert.LessOrEqual(t, v.reads, 3, "few questions, whatever there is to ask")
			if name != "deleted repositories" { // only one is the author's own
				assert.GreaterOrEqual(t, len(verdict.DependsOn), 1_666, "it waits for all of them")
			}
		})
	}
	assert.Equal(t, graspsync.Accept, judge(t, related(append(ids, tagEvent(50))...), graspView()).Decision,
		"what is in memory is found behind any number of tags")
}

// A state or its deletion requires an announcement of its author, and waits for it.
func TestStatesTakeAnAnswer(t *testing.T) {
	policy := graspPolicy(t, graspHost)
	v := graspViewWithout3()
	judge := func(ev *nostr.Event) graspsync.Verdict {
		verdict, err := policy.Judge(t.Context(), eventtest.Of(ev), graspsync.Source{}, v)
		require.NoError(t, err)
		return verdict
	}
	for author := 1; author <= 2; author++ {
		assert.Equal(t, graspsync.Accept, judge(stateOf(author, "x")).Decision)
	}
	listed := testRepo(3, "x")
	events := []*nostr.Event{stateOf(3, "x"), deletion(3, nostr.Tag{"a", listed.Address(30618)})}
	for _, ev := range events {
		verdict := judge(ev)
		assert.Equal(t, graspsync.Depend, verdict.Decision)
		assert.Contains(t, verdict.DependsOn, graspsync.OnBecomesMaintainer("x", testKey(3)))
	}
	v.announce(3, "x", 2)
	for _, ev := range events {
		assert.Equal(t, graspsync.Accept, judge(ev).Decision)
	}
}
