package purgatory_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/eventtest"
	"github.com/graspsync/graspsync/internal/racetest"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory"
	"github.com/graspsync/graspsync/purgatory/fetchtest"
	"github.com/graspsync/graspsync/state"
	"github.com/graspsync/graspsync/sync/relaytest"
)

var errDead = errors.New("the process is dead")

// life is one process. Its actions after its end have no effect.
type life struct{ dead atomic.Bool }

type mortalStore struct {
	state.Store
	*life
}

func (s mortalStore) Put(ctx context.Context, records ...state.Record) error {
	if s.dead.Load() {
		return errDead
	}
	return s.Store.Put(ctx, records...)
}

func (s mortalStore) Delete(ctx context.Context, keys ...string) error {
	if s.dead.Load() {
		return errDead
	}
	return s.Store.Delete(ctx, keys...)
}

type mortalRelay struct {
	*relay
	*life
}

func (r mortalRelay) Save(ctx context.Context, ev graspsync.Event) error {
	if r.dead.Load() {
		return errDead
	}
	return r.relay.Save(ctx, ev)
}

// watchedLocks records waits for a lock that timed out.
type watchedLocks struct {
	*fetchtest.Fake
	of *crashes
}

func (w watchedLocks) Lock(ctx context.Context, ref graspsync.RepoRef) (string, func(), error) {
	dir, unlock, err := w.Fake.Lock(ctx, ref)
	if err != nil && ctx.Err() != nil {
		w.of.mu.Lock()
		w.of.inVain = time.Now()
		w.of.mu.Unlock()
	}
	return dir, unlock, err
}

// promise is the promise made by an answer Held.
type promise struct {
	event    *nostr.Event
	deadline time.Time
}

// crashes is a random scenario in which the process is killed repeatedly.
type crashes struct {
	t       *testing.T
	mu      sync.Mutex // steps are taken by several goroutines
	rng     *rand.Rand // of the test
	dice    *rand.Rand // guarded by mu
	relay   *relay
	git     *fetchtest.Fake
	store   *state.Memory
	p       *purgatory.Purgatory
	life    *life
	stop    func()
	final   bool
	left    int    // steps to live; 0: no limit
	aim     string // another step at which the process is killed
	kills   map[string]int
	held    map[string]promise
	all     []*nostr.Event // submitted
	deleted map[string]bool
	endings map[string]int
	inVain  time.Time                      // guarded by mu: last time a release gave up waiting for a lock
	behind  map[graspsync.RepoRef]struct{} // guarded by mu: a state of their family was served while they were locked
	rule    nip34.Membership
}

func (c *crashes) open() {
	l := &life{}
	c.life = l
	c.git.FailWith(func(op string) error {
		if l.dead.Load() {
			return errDead
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		if op == "align" && c.left > 0 && c.dice.IntN(4) == 0 {
			l.dead.Store(true)
			c.kills["in a transaction"]++
			return fetchtest.ErrHalfDone
		}
		return nil
	})
	cfg := purgatory.Config{Membership: c.rule, Observe: func(o purgatory.Observation) {
		if e, ok := o.(purgatory.HoldEnded); ok && e.Reason == purgatory.Released {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.endings[e.ID.String()]++
		}
	}}
	p, err := purgatory.OpenWithStep(c.t.Context(), mortalRelay{c.relay, l}, watchedLocks{c.git, c}, c.git, c.git, mortalStore{c.store, l}, cfg, func(name string) { c.step(l, name) })
	if l.dead.Load() { // killed during recovery
		c.stop = func() {}
		return
	}
	require.NoError(c.t, err)
	c.p = p
	ctx, cancel := context.WithCancel(c.t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = p.Run(ctx)
	}()
	c.stop = func() {
		cancel()
		<-done
	}
}

// step is called after each durable step, by several goroutines, one at a time.
func (c *crashes) step(l *life, name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if l.dead.Load() {
		return
	}
	c.checkLocked(name)
	if c.left > 0 {
		if c.left--; c.left == 0 || name == c.aim {
			c.kills[name]++
			l.dead.Store(true)
		}
	}
}

// disk returns the records with a prefix.
func (c *crashes) disk(prefix string) map[string][]byte {
	out := make(map[string][]byte)
	for r, err := range c.store.Each(context.Background(), "purgatory/"+prefix) {
		require.NoError(c.t, err)
		out[strings.TrimPrefix(r.Key, "purgatory/"+prefix)] = r.Value
	}
	return out
}

func deadlineIn(t *testing.T, record []byte) time.Time {
	var r struct{ Deadline time.Time }
	require.NoError(t, json.Unmarshal(record, &r))
	return r.Deadline
}

func (c *crashes) check(when string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.checkLocked(when)
}

// checkLocked checks all invariants.
func (c *crashes) checkLocked(when string) {
	require.Empty(c.t, c.git.Broken(), when)
	entries, gone := c.disk("entry/"), c.disk("expired/")
	for id, h := range c.held {
		c.checkHeld(when, id, h, entries, gone)
	}
	journals := len(c.disk("aligning/"))
	announcements, stored := c.relay.announcements("r"), c.relay.states("r")
	for _, a := range announcements {
		require.True(c.t, c.git.Has(a.Ref), "%s: an announcement is served without repository", when)
		if journals == 0 {
			c.checkRefs(when, a, announcements, stored)
		}
	}
	c.relay.mu.Lock()
	served := slices.Clone(c.relay.events)
	c.relay.mu.Unlock()
	for _, ev := range served {
		if p, err := nip34.ParsePullRequest(eventtest.Of(ev)); err == nil && journals == 0 {
			require.True(c.t, slices.ContainsFunc(p.Repos, func(ref graspsync.RepoRef) bool {
				return c.git.RefsOf(ref)[nip34.EventRef(p.ID)] == p.Tip || slices.Contains(c.git.Objects(ref), p.Tip) // that a branch has needs no ref
			}), "%s: a pull request is served without its data", when)
		}
	}
}

func (c *crashes) checkHeld(when, id string, h promise, entries, gone map[string][]byte) {
	if c.deleted[id] {
		return
	}
	if record, waits := entries[id]; waits {
		if h.event.Kind != graspsync.KindAnnouncement {
			// The hold is extended while our store, git or disk fails, as at the end of a life.
			require.False(c.t, deadlineIn(c.t, record).Before(h.deadline), "%s: deadline of %s", when, id)
		}
		return
	}
	_, expired := gone[id]
	ok := c.relay.has(h.event) || (expired && !time.Now().Before(h.deadline)) ||
		slices.ContainsFunc(c.all, func(o *nostr.Event) bool { return replaces(o, h.event) })
	require.True(c.t, ok, "%s: %s of kind %d is lost", when, id, h.event.Kind)
}

// replaces reports whether a is a newer version of b.
func replaces(a, b *nostr.Event) bool {
	return a.Kind == b.Kind && (a.Kind == graspsync.KindAnnouncement || a.Kind == graspsync.KindState) && a.PubKey == b.PubKey &&
		(a.CreatedAt > b.CreatedAt || (a.CreatedAt == b.CreatedAt && a.ID < b.ID))
}

// checkRefs checks that the refs of a repository are those of the newest served state, or of a
// newer state that is about to be served.
func (c *crashes) checkRefs(when string, a *nip34.Announcement, all []*nip34.Announcement, stored []*nip34.State) {
	members := c.rule.AnnouncementSet(a.Ref.Identifier, all).Authority(a.Ref).Members()
	var newest *nip34.State
	for _, s := range stored {
		if _, member := members[s.Ref.Owner]; member && (newest == nil || s.Key().Newer(newest.Key())) {
			newest = s
		}
	}
	if newest == nil {
		return
	}
	now := c.git.RefsOf(a.Ref)
	maps.DeleteFunc(now, func(name nip34.RefName, _ nip34.ObjectID) bool {
		return strings.HasPrefix(name.String(), "refs/nostr/")
	})
	ok := maps.Equal(now, newest.Refs)
	if ok {
		delete(c.behind, a.Ref)
	}
	for _, ev := range c.all {
		s, err := nip34.ParseState(eventtest.Of(ev))
		ok = ok || (err == nil && s.Key().Newer(newest.Key()) && maps.Equal(now, s.Refs))
	}
	if !ok && len(all) > 1 && time.Since(c.inVain) < time.Minute {
		c.behind[a.Ref] = struct{}{} // two releases waited for each other: one gave up and served the state
	}
	_, behind := c.behind[a.Ref]
	require.True(c.t, ok || behind, "%s: %s is served, refs are %v", when, newest.ID, now)
}

func (c *crashes) submit(ev *nostr.Event) {
	c.mu.Lock()
	c.all = append(c.all, ev)
	c.mu.Unlock()
	a, err := c.p.Submit(c.t.Context(), eventtest.Of(ev), submittedBy(c.rng.IntN(2) == 0))
	if err != nil {
		return
	}
	switch a.Decision {
	case purgatory.Held:
		if record, waits := c.disk("entry/")[ev.ID]; waits {
			c.mu.Lock()
			c.held[ev.ID] = promise{ev, deadlineIn(c.t, record)}
			c.mu.Unlock()
		} else {
			require.True(c.t, c.relay.has(ev), "held, and not on the disk")
		}
	case purgatory.Pass:
		c.relay.put(ev)
		c.p.NotifyStored(eventtest.Of(ev))
	}
}

func (c *crashes) act(n int) {
	keys := []*relaytest.Key{alice, bob, carol}
	who := keys[c.rng.IntN(3)]
	switch c.rng.IntN(9) {
	case 0, 1:
		ev := announce(who, now(), "a.example/r.git", "b.example/r.git")
		if who == alice { // bob maintains alice's repository, and carol bob's
			ev = alice.Event(now(), graspsync.KindAnnouncement, "", nostrTag{"d", "r"}, nostrTag{"clone", "https://a.example/r.git"}, nostrTag{"maintainers", bob.Hex()})
		}
		if who == bob { // and answers
			ev = bob.Event(now(), graspsync.KindAnnouncement, "", nostrTag{"d", "r"}, nostrTag{"clone", "https://b.example/r.git"}, nostrTag{"maintainers", alice.Hex()})
		}
		c.submit(ev)
	case 2, 3, 4:
		refs := []any{"main", c.rng.IntN(6)}
		if c.rng.IntN(2) == 0 {
			refs = append(refs, "dev", c.rng.IntN(6))
		}
		if c.rng.IntN(8) == 0 {
			refs = nil
		}
		c.submit(says(who, now(), refs...))
	case 5:
		to, tip := repoOf(keys[c.rng.IntN(3)]), c.rng.IntN(8)
		p := pull(who, to, tip, graspsync.KindPullRequest+c.rng.IntN(2))
		if c.rng.IntN(2) == 0 { // all or half of its data came first
			c.git.Stage(to, idOf(p), object(tip), object(tip), object(7+c.rng.IntN(2)))
			c.git.Stage(to, idOf(p), object(9), object(9))
		}
		c.submit(p)
	case 6: // a push that is authorised
		ref := repoOf(who)
		if s, err := c.p.AuthorizedState(c.t.Context(), ref); err == nil && s != nil && c.git.Has(ref) && len(s.Refs) > 0 {
			before := c.git.RefsOf(ref)
			for name := range before {
				if _, stays := s.Refs[name]; !stays && !strings.HasPrefix(name.String(), "refs/nostr/") {
					return // a push of ours does not delete
				}
			}
			c.git.Push(ref, s.Refs, append(slices.Collect(maps.Values(s.Refs)), object(8))...)
			c.p.Pushed(c.t.Context(), ref, slices.Collect(maps.Keys(s.Refs)))
		}
	case 7:
		if len(c.all) > 0 {
			ev := c.all[c.rng.IntN(len(c.all))]
			if h, waits := c.held[ev.ID]; waits && !c.relay.has(h.event) && c.rng.IntN(3) == 0 {
				d := relaytestKey(ev.PubKey).Event(now(), graspsync.KindDeletion, "", nostrTag{"e", ev.ID})
				c.mu.Lock()
				c.deleted[ev.ID] = true
				c.mu.Unlock()
				c.relay.put(d)
				c.p.NotifyStored(eventtest.Of(d))
			}
		}
	default:
		server := []string{"a.example/r.git", "b.example/r.git"}[c.rng.IntN(2)]
		var objects []nip34.ObjectID
		for i := range 8 {
			if c.rng.IntN(3) > 0 {
				objects = append(objects, object(i))
			}
		}
		c.git.Serve(clone(server), fetchtest.Server{Objects: objects})
	}
}

func relaytestKey(hex string) *relaytest.Key {
	for _, k := range []*relaytest.Key{alice, bob, carol} {
		if k.Hex() == hex {
			return k
		}
	}
	return nil
}

// durableSteps are the steps after which the process is killed.
var durableSteps = []string{
	"created", "held", "fetched", "promoted", "taken", "unstaged", "shared", "journalled", "aligned", "stored", "struck off",
	"removed", "expired softly", "remembered", "expired", "in a transaction",
}

// livesFor schedules the next kill: after a number of steps, or at the step with the fewest kills
// so far.
func (c *crashes) livesFor() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.left = 1 + c.rng.IntN(12)
	c.aim = slices.MinFunc(durableSteps, func(a, b string) int { return cmp.Compare(c.kills[a], c.kills[b]) })
}

// The process is killed after every durable step. At any time, no event is served without its refs
// and objects, no ref lacks its objects, no held event is lost, and no deadline changes.
func TestTrapP5_KilledAtEveryStep(t *testing.T) {
	kills := make(map[string]int)
	released := 0
	for seed := range uint64(racetest.Rounds(80)) {
		synctest.Test(t, func(t *testing.T) {
			c := &crashes{
				t: t, rng: rand.New(rand.NewPCG(seed, 11)), dice: rand.New(rand.NewPCG(seed, 12)), relay: &relay{}, git: fetchtest.New(), store: state.NewMemory(),
				kills: kills, held: make(map[string]promise), deleted: make(map[string]bool), endings: make(map[string]int),
				behind: make(map[graspsync.RepoRef]struct{}),
			}
			t.Cleanup(func() {
				if t.Failed() { // a failure in a step ends its goroutine, so others would wait forever
					t.Logf("seed %d", seed)
				}
			})
			if seed%2 == 0 {
				c.rule = unanswered()
			}
			c.play()
			released += len(c.endings)
		})
		if t.Failed() {
			return
		}
	}
	total := 0
	for _, n := range kills {
		total += n
	}
	t.Logf("killed %d times: %v; released %d", total, kills, released)
	for _, name := range durableSteps {
		require.True(t, kills[name] > 0 || testing.Short(), name) // a few seeds do not reach all steps
	}
}

func (c *crashes) play() {
	for i := range 8 {
		for j := range 8 {
			if j%(i+1) == 0 {
				c.git.Needs(object(i), object(8))
			}
		}
	}
	c.livesFor()
	c.open()
	for n := range 25 {
		if c.life.dead.Load() {
			c.restart()
		}
		c.act(n)
		synctest.Wait()
		c.check(fmt.Sprint("action ", n))
		wait(time.Duration(c.rng.IntN(300)) * time.Second)
	}
	c.mu.Lock()
	c.final, c.left = true, 0
	c.mu.Unlock()
	if c.life.dead.Load() {
		c.restart()
	}
	wait(49 * time.Hour)
	c.check("end")
	require.Empty(c.t, slices.Collect(maps.Keys(c.disk("entry/"))), "everything is released or expired")
	require.Empty(c.t, c.disk("aligning/"))
	require.Empty(c.t, c.behind, "what was locked when a state was served has followed it")
	for id, n := range c.endings {
		require.Equal(c.t, 1, n, "%s was released more than once", id)
	}
	c.stop()
	synctest.Wait()
}

func (c *crashes) restart() {
	for c.life.dead.Load() {
		c.stop()
		c.check("after a crash")
		wait(time.Duration(c.rng.IntN(600)) * time.Second)
		if !c.final {
			c.livesFor()
		}
		c.open()
		synctest.Wait()
	}
}
