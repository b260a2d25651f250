package purgatoryadapter_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/graspsync/graspsync"
	purgatoryadapter "github.com/graspsync/graspsync/adapter/purgatory"
	"github.com/graspsync/graspsync/internal/eventtest"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory"
	"github.com/graspsync/graspsync/purgatory/fetchtest"
	"github.com/graspsync/graspsync/state"
	relaysync "github.com/graspsync/graspsync/sync"
	"github.com/graspsync/graspsync/sync/memstore"
	"github.com/graspsync/graspsync/sync/relaytest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const us = "grasp.example"

var (
	owner    = relaytest.NewCheapKey("owner")
	helper   = relaytest.NewCheapKey("maintainer")
	stranger = relaytest.NewCheapKey("stranger")
	commit   = strings.Repeat("1", 40)
)

func at(ago time.Duration) nostr.Timestamp { return nostr.Timestamp(time.Now().Add(-ago).Unix()) }

// rig is sync and purgatory, connected as by an embedder.
type rig struct {
	t       *testing.T
	net     *relaytest.Network
	store   *memstore.Store
	git     *fetchtest.Fake
	kept    state.Store
	most    int // maximum of held events, 0 for the default
	members nip34.Membership
	manager *relaysync.SyncManager
	waits   *purgatory.Purgatory
	policy  *purgatoryadapter.Policy
	stop    func()
	failing atomic.Bool // the store fails to save released events
	mu      sync.Mutex
	sent    []string // broadcast events
	faults  []error  // recorded failures of git servers
}

func newRig(t *testing.T) *rig {
	r := &rig{t: t, net: relaytest.NewNetwork(), store: memstore.New(), git: fetchtest.New(), kept: state.NewMemory()}
	r.start()
	return r
}

func (r *rig) start() {
	identity, err := nip34.ParseIdentity(us)
	require.NoError(r.t, err)
	inner := relaysync.NewGRASPPolicy(identity)
	inner.Membership = r.members
	r.policy = purgatoryadapter.NewPolicy(inner)
	_, err = r.policy.Judge(r.t.Context(), eventtest.Of(owner.Hosted(1, "x", us)), graspsync.Source{}, nil)
	require.ErrorIs(r.t, err, purgatoryadapter.ErrNotJoined)
	a, err := graspsync.ParseRelayURL("wss://a.example")
	require.NoError(r.t, err)
	r.manager, err = relaysync.New(r.policy.Store(r.store), r.net, identity, r.policy.Configure(relaysync.Config{
		Verifier: relaytest.CheapVerifier{}, Bootstrap: []graspsync.RelayURL{a},
	}))
	require.NoError(r.t, err)
	host := purgatoryadapter.Host{
		Store: r.store, Lists: r.policy.Lists, Held: r.manager.NotifyHeld, Removed: r.manager.NotifyRemoved, Postponed: r.manager.NotifyDeferred,
		Release: purgatoryadapter.Save(failing{r.store, &r.failing}, r.manager.NotifyStored, r.broadcast),
	}
	r.waits, err = purgatory.Open(r.t.Context(), host.Relay(), r.git, r.git, r.git, r.kept,
		purgatory.Config{Identity: identity, Observe: r.observe(host.Observe), Limits: purgatory.Limits{MaxEntries: r.most}, Membership: r.members})
	require.NoError(r.t, err)
	r.policy.Join(r.waits)
	ctx, cancel := context.WithCancel(r.t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { _ = r.waits.Run(ctx) })
	wg.Go(func() { _ = r.manager.Run(ctx) })
	r.stop = func() {
		cancel()
		wg.Wait()
	}
}

func (r *rig) observe(host func(purgatory.Observation)) func(purgatory.Observation) {
	return func(seen purgatory.Observation) {
		if f, is := seen.(purgatory.FetchEnded); is && f.Err != nil {
			r.mu.Lock()
			r.faults = append(r.faults, f.Err)
			r.mu.Unlock()
		}
		host(seen)
	}
}

func (r *rig) blamed() []error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.faults)
}

// failing is a store that can fail to save.
type failing struct {
	relaysync.Store
	fails *atomic.Bool
}

func (s failing) Save(ctx context.Context, events []graspsync.Incoming) ([]graspsync.Outcome, error) {
	if s.fails.Load() {
		return nil, errDisk
	}
	return s.Store.Save(ctx, events)
}

func (r *rig) broadcast(ev graspsync.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sent = append(r.sent, ev.ID.String())
}

func (r *rig) has(ev *nostr.Event) bool {
	id, err := graspsync.ParseEventID(ev.ID)
	require.NoError(r.t, err)
	has, err := r.store.Has(r.t.Context(), []graspsync.EventID{id})
	require.NoError(r.t, err)
	return has[0]
}

func after(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// Events that arrive newest first are held in the right order, synced for states only, and served
// with their git data. Then the events of the repository follow.
func TestTrapD6_JoinedHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		a := r.net.Add("wss://a.example", relaytest.Behavior{})
		b := r.net.Add("wss://b.example", relaytest.Behavior{})
		ann := owner.Announcement(at(time.Hour), "repo", []string{"wss://" + us, "wss://b.example"},
			[]string{owner.CloneURL("wss://"+us, "repo"), "https://git.example/repo.git"}, helper)
		byMaintainer := helper.State(at(time.Minute), "repo", map[string]string{"refs/heads/main": commit}, "main")
		byStranger := stranger.State(at(time.Second), "repo", map[string]string{"refs/heads/main": commit}, "main")
		issue := stranger.Issue(at(time.Minute), owner.Ref("repo"), "x")
		answer := helper.Announcement(at(time.Hour), "repo", []string{"wss://a.example"}, []string{helper.CloneURL("wss://a.example", "repo")}, owner)
		a.Publish(ann, answer)
		b.Publish(byMaintainer, byStranger, issue)
		after(2 * time.Minute)
		require.Len(t, r.waits.AllAnnouncements(), 1)
		held, err := r.policy.Held(t.Context(), nostr.Filter{})
		require.NoError(t, err)
		require.Len(t, held, 3, "the announcement, the answer to it, and its maintainer's state, not the stranger's")
		require.Zero(t, r.store.Len())
		require.False(t, r.has(issue))

		// A direct comment depends on a held event, and a pull request is held with it.
		view := stranger.Comment(at(0), issue, "x")
		v, err := r.manager.Judge(t.Context(), eventtest.Of(view))
		require.NoError(t, err)
		require.Equal(t, graspsync.Depend, v.Decision)
		pr := stranger.PullRequest(at(0), owner.Ref("repo"), "x", strings.Repeat("2", 40))
		v, err = r.manager.Judge(t.Context(), eventtest.Of(pr))
		require.NoError(t, err)
		require.Equal(t, graspsync.Hold, v.Decision)
		require.Equal(t, purgatory.Message, v.Reason)
		v, err = r.manager.Judge(t.Context(), eventtest.Of(stranger.Event(at(0), 1111, "x", []string{"E", pr.ID})))
		require.NoError(t, err)
		require.Contains(t, v.Message(), pr.ID+" has come, and waits for its git data")
		v, err = r.manager.Judge(t.Context(), eventtest.Of(stranger.PullRequest(at(0), owner.Ref("repo"), "x", "bad")))
		require.NoError(t, err)
		require.Equal(t, graspsync.Reject, v.Decision)

		main, err := nip34.ParseRefName("refs/heads/main")
		require.NoError(t, err)
		id, err := nip34.ParseObjectID(commit)
		require.NoError(t, err)
		r.git.Push(owner.Ref("repo"), map[nip34.RefName]nip34.ObjectID{main: id}, id)
		r.waits.Pushed(t.Context(), owner.Ref("repo"), []nip34.RefName{main})
		after(2 * time.Minute)
		require.True(t, r.has(ann))
		require.True(t, r.has(byMaintainer))
		require.True(t, r.has(answer))
		require.True(t, r.has(issue), "layers 2 and 3 are asked for now")
		require.False(t, r.has(byStranger))
		require.False(t, r.has(pr), "its own data is not here")
		require.ElementsMatch(t, []string{ann.ID, answer.ID, byMaintainer.ID}, r.sent, "what comes by sync is the relay's to send")
		v, err = r.manager.Judge(t.Context(), eventtest.Of(byMaintainer))
		require.NoError(t, err)
		require.Equal(t, graspsync.Accept, v.Decision, "what is served does not wait again")
		require.Empty(t, r.git.Broken())
		r.stop()
	})
}

// After a restart held repositories are followed again, and reconciliations include held events.
func TestTrapP7_JoinedRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		a := r.net.Add("wss://a.example", relaytest.Behavior{})
		b := r.net.Add("wss://b.example", relaytest.Behavior{})
		a.Publish(owner.Hosted(at(time.Hour), "repo", us, "b.example"))
		after(time.Minute)
		require.Equal(t, 1, b.Open())
		r.stop()
		a.SetDown(true)
		state := owner.State(at(0), "repo", map[string]string{"refs/heads/main": commit}, "main")
		b.Publish(state)
		r.start()
		after(2 * time.Minute)
		require.Equal(t, 1, b.Open())
		held, err := r.policy.Held(t.Context(), nostr.Filter{Kinds: []int{graspsync.KindState}})
		require.NoError(t, err)
		require.Len(t, held, 1)
		r.stop()
	})
}

// An expired event is not held again although a relay still serves it, and the relays of its
// repository are no longer followed.
func TestTrapP3_JoinedExpiry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		a := r.net.Add("wss://a.example", relaytest.Behavior{})
		b := r.net.Add("wss://b.example", relaytest.Behavior{})
		a.Publish(owner.Hosted(at(time.Hour), "repo", us, "b.example"))
		after(time.Minute)
		require.Equal(t, 1, b.Open())
		after(35 * time.Minute)
		require.Empty(t, r.waits.AllAnnouncements())
		require.Zero(t, b.Open())
		before := r.waits.Status().Held
		after(30 * time.Hour) // a daily comparison finds it again
		require.Equal(t, before, r.waits.Status().Held)
		require.Zero(t, b.Open())
		r.stop()
	})
}

// A new state of a repository whose announcement has expired softly revives it: its relays are
// followed again.
func TestRevivedIsFollowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		a := r.net.Add("wss://a.example", relaytest.Behavior{})
		b := r.net.Add("wss://b.example", relaytest.Behavior{})
		announcement := owner.Announcement(at(time.Hour), "repo", []string{"wss://" + us, "wss://b.example"},
			[]string{owner.CloneURL("wss://"+us, "repo"), "https://git.example/repo.git"}, helper)
		answer := helper.Announcement(at(time.Hour), "repo", []string{"wss://a.example"}, []string{helper.CloneURL("wss://a.example", "repo")}, owner)
		a.Publish(announcement, answer)
		after(36 * time.Minute)
		require.Empty(t, r.waits.AllAnnouncements())
		require.Zero(t, b.Open())
		state := func(key *relaytest.Key) graspsync.Decision {
			ev := key.State(at(0), "repo", map[string]string{"refs/heads/main": commit}, "main")
			v, err := r.manager.Judge(t.Context(), eventtest.Of(ev))
			require.NoError(t, err)
			return v.Decision
		}
		require.Equal(t, graspsync.Depend, state(stranger))
		require.Equal(t, graspsync.Hold, state(helper))
		after(time.Minute)
		require.Len(t, r.waits.AllAnnouncements(), 1)
		require.Equal(t, 1, b.Open())
		r.stop()
	})
}

// Git data pushed for an event stays exactly as long as the event is served, also if git accepted
// it while nobody could be notified.
func TestRefsOfEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		repo := owner.Ref("repo")
		_, err := r.store.Save(t.Context(), []graspsync.Incoming{{Event: eventtest.Of(owner.Hosted(at(time.Hour), "repo", us))}})
		require.NoError(t, err)
		tip, err := nip34.ParseObjectID(commit)
		require.NoError(t, err)
		r.git.Put(repo, tip)
		var names []nip34.RefName
		authority := purgatoryadapter.Authority{Store: r.store, Purgatory: r.waits}
		var prs []*nostr.Event
		for _, title := range []string{"stays", "deleted"} {
			pr := stranger.PullRequest(at(0), repo, title, commit)
			id, err := graspsync.ParseEventID(pr.ID)
			require.NoError(t, err)
			prs, names = append(prs, pr), append(names, nip34.EventRef(id))
			r.git.Push(repo, map[nip34.RefName]nip34.ObjectID{nip34.EventRef(id): tip})
			if title == "stays" {
				require.NoError(t, authority.AfterPush(t.Context(), repo, names))
			}
			answer, err := r.waits.Submit(t.Context(), eventtest.Of(pr), graspsync.Source{})
			require.NoError(t, err)
			require.Equal(t, purgatory.Held, answer.Decision)
			after(time.Second)
			require.True(t, r.has(pr))
			got, known, err := authority.Tip(t.Context(), repo, id)
			require.NoError(t, err)
			require.True(t, known)
			require.Equal(t, tip, got)
		}
		never, err := graspsync.ParseEventID(strings.Repeat("e", 64))
		require.NoError(t, err)
		r.git.Push(repo, map[nip34.RefName]nip34.ObjectID{nip34.EventRef(never): tip})
		_, err = r.store.Save(t.Context(), []graspsync.Incoming{{Event: eventtest.Of(stranger.Deletion(at(0), prs[1]))}})
		require.NoError(t, err)
		require.False(t, r.has(prs[1]))
		after(2 * time.Hour)
		require.Equal(t, map[nip34.RefName]nip34.ObjectID{names[0]: tip}, r.git.RefsOf(repo))
		r.stop()
	})
}

// Events for which purgatory had no room, and evicted events, are fetched again later.
func TestNoRoomIsNoVerdict(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.stop()
		r.most, r.kept = 8, state.NewMemory()
		r.start()
		a := r.net.Add("wss://a.example", relaytest.Behavior{})
		waits := func(key *relaytest.Key, name string) bool {
			return len(r.waits.Held(nostr.Filter{Authors: []string{key.Hex()}, Tags: nostr.TagMap{"d": {name}}})) > 0
		}
		publish := func(key *relaytest.Key, name string) {
			a.Publish(key.Announcement(at(time.Hour), name, []string{"wss://" + us, "wss://a.example"},
				[]string{key.CloneURL("wss://"+us, name), "https://git.example/repo.git"}))
		}
		most := relaytest.NewCheapKey("most")
		publish(most, "first")
		after(10 * time.Second)
		publish(most, "second")
		for i := range 6 {
			publish(relaytest.NewCheapKey(fmt.Sprint("flood ", i)), "repo")
		}
		after(20 * time.Second)
		publish(owner, "repo")
		after(10 * time.Second)
		require.True(t, waits(owner, "repo"))
		require.False(t, waits(most, "first"), "the older one of who has two")
		require.Equal(t, uint64(1), r.waits.Status().Dropped["displaced"])
		late := relaytest.NewCheapKey("late")
		publish(late, "repo")
		after(10 * time.Second)
		require.Positive(t, r.waits.Status().Dropped["full"])
		require.False(t, waits(late, "repo"), "each of the others has one")
		for range 60 {
			if after(time.Minute); waits(late, "repo") {
				break
			}
		}
		require.True(t, waits(late, "repo"))
		for range 54 { // a day until the others are forgotten, and two passes
			if after(time.Hour); waits(most, "first") {
				break
			}
		}
		require.True(t, waits(most, "first"), "nothing was remembered of it")
		r.stop()
	})
}

var errDisk = errors.New("disk full")

// partly is a Store that returns one announcement and ErrIncomplete.
type partly struct {
	relaysync.Store
	err error
}

// Events implements [relaysync.Store].
func (p partly) Events(context.Context, nostr.Filter) iter.Seq2[graspsync.Event, error] {
	return func(yield func(graspsync.Event, error) bool) {
		if yield(eventtest.Of(relaytest.NewKey("owner").Hosted(100, "one", "grasp.example")), nil) {
			yield(graspsync.Event{}, p.err)
		}
	}
}

// If one second had as many announcements as a page of the backend, no repository was checked
// again, because their list always ended with an error.
func TestEventsOfAnIncompleteStore(t *testing.T) {
	down := errors.New("no disk")
	for _, given := range []error{fmt.Errorf("501 in a second: %w", relaysync.ErrIncomplete), down} {
		var events []*nostr.Event
		var last error
		for ev, err := range (purgatoryadapter.Host{Store: partly{err: given}}).Relay().Events(t.Context(), nostr.Filter{}) {
			if err != nil {
				last = err
				continue
			}
			events = append(events, ev.Event)
		}
		require.Len(t, events, 1)
		require.ErrorIs(t, last, given)
		require.Equal(t, !errors.Is(given, down), errors.Is(last, purgatory.ErrIncomplete))
	}
}
