package hunt

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/goldentest"
)

// In drawn worlds of repositories, owners and servers that answer, fail, are slow, broken or
// busy, every request, its order and every wait is what it was before.
func TestWorlds(t *testing.T) {
	sums := goldentest.NewSums(t, "testdata/worlds.sum")
	for seed := range uint64(40) {
		rng := rand.New(rand.NewPCG(seed, 5))
		cfg := config()
		cfg.Seed = seed % 3
		cfg.MaxAttempts, cfg.MaxRepos, cfg.MaxDomains = 1+rng.IntN(6), 3+rng.IntN(30), 1+rng.IntN(12)
		cfg.DefaultLimit = Limit{Concurrent: 1 + rng.IntN(4), PerMinute: 1 + rng.IntN(30)}
		some := url(t, "https://s3.example/x.git")
		cfg.Limits = map[graspsync.HostPort]Limit{some.HostPort(): {Concurrent: 1, PerMinute: 2}}
		q, now := New(cfg), start
		var lines []string
		say := func(format string, args ...any) { lines = append(lines, fmt.Sprintf(format, args...)) }
		var open []Fetch
		step := func(in Input) {
			for _, e := range q.Step(now, in, nil) {
				say("%T %+v", e, e)
				if f, is := e.(Fetch); is {
					open = append(open, f)
				}
			}
			at, ok := q.NextWake(now)
			say("%d repositories, next %v %v", q.Len(), at.Sub(start), ok)
		}
		ref := func() (r PastRepo) {
			i := rng.IntN(25)
			r.Repo.Identifier = fmt.Sprint("r", i)
			r.Repo.Owner = pubKey(byte(i % (1 + int(seed%7))))
			return r
		}
		server := func() string { return fmt.Sprintf("https://s%d.example/%d.git", rng.IntN(10), rng.IntN(3)) }
		if seed%2 == 0 {
			var repos []PastRepo
			var domains []PastDomain
			for range rng.IntN(8) {
				r := ref()
				r.Attempts, r.Next = rng.IntN(9)-1, now.Add(time.Duration(rng.IntN(600)-60)*time.Second)
				repos = append(repos, r)
				domains = append(domains, PastDomain{
					Domain: url(t, server()).HostPort(), Last: now.Add(-time.Duration(rng.IntN(120)-20) * time.Second), Recent: rng.IntN(40),
					Failures: rng.IntN(5), BrokenUntil: now.Add(time.Duration(rng.IntN(30)-3) * time.Hour),
				})
			}
			q.Restore(now, repos, domains)
		}
		for range 400 {
			switch n := rng.IntN(10); {
			case n < 3:
				in := Wanted{Repo: ref().Repo, Origin: Origin(rng.IntN(2))}
				for range rng.IntN(6) {
					in.URLs = append(in.URLs, url(t, server()))
				}
				say("%+v", in)
				step(in)
			case n == 3:
				step(Whole{ref().Repo})
			case n < 7 && len(open) > 0:
				i := rng.IntN(len(open))
				f := open[i]
				open = append(open[:i], open[i+1:]...)
				in := Fetched{ID: f.ID, Outcome: Outcome(rng.IntN(5))}
				if rng.IntN(8) == 0 {
					in.Pause = time.Duration(rng.IntN(4000)) * time.Second
				}
				say("{ID:%d Outcome:%d Pause:%v}", in.ID, in.Outcome, in.Pause)
				step(in)
			default:
				at, ok := q.NextWake(now)
				switch {
				case ok && rng.IntN(3) > 0 && at.After(now):
					now = at
				case rng.IntN(20) == 0:
					now = now.Add(time.Duration(rng.IntN(40)) * time.Hour)
				default:
					now = now.Add(time.Duration(rng.IntN(100_000)) * time.Millisecond)
				}
				step(Tick{})
			}
			failures, until := q.Broken(url(t, server()).HostPort())
			say("broken %d %v, under way %v", failures, until.Sub(start), q.InFlight())
		}
		sums.Equal(t, fmt.Sprintf("world%02d", seed), lines)
	}
}
