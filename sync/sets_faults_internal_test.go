package sync

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/sync/internal/negentropy"
)

// stampStore yields what it has, a stamp every so often, and fails or panics after so many.
type stampStore struct {
	Store
	stamps []graspsync.Stamp
	every  time.Duration
	failAt int // 0: never
	panics bool

	mu          sync.Mutex
	reads, busy int // guarded by mu
	mostBusy    int // guarded by mu
}

// Stamps implements [Store].
func (s *stampStore) Stamps(ctx context.Context, _ nostr.Filter) iter.Seq2[graspsync.Stamp, error] {
	return func(yield func(graspsync.Stamp, error) bool) {
		s.enter()
		defer s.leave()
		for i, st := range s.stamps {
			select {
			case <-time.After(s.every):
			case <-ctx.Done():
				yield(graspsync.Stamp{}, ctx.Err())
				return
			}
			if s.failAt == i+1 {
				if s.panics {
					panic("no disk")
				}
				yield(graspsync.Stamp{}, errDisk)
				return
			}
			if !yield(st, nil) {
				return
			}
		}
	}
}

func (s *stampStore) enter() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reads++
	s.busy++
	s.mostBusy = max(s.mostBusy, s.busy)
}

func (s *stampStore) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.busy--
}

var errDisk = errors.New("disk on fire")

// holdingPolicy holds something, or can't say.
type holdingPolicy struct {
	held   []graspsync.Stamp
	err    error
	panics bool
}

func (*holdingPolicy) Authority(graspsync.RepoRef, View) *nip34.Authority { return nil }

func (*holdingPolicy) Heard(string, View) map[graspsync.PubKey]bool { return nil }

func (p *holdingPolicy) Judge(context.Context, graspsync.Event, graspsync.Source, View) (graspsync.Verdict, error) {
	return graspsync.Verdict{Decision: graspsync.Accept}, nil
}
func (p *holdingPolicy) Lists(*nip34.Announcement) bool { return true }

func (*holdingPolicy) HeldForUser(graspsync.EventID) (byUser, held bool) { return false, false }

func (*holdingPolicy) HeldAnnouncements(context.Context) iter.Seq2[*nip34.Announcement, error] {
	return func(func(*nip34.Announcement, error) bool) {}
}

func (p *holdingPolicy) Held(context.Context, nostr.Filter) ([]graspsync.Stamp, error) {
	if p.panics {
		panic("no purgatory")
	}
	return p.held, p.err
}

func stampsFrom(n, count int) (out []graspsync.Stamp) {
	for i := range count {
		out = append(out, graspsync.Stamp{CreatedAt: 1, ID: testID(n + i)})
	}
	return out
}

// Who waits for a set has it when it is loaded. It is the first test of sets and the only one
// by the wall clock: a bubble in which somebody runs in a circle never ends.
func TestLoadedSetIsHad(t *testing.T) {
	s := newSets(&stampStore{}, nil, 10, nil, nil)
	for range 2 {
		loaded := make(chan error, 1)
		go func() {
			_, err := s.load(t.Context(), nostr.Filter{})
			loaded <- err
		}()
		select {
		case err := <-loaded:
			require.NoError(t, err)
		case <-time.After(10 * time.Second):
			t.Fatal("it is not given out")
		}
	}
}

// What can't be read whole is no set: whoever fails, or brings one too many, is told of, is
// not asked twice for it, and is not believed the next time.
func TestSetOfWhatCannotBeReadWhole(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const most = 6
		for stored := range most + 2 {
			for held := range most + 2 {
				for rejected := range most + 2 {
					store, policy := &stampStore{stamps: stampsFrom(0, stored)}, &holdingPolicy{held: stampsFrom(100, held)}
					s := newSets(store, policy, most, nil, nil)
					s.counters = &counters{}
					s.rejected = testAbsent(100, 10, 1<<20)
					for i := range rejected {
						s.rejected.Add(testNote(200 + i))
					}
					all := stored + held + rejected
					set, err := s.load(t.Context(), nostr.Filter{})
					if all > most {
						require.ErrorIs(t, err, errSetTooLarge)
						require.Nil(t, set)
						require.Empty(t, s.loaded)
						continue
					}
					require.NoError(t, err)
					require.Equal(t, all, set.Len())
				}
			}
		}
		for _, panics := range []bool{false, true} {
			for failAt := range 4 {
				store := &stampStore{stamps: stampsFrom(0, 3), failAt: failAt + 1, panics: panics}
				s := newSets(store, &holdingPolicy{}, most, nil, nil)
				s.counters = &counters{}
				for range 2 {
					set, err := s.load(t.Context(), nostr.Filter{})
					switch {
					case failAt == 3:
						require.NoError(t, err)
						require.Equal(t, 3, set.Len())
					case panics:
						require.EqualError(t, err, "store panicked: no disk")
					default:
						require.ErrorIs(t, err, errDisk)
						require.ErrorContains(t, err, "reading what is stored")
					}
					require.Equal(t, err != nil, len(s.loaded) == 0, "what failed is not kept")
					require.Empty(t, s.places)
				}
				if panics && failAt < 3 {
					require.Equal(t, map[string]uint64{"store": 2}, s.counters.panics)
				} else {
					require.Empty(t, s.counters.panics)
				}
			}
		}
		for _, policy := range []*holdingPolicy{{err: errDisk}, {panics: true}} {
			s := newSets(&stampStore{}, policy, most, nil, nil)
			s.counters = &counters{}
			_, err := s.load(t.Context(), nostr.Filter{})
			require.ErrorContains(t, err, "reading what is held")
			if policy.panics {
				require.ErrorContains(t, err, "no purgatory")
				require.Equal(t, map[string]uint64{"policy": 1}, s.counters.panics)
			} else {
				require.ErrorIs(t, err, errDisk)
			}
		}
	})
}

// releasing has one event held until somebody has looked at what is held or stored: then it is
// released.
type releasing struct {
	Store
	holdingPolicy
	released bool
}

func (r *releasing) Stamps(context.Context, nostr.Filter) iter.Seq2[graspsync.Stamp, error] {
	return func(yield func(graspsync.Stamp, error) bool) {
		if r.released {
			yield(stampsFrom(1, 1)[0], nil)
		}
		r.released = true
	}
}

func (r *releasing) Held(context.Context, nostr.Filter) ([]graspsync.Stamp, error) {
	if r.released {
		return nil, nil
	}
	r.released = true
	return stampsFrom(1, 1), nil
}

// An event that was released between two looks was in neither of them, and was fetched again.
func TestReleasedWhileASetIsRead(t *testing.T) {
	r := &releasing{}
	set, err := newSets(r, r, 10, nil, nil).load(t.Context(), nostr.Filter{})
	require.NoError(t, err)
	require.Equal(t, 1, set.Len())
}

// Times that peers crash on are left out, and no others.
func TestTimesInASet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for at, in := range map[nostr.Timestamp]bool{
			-1 << 63: false, -1: false, 0: true, 1: true, 1<<53 - 1: true, 1 << 53: true, 1<<53 + 1: false, 1<<63 - 1: false,
		} {
			s := newSets(&stampStore{stamps: []graspsync.Stamp{{CreatedAt: at}}}, nil, 10, nil, nil)
			set, err := s.load(t.Context(), nostr.Filter{})
			require.NoError(t, err)
			require.Equal(t, in, set.Len() == 1, at)
		}
	})
}

// Of those who wait for a set each has it, the end of its own context or what the Store has
// said, whoever of them hangs up or runs out of time, in whatever order; the Store is asked
// again for a set that nobody has waited for to its end, and only for such.
func TestWhoWaitsForASet(t *testing.T) {
	for leaves := range 8 {
		for _, late := range []bool{false, true} {
			for _, failAt := range []int{0, 2} {
				t.Run(fmt.Sprint(leaves, late, failAt), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) { waitForASet(t, leaves, late, failAt) })
				})
			}
		}
	}
}

// waitForASet has three relays wait for a set that takes three seconds. Those in leaves end
// one after the other while it is loaded, or run out of time if late is set.
func waitForASet(t *testing.T, leaves int, late bool, failAt int) {
	store := &stampStore{stamps: stampsFrom(0, 3), every: time.Second, failAt: failAt}
	s := newSets(store, nil, 10, nil, nil)
	type answer struct {
		set *negentropy.Set
		err error
	}
	answers := make([]chan answer, 3)
	for i := range answers {
		answers[i] = make(chan answer, 1)
		ctx, cancel := context.WithCancel(t.Context())
		if end := time.Duration(i+1) * 200 * time.Millisecond; leaves&(1<<i) != 0 && late {
			ctx, cancel = context.WithTimeout(t.Context(), end)
		} else if leaves&(1<<i) != 0 {
			time.AfterFunc(end, cancel)
		}
		defer cancel()
		go func() {
			set, err := s.load(ctx, nostr.Filter{})
			answers[i] <- answer{set, err}
		}()
		synctest.Wait()
	}
	time.Sleep(20 * time.Second) // well before a set is too old
	synctest.Wait()
	first := leaves&1 != 0
	for i := range answers {
		require.Len(t, answers[i], 1, "nobody waits for ever")
		a := <-answers[i]
		switch {
		case leaves&(1<<i) != 0 && late:
			assert.ErrorIs(t, a.err, context.DeadlineExceeded)
		case leaves&(1<<i) != 0:
			assert.ErrorIs(t, a.err, context.Canceled)
		case first && late: // the Store was too slow for it, and so is it for the others
			assert.ErrorIs(t, a.err, context.DeadlineExceeded)
		case failAt > 0:
			assert.ErrorIs(t, a.err, errDisk)
		default:
			assert.NoError(t, a.err)
			assert.Equal(t, 3, a.set.Len())
		}
		if a.err != nil {
			assert.Nil(t, a.set)
		}
	}
	store.mu.Lock()
	defer store.mu.Unlock()
	least, most := 1, 1
	if first && !late { // who loads it and hangs up leaves that to another one, who may hang up as well
		least, most = 2, 3
		if leaves == 0b001 {
			most = 2
		}
	}
	assert.GreaterOrEqual(t, store.reads, least)
	assert.LessOrEqual(t, store.reads, most)
	assert.Zero(t, store.busy)
	assert.Empty(t, s.places)
}

// Four sets are loaded at once, and who waits for its turn need not.
func TestSetsAreLoadedFewAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &stampStore{stamps: stampsFrom(0, 1), every: time.Minute}
		s := newSets(store, nil, 10, nil, nil)
		ctx, cancel := context.WithTimeout(t.Context(), 90*time.Second)
		defer cancel()
		ended := make(chan error, 9)
		for i := range 9 {
			go func() {
				_, err := s.load(ctx, nostr.Filter{Kinds: []int{i}})
				ended <- err
			}()
		}
		loaded := 0
		for range 9 {
			if err := <-ended; err == nil {
				loaded++
			} else {
				require.ErrorIs(t, err, context.DeadlineExceeded)
			}
		}
		require.Equal(t, 4, loaded)
		require.Equal(t, 4, store.mostBusy)
		require.Equal(t, 8, store.reads, "who has no place does not read")
		synctest.Wait()
		require.Empty(t, s.places)
		require.Len(t, s.loaded, 4)
		// The first of them are a minute and a half old.
		_, err := s.load(t.Context(), nostr.Filter{Kinds: []int{0}})
		require.NoError(t, err)
		require.Equal(t, 9, store.reads, "it is too old")
		require.Len(t, s.loaded, 1)
	})
}

// A set is used for half a minute, counted from when it was begun.
func TestAgeOfASet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &stampStore{}
		s := newSets(store, nil, 10, nil, nil)
		for _, step := range []struct {
			wait  time.Duration
			reads int
		}{{0, 1}, {30 * time.Second, 1}, {1, 2}, {29 * time.Second, 2}, {2 * time.Second, 3}} {
			time.Sleep(step.wait)
			_, err := s.load(t.Context(), nostr.Filter{})
			require.NoError(t, err)
			require.Equal(t, step.reads, store.reads)
		}
	})
}
