package purgatory

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/goldentest"
	"github.com/graspsync/graspsync/purgatory/internal/hunt"
	"github.com/graspsync/graspsync/purgatory/internal/resolve"
)

func sortedLines[K comparable, V any](of map[K]V, text func(K, V) string) string {
	var out []string
	for k, v := range of {
		out = append(out, text(k, v))
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}

// told is what reasons say, in order.
func told(c resolve.Reasons) string {
	key := func(k graspsync.PubKey, by bool) string { return fmt.Sprint(k[0], by) }
	ref := func(r graspsync.RepoRef, by bool) string { return fmt.Sprint(r.Owner[0], r.Identifier, by) }
	id := func(i graspsync.EventID, by bool) string { return fmt.Sprint(i[0], by) }
	return fmt.Sprintf("{%v %v owners %s gained %s left %s fresh %s}", c.Check, c.Late,
		sortedLines(c.Owners, key), sortedLines(c.Gained, ref), sortedLines(c.Left, ref), sortedLines(c.Fresh, id))
}

// In drawn worlds of owners, looks that take their time, fail and are slow, and surveys, each
// turn, what it is for and when it is tried again is what it was before.
func TestWorldsOfTurns(t *testing.T) {
	sums := goldentest.NewSums(t, "testdata/turns.sum")
	for seed := range uint64(30) {
		rng := rand.New(rand.NewPCG(seed, 3))
		places := 1 + rng.IntN(6)
		var turns []turn
		l, s, tries := newLooks(places, func(t turn) { turns = append(turns, t) }), newSurveys(places), make(retries[graspsync.RepoRef])
		owners, now := 1+rng.IntN(5), time.Unix(1_000_000, 0)
		began := now
		var lines []string
		say := func(format string, args ...any) { lines = append(lines, fmt.Sprintf(format, args...)) }
		ref := func() graspsync.RepoRef {
			return graspsync.RepoRef{Owner: graspsync.PubKey{byte(rng.IntN(owners))}, Identifier: fmt.Sprint("r", rng.IntN(4))}
		}
		why := func() (c resolve.Reasons) {
			by := rng.IntN(2) == 0
			switch rng.IntN(7) {
			case 0:
				c.Check = true
			case 1:
				c.Late = true
			case 2:
				c.Owners = map[graspsync.PubKey]bool{{byte(rng.IntN(4))}: by}
			case 3:
				c.Gained = map[graspsync.RepoRef]bool{ref(): by}
			case 4:
				c.Left = map[graspsync.RepoRef]bool{ref(): by}
			case 5:
				c.Fresh = map[graspsync.EventID]bool{{byte(rng.IntN(4))}: by}
			}
			return c
		}
		name := func(r graspsync.RepoRef) string { return fmt.Sprint(r.Owner[0], r.Identifier) }
		var looking []graspsync.RepoRef
		var surveying []string
		for range 200 {
			switch n := rng.IntN(12); {
			case n < 4:
				r, in := ref(), lane(rng.IntN(2))
				l.want(r, why(), in)
				say("wants %s %d", name(r), in)
			case n < 7:
				if len(turns) == 0 {
					continue
				}
				r := turns[0].ref
				c, ok := l.begin(turns[0])
				turns = turns[1:]
				if ok {
					c = tries.begin(r, c)
					looking = append(looking, r)
				}
				say("next %v %s %s", ok, name(r), told(c))
			case n < 9 && len(looking) > 0:
				i := rng.IntN(len(looking))
				r := looking[i]
				looking = slices.Delete(looking, i, i+1)
				say("done %s %d", name(r), l.done(r))
				switch rng.IntN(3) {
				case 0:
					delete(tries, r)
				case 1:
					tries.failed(r, why(), now)
				case 2:
					tries.slow(r, rng.IntN(2) == 0)
				}
			case n == 9:
				s.want(fmt.Sprint(rng.IntN(5)), why())
				identifier, c, ok := s.next()
				if ok {
					surveying = append(surveying, identifier)
				}
				say("survey %v %s %s", ok, identifier, told(c))
			case n == 10 && len(surveying) > 0:
				i := rng.IntN(len(surveying))
				s.done(surveying[i])
				if rng.IntN(2) == 0 {
					s.retries.failed(surveying[i], why(), now)
				}
				surveying = slices.Delete(surveying, i, i+1)
			default:
				now = now.Add([]time.Duration{time.Second - 1, 1, time.Second, 7 * time.Second, time.Minute, 10 * time.Minute}[rng.IntN(6)])
				say("due %s", sortedLines(tries.due(now), func(r graspsync.RepoRef, c resolve.Reasons) string { return name(r) + told(c) }))
				say("due %s", sortedLines(s.retries.due(now), func(r string, c resolve.Reasons) string { return r + told(c) }))
			}
			next, surveys := tries.next(), s.retries.next()
			say("%v %v %v %v", next.IsZero(), next.Sub(began)*time.Duration(len(tries)), surveys.IsZero(), len(s.todo))
			say("%s", sortedLines(tries, func(r graspsync.RepoRef, x retry) string {
				return fmt.Sprint(name(r), x.failures, x.slow, x.at.IsZero())
			}))
			say("%s", sortedLines(l.running, func(r graspsync.RepoRef, is turn) string { return fmt.Sprint(name(r), is.in) }))
			for _, in := range l.lanes {
				used, waiting := in.places.Stats()
				say("%d %d %d", used, waiting, len(in.todo))
			}
			n := resolve.Need{Entries: []graspsync.EventID{{byte(rng.IntN(4))}}, Members: map[graspsync.PubKey]struct{}{{byte(rng.IntN(4))}: {}}}
			by, again := anew(why().And(why()), n)
			say("%v %v", by == hunt.BySync, again)
		}
		sums.Equal(t, fmt.Sprintf("world%02d", seed), lines)
	}
}
