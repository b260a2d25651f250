package hunt

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/racetest"
)

// A tick that nobody was to send does nothing, in drawn worlds of servers that are quick, take longer than a minute or drip: what
// starts at a time without NextWake saying so would wait for the end of something else. What is counted is what there is.
func TestNextWakeMissesNothing(t *testing.T) {
	takes := map[byte]time.Duration{'q': time.Second, 'm': 75 * time.Second, 's': 10 * time.Minute}
	for seed := range uint64(racetest.Rounds(600)) {
		rng := rand.New(rand.NewPCG(seed, 31))
		cfg := config()
		cfg.MaxAttempts, cfg.MaxRepos, cfg.MaxDomains = 2+rng.IntN(6), 40, 12 // servers, and none is forgotten
		cfg.DefaultLimit = Limit{Concurrent: 1 + rng.IntN(4), PerMinute: 2 + rng.IntN(30)}
		p := play(t, cfg)
		p.rates = func(f Fetch) int64 { return []int64{0, 1000, 60_000, 1_000_000}[f.ID%4] }
		next := func(by time.Time) (at time.Time, ends int) { // what happens next, a request that ends if not -1
			at, ends = by, -1
			for i, f := range p.open {
				if end := p.began[f.ID].Add(takes[f.URL.HostPort().Host[0]]); end.Before(at) {
					at, ends = end, i
				}
			}
			return at, ends
		}
		for range 300 {
			at, ends := next(p.now.Add(time.Duration(rng.IntN(40)) * time.Second))
			wake, wakes := p.q.NextWake(p.now)
			switch due := wakes && wake.Before(at); {
			case due:
				p.now = later(p.now, wake)
				p.step(Tick{})
			case ends >= 0:
				p.now = later(p.now, at)
				p.open[0], p.open[ends] = p.open[ends], p.open[0]
				p.fetched(Fetched{Outcome: Outcome(rng.IntN(5)), More: rng.IntN(3) == 0})
			default:
				p.now = later(p.now, at)
				if !wakes || wake.After(p.now) {
					before, stopped := len(p.fetches), len(p.stopped)
					p.step(Tick{})
					require.Len(t, p.fetches, before, "seed %d: %v", seed, p.fetches[before:])
					require.Len(t, p.stopped, stopped, "seed %d", seed)
				}
				drawn(t, p, rng)
			}
			counted(t, p)
		}
	}
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// drawn has something happen to a repository.
func drawn(t *testing.T, p *player, rng *rand.Rand) {
	n := rng.IntN(12)
	ref := graspsync.RepoRef{Owner: pubKey(byte(n % 5)), Identifier: fmt.Sprint(n % 3)}
	switch rng.IntN(6) {
	case 0:
		p.step(Whole{ref})
	case 1:
		p.step(Renew{Repo: ref})
	default:
		var urls []graspsync.CloneURL
		for range 1 + rng.IntN(4) {
			urls = append(urls, url(t, fmt.Sprintf("https://%c%d.example/%d.git", "qms"[rng.IntN(3)], rng.IntN(4), rng.IntN(3))))
		}
		own := rng.IntN(len(urls) + 1)
		p.step(Wanted{Repo: ref, URLs: urls[:own], Strangers: urls[own:]})
	}
}

// counted compares what is counted with what there is.
func counted(t *testing.T, p *player) {
	q := p.q
	attempts, left, seconds := len(q.active), 0, 0
	at, sites, of := make(map[graspsync.HostPort]int), make(map[string]int), make(map[graspsync.RepoRef]int)
	for _, r := range q.requests.all {
		at[r.url.HostPort()]++
		sites[r.domain.site]++
		of[r.entry.repo]++
		switch {
		case r.place == leftToDomain:
			left++
		case r.place == besidesAttempt:
			seconds++
		case r.loose:
			attempts++
		}
	}
	require.Equal(t, []int{attempts, left, seconds}, []int{q.attempts, q.requests.left, q.requests.second})
	require.LessOrEqual(t, len(q.active), q.cfg.MaxAttempts)
	require.Equal(t, at, q.InFlight())
	inSites := make(map[string]int)
	for name, domains := range q.servers.inSites {
		for d := range domains {
			inSites[name] += d.inFlight
		}
	}
	require.Equal(t, sites, inSites)
	require.Equal(t, of, q.requests.ofRepo)
	for ref, n := range of {
		require.LessOrEqual(t, n, AtOnce, "%v", ref)
	}
	strange, asked := make(map[graspsync.RepoRef]int), make(map[graspsync.CloneURL]int)
	for _, r := range q.requests.all {
		if asked[r.url]++; r.strange {
			strange[r.entry.repo]++
		}
	}
	require.Equal(t, strange, q.requests.strange)
	require.Equal(t, asked, q.requests.asked)
}
