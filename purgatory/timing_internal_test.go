package purgatory

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/eventtest"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory/internal/ledger"
	"github.com/graspsync/graspsync/purgatory/internal/resolve"
	"github.com/graspsync/graspsync/purgatory/internal/stopwatch"
)

// listing is a relay that notes when it is asked what it serves, and fails at first.
type listing struct {
	*scales
	began time.Time // nothing is served then
	mu    sync.Mutex
	at    []time.Time
	fails int
}

func (l *listing) Events(ctx context.Context, f nostr.Filter) iter.Seq2[graspsync.Event, error] {
	if len(f.Tags) > 0 || !slices.Contains(f.Kinds, graspsync.KindAnnouncement) {
		return l.scales.Events(ctx, f)
	}
	return func(yield func(graspsync.Event, error) bool) {
		if !time.Now().After(l.began) {
			return
		}
		l.mu.Lock()
		l.at = append(l.at, time.Now())
		fails := len(l.at) <= l.fails
		l.mu.Unlock()
		for n := range 4 {
			if fails {
				yield(graspsync.Event{}, errScales)
				return
			}
			if !yield(eventtest.Of(eventBy(l.ref.Owner, 1, graspsync.KindAnnouncement, nostr.Tag{"d", fmt.Sprint("r", n)})), nil) {
				return
			}
		}
	}
}

// The first check comes after a tenth of the time between two, or up to a fifth, so that servers
// that were started together do not ask together; it is spread over the time there is, and is
// made again a minute after it failed.
func TestChecksAreSpread(t *testing.T) {
	for n := range 20 {
		synctest.Test(t, func(t *testing.T) {
			w := newRationed(t, 0)
			relay := &listing{scales: w.scales, began: time.Now(), fails: n % 3}
			w.open(relay, w.scales, false)
			p := w.p
			began := time.Now()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			go p.checks.run(ctx)
			told := make(map[string]time.Time)
			for range 4 * 60 {
				time.Sleep(time.Minute / 2)
				synctest.Wait()
				items, _ := p.inbox.take()
				for _, x := range items {
					require.True(t, x.(news).why.Check)
					if id := x.(news).identifier; told[id].IsZero() {
						told[id] = time.Now()
					}
				}
			}
			relay.mu.Lock()
			defer relay.mu.Unlock()
			first := relay.at[0].Sub(began)
			require.True(t, first >= 6*time.Minute && first <= 12*time.Minute+1, first)
			for i := range n % 3 {
				require.Equal(t, time.Minute, relay.at[i+1].Sub(relay.at[i]), "after a failure")
			}
			require.Equal(t, n%3, strings.Count(w.log.String(), "listing repositories failed"))
			first = relay.at[n%3].Sub(began)
			next := relay.at[n%3+1].Sub(relay.at[n%3])
			require.True(t, next >= 54*time.Minute && next <= time.Hour+1, next)
			for i := range 4 {
				late := told[fmt.Sprint("r", i)].Sub(began.Add(first + time.Duration(i)*12*time.Minute))
				require.True(t, late >= 0 && late < 30*time.Second, "%d %v", i, late)
			}
		})
	}
}

// upkeeper is git that notes which repositories it puts in order, and when.
type upkeeper struct {
	*scales
	mu    sync.Mutex
	began []time.Time
	takes time.Duration
	err   error
}

func (u *upkeeper) Maintain(ctx context.Context, how Maintenance) (Maintained, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.began = append(u.began, time.Now())
	time.Sleep(u.takes)
	return Maintained{}, u.err
}

// After each repository that is put in order comes a pause as long as that took, and of a minute at
// most. All are due an hour or two after the start, and then once a day or a little later; one to
// which much has come is at once. What fails is told once a minute, but for a repository that is
// not there.
func TestUpkeepInTime(t *testing.T) {
	for _, takes := range []time.Duration{time.Second, 59 * time.Second, time.Minute, 5 * time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			w := newRationed(t, 0)
			u := &upkeeper{scales: w.scales, takes: takes, err: errScales}
			w.open(w.scales, u, false)
			m, began := w.p.maintenance, time.Now()
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan struct{})
			go func() { m.run(ctx); close(done) }()
			time.Sleep(time.Second)
			synctest.Wait()
			for n := range 3 {
				for range upkeepPushes - 1 {
					m.schedule.brought(graspsync.RepoRef{Owner: graspsync.PubKey{byte(n)}, Identifier: "x"})
				}
			}
			synctest.Wait()
			require.Empty(t, u.began)
			for n := range 3 {
				m.schedule.brought(graspsync.RepoRef{Owner: graspsync.PubKey{byte(n)}, Identifier: "x"})
			}
			time.Sleep(50 * time.Minute)
			synctest.Wait()
			u.mu.Lock()
			require.Len(t, u.began, 3)
			require.Equal(t, time.Second, u.began[0].Sub(began), "at once")
			for i := range 2 {
				require.Equal(t, takes+min(takes, time.Minute), u.began[i+1].Sub(u.began[i]))
			}
			u.began, u.err = nil, fmt.Errorf("maintaining: %w", ErrNoRepository)
			u.mu.Unlock()
			require.Equal(t, 3, strings.Count(w.log.String(), "could not be maintained"))
			time.Sleep(72 * time.Hour)
			synctest.Wait()
			u.mu.Lock()
			first := u.began[0].Sub(began)
			require.True(t, first >= time.Hour && first <= 2*time.Hour, first)
			for i := range len(u.began) - 1 {
				next := u.began[i+1].Sub(u.began[i])
				require.True(t, next >= 24*time.Hour && next <= 24*time.Hour*11/10, next)
			}
			require.Len(t, u.began, 3)
			u.mu.Unlock()
			require.Equal(t, 3, strings.Count(w.log.String(), "could not be maintained"), "it left")
			cancel()
			<-done
		})
	}
}

// What those name who have a say is kept: what waits, and the newest state that is stored.
func TestNamedBy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newRationed(t, 0)
		p, at := w.p, time.Now().Unix()
		state := func(by graspsync.PubKey, at int64, n int) *nostr.Event {
			return eventBy(by, at, graspsync.KindState, nostr.Tag{"d", "r"}, nostr.Tag{"HEAD", "ref: refs/heads/main"},
				nostr.Tag{"refs/heads/main", objectOf(n).String()})
		}
		pull := func(by graspsync.PubKey, n int) *nostr.Event {
			return eventBy(by, at, graspsync.KindPullRequest, nostr.Tag{"a", w.ref.String()}, nostr.Tag{"c", objectOf(n).String()})
		}
		stranger := graspsync.PubKey{9}
		named := func() []string {
			ids, err := p.reader.namedBy(t.Context(), w.ref)
			require.NoError(t, err)
			return tips(ids)
		}
		require.Empty(t, named())
		for n, ev := range map[int]*nostr.Event{0x51: state(w.ref.Owner, at-100, 0x51), 0x52: state(w.ref.Owner, at-50, 0x52)} {
			s, err := nip34.ParseState(eventtest.Of(ev))
			require.NoError(t, err, n)
			w.states = append(w.states, s)
		}
		require.Equal(t, []string{"52"}, named())
		for _, ev := range []*nostr.Event{
			state(w.ref.Owner, at, 0x61), state(stranger, at, 0x62), pull(w.ref.Owner, 0x63), pull(stranger, 0x64), pull(stranger, 0x65),
		} {
			answer, err := p.Submit(t.Context(), eventtest.Of(ev), graspsync.Source{Kind: graspsync.CatchUp})
			require.NoError(t, err)
			require.Equal(t, Held, answer.Decision)
		}
		require.Equal(t, []string{"52", "61", "63"}, named())
		w.fail = "announcements"
		_, err := p.reader.namedBy(t.Context(), w.ref)
		require.ErrorIs(t, err, errScales)
	})
}

// The time of an entry is over at its deadline, unless a look goes by it, or a request is under way
// for it that was made before that.
func TestOverdue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, deadline := newRationed(t, 0).p, time.Now().Add(time.Minute)
		ref := graspsync.RepoRef{Owner: graspsync.PubKey{4}, Identifier: "x"}
		entries := make(map[string]ledger.Entry)
		for n, class := range []ledger.Class{ledger.Announcement, ledger.State, ledger.PullRequest} {
			e := ledger.Entry{ID: graspsync.EventID{byte(n + 1)}, Class: class, Repos: []graspsync.RepoRef{ref}, Deadline: deadline}
			p.entries.waiting.ledger.Put(e)
			entries[class.String()] = e
		}
		is := func(e ledger.Entry) bool {
			_, over := p.entries.overdue(e.ID)
			_, ending := p.entries.pins.ending[e.ID]
			require.Equal(t, over, ending)
			p.entries.pins.notEnding(e.ID)
			require.Empty(t, p.entries.pins.ending)
			return over
		}
		_, none := p.entries.overdue(graspsync.EventID{99})
		require.False(t, none)
		time.Sleep(time.Minute - 1)
		for name, e := range entries {
			require.False(t, is(e), name)
		}
		time.Sleep(time.Nanosecond)
		f := p.fetches
		for name, e := range entries {
			require.True(t, is(e), name)
			p.entries.pins.pinned[e.ID] = 1
			require.False(t, is(e), name)
			delete(p.entries.pins.pinned, e.ID)
			pl := f.gatherings.enter(ref)
			g := f.gatherings.gathering(pl, question{})
			for at, before := range map[time.Time]bool{deadline: false, deadline.Add(-1): true} {
				f.gatherings.began(g, at)
				require.True(t, is(e), name+": nothing is needed")
				p.findings.needs["x"] = map[graspsync.RepoRef]resolve.Need{ref: {}}
				require.Equal(t, !before || name != "announcement", is(e), name+": of others")
				p.findings.needs["x"] = map[graspsync.RepoRef]resolve.Need{ref: {Entries: []graspsync.EventID{e.ID}}}
				require.Equal(t, !before, is(e), name)
				delete(p.findings.needs, "x")
			}
			f.gatherings.giveBack(pl, g)
			f.gatherings.leave(ref, pl)
		}
		soft := entries["announcement"]
		soft.Soft = true
		p.entries.waiting.ledger.Put(soft)
		pl := f.gatherings.enter(ref)
		f.gatherings.began(f.gatherings.gathering(pl, question{}), deadline.Add(-1))
		p.findings.needs["x"] = map[graspsync.RepoRef]resolve.Need{ref: {}}
		require.True(t, is(soft), "it has no repository")
	})
}

// A walk that was cut short is made again after five minutes, or at once if it may take longer.
func TestWalksThatWereCutShort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newRationed(t, 0)
		git := &walker{scales: w.scales}
		w.open(w.scales, git, false)
		try := func(until time.Duration, past walked) error {
			git.tries = 0
			r := &repository{Repository: &resolve.Repository{Ref: w.ref}, watch: stopwatch.New(time.Hour, ErrCrowded), until: until}
			return (&walk{git: w.p.looker.git, r: r, past: past}).walk(t.Context(), []nip34.ObjectID{objectOf(1)})
		}
		past := walked{whole: make(map[nip34.ObjectID]bool), long: make(map[nip34.ObjectID]cut)}
		git.takes = 10 * time.Second
		err := try(18*time.Second, past)
		require.ErrorIs(t, err, errLong)
		at := time.Now().Add(-9 * time.Second)
		require.Equal(t, map[nip34.ObjectID]cut{objectOf(1): {at: at, after: 9 * time.Second}}, past.long)
		err = try(18*time.Second, past)
		require.ErrorIs(t, err, errLong)
		require.Zero(t, git.tries)
		err = try(18*time.Second+2, past)
		require.ErrorIs(t, err, errLong)
		require.Equal(t, 1, git.tries, "it has more time")
		require.Equal(t, 9*time.Second+1, past.long[objectOf(1)].after)
		time.Sleep(5*time.Minute - 9*time.Second - 2)
		require.ErrorIs(t, try(4*time.Second, past), errLong)
		require.Zero(t, git.tries)
		time.Sleep(time.Nanosecond)
		err = try(4*time.Second, past)
		require.ErrorIs(t, err, errLong)
		require.Equal(t, 1, git.tries, "a while later")
		require.Equal(t, 9*time.Second+1, past.long[objectOf(1)].after, "the longest")
		git.takes = 0
		time.Sleep(time.Hour)
		err = try(4*time.Second, past)
		require.NoError(t, err)
		require.Equal(t, map[nip34.ObjectID]bool{objectOf(1): true}, past.whole)
		git.err = errScales
		err = try(4*time.Second, walked{})
		require.ErrorIs(t, err, errScales)
		require.NotErrorIs(t, err, errLong)
	})
}

// walker is git that takes its time to walk histories.
type walker struct {
	*scales
	tries int
	takes time.Duration
	err   error
}

func (w *walker) Missing(ctx context.Context, _ string, _ []nip34.ObjectID) ([]nip34.ObjectID, error) {
	w.tries++
	select {
	case <-time.After(w.takes):
		return nil, w.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// What took long to be taken is left alone for five minutes, if its event still waits.
func TestWhatTookLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newRationed(t, 0)
		pr := w.pulls[0]
		w.p.entries.takes.note(pr.ID)
		require.False(t, w.p.entries.takes.took(pr.ID))
		w.held(pr)
		w.p.entries.takes.note(pr.ID)
		time.Sleep(5*time.Minute - 1)
		require.True(t, w.p.entries.takes.took(pr.ID))
		time.Sleep(time.Nanosecond)
		require.False(t, w.p.entries.takes.took(pr.ID))
	})
}

// A look's work ends for its time, or since others have all places: each is told apart, and from
// what git says.
func TestWorkEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &repository{watch: stopwatch.New(time.Minute, ErrCrowded), until: 10 * time.Second}
		until := func(ctx context.Context) error { <-ctx.Done(); return fmt.Errorf("killed: %w", ctx.Err()) }
		require.Equal(t, 10*time.Second, r.left())
		err := r.work(t.Context(), 3*time.Second, until)
		require.ErrorIs(t, err, errLong)
		require.ErrorContains(t, err, "killed")
		require.Equal(t, 7*time.Second, r.left())
		err = r.work(t.Context(), 3*time.Second, func(ctx context.Context) error {
			defer stopwatch.Waits(ctx)()
			return until(ctx)
		})
		require.ErrorIs(t, err, ErrCrowded)
		require.NotErrorIs(t, err, errLong)
		for _, told := range []error{errLong, ErrCrowded} {
			require.ErrorIs(t, r.work(t.Context(), time.Second, func(context.Context) error { return fmt.Errorf("it says: %w", told) }), told)
		}
		require.Equal(t, errScales, r.work(t.Context(), time.Second, func(context.Context) error { return errScales }))
		require.NoError(t, r.work(t.Context(), time.Second, func(context.Context) error { return nil }))
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		err = r.work(ctx, time.Second, until)
		require.ErrorIs(t, err, context.Canceled)
		require.False(t, errors.Is(err, errLong) || errors.Is(err, ErrCrowded))
	})
}

// The log says when a hunt begins: what a user submitted is not hunted for at once, since a push follows.
func TestHuntSaysWhen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newRationed(t, 0)
		e, n := w.p.engine, resolve.Need{IDs: []nip34.ObjectID{objectOf(1)}, Members: map[graspsync.PubKey]struct{}{{3}: {}}}
		for byUser, delay := range map[bool]time.Duration{true: 3 * time.Minute, false: 500 * time.Millisecond} {
			w.log.Reset()
			e.hunt(t.Context(), time.Now(), w.ref, n, resolve.Reasons{Owners: map[graspsync.PubKey]bool{{3}: byUser}})
			require.Contains(t, w.log.String(), `msg="hunt queued"`)
			require.Contains(t, w.log.String(), " at="+time.Now().Add(delay).Format("2006-01-02T15:04:05.000Z07:00"))
			e.wholes(t.Context(), time.Now(), []graspsync.RepoRef{w.ref})
			require.Zero(t, e.queue.Due(w.ref))
			e.wg.Wait()
		}
	})
}

// What is hunted for in vain of a repository that only lists is left alone for longer each time.
func TestPatience(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newRationed(t, 0)
		e, n := w.p.engine, resolve.Need{IDs: []nip34.ObjectID{objectOf(1)}, Own: nil}
		hunts := func(why resolve.Reasons) bool {
			w.log.Reset()
			e.hunt(t.Context(), time.Now(), w.ref, n, why)
			return strings.Contains(w.log.String(), "hunt queued")
		}
		require.False(t, hunts(resolve.Reasons{}), "there is no reason to")
		for k := 1; k < 8; k++ {
			require.True(t, hunts(resolve.Reasons{Check: true}))
			left := min(54*time.Minute<<(k-1), 24*time.Hour)
			require.Equal(t, patience{time.Now().Add(left), k}, e.patient[w.ref])
			require.Equal(t, e.patient[w.ref], e.servers.hunted[w.ref].vain)
			time.Sleep(left - 1)
			require.False(t, hunts(resolve.Reasons{Check: true}))
			time.Sleep(time.Nanosecond)
		}
		n.Members = map[graspsync.PubKey]struct{}{{3}: {}}
		was := maps.Clone(e.patient)
		require.True(t, hunts(resolve.Reasons{Owners: map[graspsync.PubKey]bool{{3}: true}}), "it is anew")
		require.Equal(t, was, e.patient)
		e.wholes(t.Context(), time.Now(), slices.Collect(maps.Keys(was)))
		e.wg.Wait()
		require.Empty(t, e.patient)
		require.Zero(t, e.servers.hunted[w.ref].vain)
	})
}
