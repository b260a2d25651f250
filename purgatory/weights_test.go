package purgatory_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory"
)

// sizes are objects that need others, in bytes.
type sizes struct {
	bytes map[int]int64
	needs map[int][]int
}

// sizesOf draws objects from 2 on, each of which may need some before it.
func (w *world) sizesOf(rng *rand.Rand, n int) sizes {
	s := sizes{make(map[int]int64), make(map[int][]int)}
	for i := 2; i < 2+n; i++ {
		s.bytes[i] = int64(1) << rng.IntN(20)
		w.git.Size(object(i), s.bytes[i])
		var needs []nip34.ObjectID
		for range rng.IntN(3) {
			o := 1 + rng.IntN(i-1)
			s.needs[i] = append(s.needs[i], o)
			needs = append(needs, object(o))
		}
		w.git.Needs(object(i), needs...)
		w.git.Put(repoOf(alice), object(i))
	}
	return s
}

func (s sizes) reach(seen map[int]bool, n int) {
	if seen[n] {
		return
	}
	seen[n] = true
	for _, o := range s.needs[n] {
		s.reach(seen, o)
	}
}

// of is what some objects take up that others do not.
func (s sizes) of(ids, but []int) (sum int64) {
	here, there := make(map[int]bool), make(map[int]bool)
	for _, n := range ids {
		s.reach(here, n)
	}
	for _, n := range but {
		s.reach(there, n)
	}
	for n := range here {
		if !there[n] {
			sum += s.bytes[n]
		}
	}
	return sum
}

// What pull requests count for is together what they take up, to the byte, whatever they share,
// comes and goes, and however long it takes to find out; none counts for more than it needs.
func TestWeightsAreWhatThereIs(t *testing.T) {
	for seed := range uint64(40) {
		run(t, purgatory.Config{Limits: purgatory.Limits{MaxPullBytes: 1 << 40}}, func(t *testing.T, w *world) {
			rng := rand.New(rand.NewPCG(seed, 5))
			w.serveAlice()
			s := w.sizesOf(rng, 10)
			slow := time.Duration(0)
			w.git.FailWith(func(op string) error {
				if op == "weigh" {
					time.Sleep(slow)
				}
				return nil
			})
			there := make(map[nip34.RefName]int)
			for range 30 {
				slow = time.Duration(rng.IntN(3)) * 350 * time.Millisecond
				name, tip := junk(rng.IntN(12)), 2+rng.IntN(10)
				if _, has := there[name]; has {
					delete(there, name)
					w.git.Push(repoOf(alice), map[nip34.RefName]nip34.ObjectID{name: {}})
				} else {
					there[name] = tip
					w.git.Push(repoOf(alice), map[nip34.RefName]nip34.ObjectID{name: object(tip)})
				}
				dir, unlock, err := w.git.Lock(t.Context(), repoOf(alice))
				require.NoError(t, err)
				weights, err := w.p.Weights(t.Context(), repoOf(alice), dir)
				unlock()
				require.NoError(t, err)
				var ids []int
				sum := int64(0)
				for name, tip := range there {
					ids = append(ids, tip)
					id, err := graspsync.ParseEventID(strings.TrimPrefix(name.String(), "refs/nostr/"))
					require.NoError(t, err)
					require.LessOrEqual(t, weights[id], s.of([]int{tip}, []int{1}), name)
					sum += weights[id]
				}
				require.Equal(t, s.of(ids, []int{1}), sum, fmt.Sprint(there, weights))
				require.Len(t, weights, len(there))
			}
			for name := range there {
				w.git.Push(repoOf(alice), map[nip34.RefName]nip34.ObjectID{name: {}})
			}
		})
	}
}

// What is removed whose event has not come counts as given way for what only that needed, as
// long as it may be on the disk.
func TestWhatIsRemovedCountsAsDisplaced(t *testing.T) {
	run(t, purgatory.Config{}, func(t *testing.T, w *world) {
		w.serveAlice()
		w.git.Size(object(1), 1000)
		for n, bytes := range map[int]int64{2: 200, 3: 30, 4: 4} {
			w.git.Size(object(n), bytes)
		}
		w.git.Needs(object(3), object(1), object(4))
		for n, tip := range []int{2, 2, 3} { // two need the same
			w.pushed(repoOf(alice), junk(n), object(tip))
			wait(time.Second)
			require.Zero(t, w.p.Displaced(repoOf(alice).Owner))
		}
		wait(21 * time.Minute)
		require.Zero(t, w.pullRefs(repoOf(alice)))
		require.EqualValues(t, 234, w.p.Displaced(repoOf(alice).Owner))
		require.Zero(t, w.p.Displaced(repoOf(bob).Owner))
	})
}
