package purgatory

import (
	"context"
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
	"github.com/graspsync/graspsync/purgatory/internal/resolve"
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
