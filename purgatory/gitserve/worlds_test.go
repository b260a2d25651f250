package gitserve

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/internal/goldentest"
)

// In drawn worlds of clients that come, wait, give up and leave, who has a place, who is next,
// and who is in whose way is what it was before.
func TestWorldsOfPlaces(t *testing.T) {
	sums := goldentest.NewSums(t, "testdata/places.sum")
	for seed := range uint64(25) {
		rng := rand.New(rand.NewPCG(seed, 11))
		p := newPlaces(1+rng.IntN(12), rng.IntN(8), 1+rng.IntN(5))
		var lines []string
		say := func(format string, args ...any) { lines = append(lines, fmt.Sprintf(format, args...)) }
		say("%d, %d loose, %d each", p.most, p.loose, p.perClient)
		draw := func() party {
			n := rng.IntN(7)
			w := party{owner: fmt.Sprint("o", rng.IntN(3)), repo: fmt.Sprint("r", rng.IntN(5))}
			if n > 0 {
				w.client, w.network = fmt.Sprint("c", n), fmt.Sprint("n", n/3)
			}
			return w
		}
		var here []func()
		var waiting []*turn
		granted := func() {
			waiting = slices.DeleteFunc(waiting, func(w *turn) bool {
				select {
				case <-w.granted:
					say("granted %v", w.who)
					here = append(here, p.leaving(w.who))
					return true
				default:
					return false
				}
			})
		}
		for range 150 {
			switch n := rng.IntN(10); {
			case n < 5:
				who := draw()
				leave, wait := p.ask(who)
				say("ask %v: %v", who, wait == nil)
				if wait == nil {
					here = append(here, leave)
				} else {
					waiting = append(waiting, wait)
				}
			case n < 6:
				who := draw()
				leave, ok := p.try(who)
				say("try %v: %v", who, ok)
				if ok {
					here = append(here, leave)
				}
			case n < 9 && len(here) > 0:
				i := rng.IntN(len(here))
				here[i]()
				here[i]() // once
				here = slices.Delete(here, i, i+1)
				granted()
			case len(waiting) > 0:
				i := rng.IntN(len(waiting))
				say("withdraw %v: %v", waiting[i].who, p.withdraw(waiting[i]))
				waiting = slices.Delete(waiting, i, i+1)
			}
			who, other := draw(), draw()
			o, behind := p.inTheWay(who)
			say("in the way of %v: %+v, %d; of %v %v; fewer %v", who, o, behind, other, o.of(other), p.fewer(who, other))
			for i, w := range waiting {
				if p.first(w) {
					say("first %d", i)
				}
			}
			say("%+v, %d %d", p.stats(), p.held(share{byOwner, who.owner}), p.held(share{byClient, who.client}))
		}
		for len(here) > 0 {
			here[0]()
			here = here[1:]
			granted()
		}
		for _, w := range waiting {
			p.withdraw(w)
		}
		p.idle(t)
		sums.Equal(t, fmt.Sprintf("world%02d", seed), lines)
	}
}

// In drawn worlds of requests whose clients are slow, wait for their turn or have sent much, who
// has to leave when others come, press or send is what it was before. No two are as fast as one
// another, which would leave it to chance.
func TestWorldsOfVisits(t *testing.T) {
	sums := goldentest.NewSums(t, "testdata/visits.sum")
	left := 0
	for seed := range uint64(40) {
		var lines []string
		synctest.Test(t, func(t *testing.T) { lines = visitors(t, rand.New(rand.NewPCG(seed, 13))) })
		sums.Equal(t, fmt.Sprintf("world%02d", seed), lines)
		for _, line := range lines {
			if strings.HasPrefix(line, "left ") {
				left++
			}
		}
	}
	t.Log(left, "had to leave")
	require.Greater(t, left, 1000)
}

func visitors(t *testing.T, rng *rand.Rand) (lines []string) {
	say := func(format string, args ...any) { lines = append(lines, fmt.Sprintf(format, args...)) }
	cfg := Config{fixed: numbers{
		MaxReaders:   4 + rng.IntN(30),
		MinRate:      4,
		RateWindow:   100 * time.Second,
		MaxPerClient: 1 + rng.IntN(3),
	}}
	l := newVisits(cfg, int64(500+rng.IntN(2000)))
	runs := newPlaces(1+rng.IntN(6), 0, 2)
	draw := func() party {
		n := rng.IntN(12)
		w := party{owner: fmt.Sprint("o", rng.IntN(5)), repo: fmt.Sprint("r", rng.IntN(9))}
		if n > 0 {
			w.client, w.network = fmt.Sprint("c", n), fmt.Sprint("n", n/3)
		}
		return w
	}
	type one struct {
		*visit
		name   int
		depart []func()
		why    error
	}
	var here []*one
	for i := range 400 {
		now := time.Now()
		switch n := rng.IntN(12); {
		case n < 6:
			who := draw()
			leave, ok := l.room.try(who)
			if !ok {
				break
			}
			v := &one{name: i, depart: []func(){leave}}
			v.visit = &visit{of: l, who: who, end: func(why error) { v.why = why }}
			l.here[v.visit] = struct{}{}
			if run, ok := runs.try(who); ok {
				v.depart = append(v.depart, run)
			}
			here = append(here, v)
		case n < 8 && len(here) > 0:
			v := here[rng.IntN(len(here))]
			n := rng.Int64N(400)
			err := v.keep(n)
			say("keep %d of %v: %v", n, v.who, err)
		case n < 10:
			who := draw()
			_, wait := l.room.ask(who)
			l.admit(who)
			say("admit %v", who)
			if wait != nil {
				l.room.withdraw(wait)
			} else {
				l.room.leaving(who)()
			}
		default:
			who := draw()
			l.press(runs, who)
			say("press %v", who)
		}
		if rng.IntN(4) == 0 {
			time.Sleep(time.Duration(rng.IntN(11)) * time.Second)
		}
		here = slices.DeleteFunc(here, func(v *one) bool {
			if v.left == nil || rng.IntN(3) == 0 {
				return false
			}
			say("left %d: %v, %v", v.name, v.left, v.why)
			l.mu.Lock()
			delete(l.here, v.visit)
			l.add(v.visit, -v.kept)
			l.mu.Unlock()
			for _, leave := range v.depart {
				leave()
			}
			return true
		})
		for n, at := range rng.Perm(len(here)) { // what they look like next
			v := here[at]
			v.began, v.moved, v.waited = time.Now(), int64(1+n*97), time.Duration(5+rng.IntN(15))*time.Second
			v.moved = int64(float64(1+n*1000/(1+len(here))) * v.waited.Seconds())
			v.stalled, v.queued, v.limit = rng.IntN(2) == 0, rng.IntN(3) == 0, nil
			if rng.IntN(5) > 0 || v.queued { // it is waited for
				v.limit = func(time.Time) error { return nil }
			}
		}
		count, kept, shed := l.count()
		say("%d, %d, %d, %v ago", count, kept, shed, now.Sub(l.last))
	}
	return lines
}

// However an answer is written, kept and heard, nothing of it is lost or comes twice, and no
// more is kept than may be: not even a byte.
func TestWorldsOfAnswers(t *testing.T) {
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 12))
		file, err := os.Create(filepath.Join(t.TempDir(), "spool"))
		require.NoError(t, err)
		s := &spool{file: file, most: int64(1 + rng.IntN(50)), asked: int64(rng.IntN(60))}
		s.news = sync.NewCond(&s.mu)
		asked, full := 0, rng.IntN(3) == 0
		s.room = func(more int64) error {
			require.EqualValues(t, 8<<20, more)
			if asked++; full {
				return errDisk
			}
			return nil
		}
		var wrote, heard []byte
		for range 300 {
			most, was := s.most, s.asked
			if rng.IntN(2) == 0 && s.taken-s.sent < s.most {
				want := 1 + rng.IntN(30)
				if s.taken == s.asked && s.taken < s.most && full && s.taken-s.sent >= s.taken {
					continue // it would wait
				}
				n, at, err := s.space(want)
				require.NoError(t, err)
				room := s.taken == was && s.taken < most
				require.Equal(t, room, s.asked != was)
				if room {
					require.Equal(t, was+8<<20, s.asked)
				}
				if room && full {
					require.Equal(t, s.taken, s.most)
				} else {
					require.Equal(t, most, s.most)
				}
				require.Equal(t, s.taken%s.most, at)
				free := min(int64(want), s.most-(s.taken-s.sent), s.most-at)
				if s.taken < s.asked {
					free = min(free, s.asked-s.taken)
				}
				require.EqualValues(t, free, n)
				require.Positive(t, n)
				part := make([]byte, n)
				for i := range part {
					part[i] = byte(rng.Uint32())
				}
				_, err = file.WriteAt(part, at)
				require.NoError(t, err)
				wrote = append(wrote, part...)
				s.taken += int64(n)
				require.LessOrEqual(t, s.taken-s.sent, s.most)
			} else if s.taken > s.sent {
				size := 1 + rng.IntN(30)
				n, at := s.next(size)
				require.EqualValues(t, min(int64(size), s.taken-s.sent, s.most-s.sent%s.most), n)
				part := make([]byte, n)
				_, err := file.ReadAt(part, at)
				require.NoError(t, err)
				heard = append(heard, part...)
				s.sent += int64(n)
				require.Equal(t, s.taken-s.sent, s.left())
			}
		}
		if s.err == nil {
			for s.ended = true; s.taken > s.sent; {
				n, at := s.next(7)
				part := make([]byte, n)
				_, err := file.ReadAt(part, at)
				require.NoError(t, err)
				heard = append(heard, part...)
				s.sent += int64(n)
			}
			require.Equal(t, wrote, heard)
		}
		n, _ := s.next(7)
		require.Zero(t, n)
		require.Zero(t, s.left())
		require.NoError(t, file.Close())
	}
}
