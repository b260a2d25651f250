package syncqueue

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/backoff"
	"github.com/graspsync/graspsync/internal/racetest"
)

var start = time.Unix(1_700_000_000, 0)

func config() Config {
	return Config{
		UserDelay: 3 * time.Minute, SyncDelay: 500 * time.Millisecond,
		Backoff: 20 * time.Second, MaxBackoff: 2 * time.Minute,
		BrokenMin: time.Hour, BrokenMax: 24 * time.Hour,
		MaxFetchJobs: 10, MaxRepos: 1000, MaxDomains: 100,
		DefaultLimit: Limit{Concurrent: 5, PerMinute: 30},
	}
}

// repoOf returns a repository of an owner.
func repoOf(owner byte, i int) graspsync.RepoRef {
	k, _ := graspsync.ParsePubKey(fmt.Sprintf("%064x", owner))
	return graspsync.RepoRef{Owner: k, Identifier: fmt.Sprint("r", i)}
}

func url(t testing.TB, s string) graspsync.CloneURL {
	u, err := graspsync.ParseCloneURL("https://" + s)
	require.NoError(t, err)
	return u
}

func urls(t testing.TB, all []string) (out []graspsync.CloneURL) {
	for _, s := range all {
		out = append(out, url(t, s))
	}
	return out
}

// player drives a queue, ends requests, and records its effects.
type player struct {
	t       *testing.T
	q       *SyncQueue
	now     time.Time
	open    []Fetch // in flight
	fetches []Fetch
	dropped int
	stopped []Fetch
	began   map[RequestID]time.Time
	rate    func(Fetch) int64 // bytes per second; nil: none
}

func play(t *testing.T, cfg Config) *player {
	return &player{t: t, q: New(cfg), now: start, began: make(map[RequestID]time.Time)}
}

func (p *player) step(in Input) {
	if tick, is := in.(Tick); is && p.rate != nil {
		tick.Received = make(map[RequestID]int64)
		for _, f := range p.open {
			tick.Received[f.ID] = p.rate(f) * int64(p.now.Sub(p.began[f.ID]).Seconds())
		}
		in = tick
	}
	var stopped []RequestID
	for _, e := range p.q.Step(p.now, in) {
		switch e := e.(type) {
		case Stop:
			i := slices.IndexFunc(p.open, func(f Fetch) bool { return f.ID == e.ID })
			require.GreaterOrEqual(p.t, i, 0, "it is not in flight")
			p.stopped = append(p.stopped, p.open[i])
			p.open = slices.Delete(p.open, i, i+1)
			stopped = append(stopped, e.ID)
		case Fetch:
			p.open = append(p.open, e)
			p.began[e.ID] = p.now
			p.fetches = append(p.fetches, e)
		case Dropped:
			p.dropped++
		}
	}
	for _, id := range stopped {
		p.step(Fetched{ID: id, Outcome: Nothing})
	}
}

// wait sends a Tick whenever it is due.
func (p *player) wait(d time.Duration) {
	p.run(d, func(Fetch) (time.Duration, Outcome) { return 1000 * time.Hour, Nothing })
}

// run is wait in which requests end after some time.
func (p *player) run(d time.Duration, ends func(Fetch) (time.Duration, Outcome)) {
	end, idle := p.now.Add(d), 0
	for {
		at, first := end, -1
		for i, f := range p.open {
			took, _ := ends(f)
			if by := p.began[f.ID].Add(took); by.Before(at) {
				at, first = by, i
			}
		}
		wake, ok := p.q.NextWake()
		switch {
		case ok && (wake.Before(at) || first < 0 && wake.Equal(at)):
			idle++
			require.Less(p.t, idle, 1000, "the queue wakes itself without end")
			if wake.After(p.now) {
				p.now, idle = wake, 0
			}
			p.step(Tick{})
		case first < 0:
			p.now = end
			return
		default:
			p.now = backoff.Later(p.now, at)
			p.open[0], p.open[first] = p.open[first], p.open[0]
			_, o := ends(p.open[0])
			p.answer(o)
		}
	}
}

func (p *player) answer(o Outcome) { p.fetched(Fetched{Outcome: o}) }

// fetched ends the oldest request in flight.
func (p *player) fetched(in Fetched) {
	require.NotEmpty(p.t, p.open, "nothing is being fetched")
	in.ID = p.open[0].ID
	p.open = p.open[1:]
	p.step(in)
}

// want adds a repository with its own owner.
func (p *player) want(i int, by Origin, at ...string) {
	p.step(Incomplete{Repo: repoOf(byte(i), i), MemberURLs: urls(p.t, at), Origin: by, Fresh: true})
}

func (p *player) wantOf(owner byte, i int, at ...string) {
	p.step(Incomplete{Repo: repoOf(owner, i), MemberURLs: urls(p.t, at), Fresh: true})
}

// Above MaxDomains, the least recently used domains are removed.
func TestBounds(t *testing.T) {
	cfg := config()
	cfg.MaxRepos, cfg.MaxFetchJobs, cfg.MaxDomains = 5, 2, 3
	p := play(t, cfg)
	for i := range 8 {
		p.want(i, BySync, fmt.Sprintf("h%d.example/x.git", i))
	}
	require.Equal(t, 3, p.dropped)
	p.wait(time.Second)
	require.Len(t, p.open, 2)
	for len(p.open) > 0 {
		p.wait(time.Second)
		p.answer(Complete)
	}
	p.wait(2 * time.Minute)
	p.step(Tick{})
	require.Len(t, p.q.throttle.domains, 3)
	for _, host := range []string{"h2.example", "h3.example", "h4.example"} {
		require.Contains(t, p.q.throttle.domains, url(t, host).HostPort())
	}
}

// A full queue of patient repositories of one owner has room for those of others, and for each
// repository that a held event needs.
func TestAFullQueueHasRoomForOthers(t *testing.T) {
	cfg := config()
	cfg.MaxRepos = 6
	p := play(t, cfg)
	want := func(owner byte, i int, patient bool) {
		p.step(Incomplete{Repo: repoOf(owner, i), MemberURLs: urls(t, []string{"a.example/r.git"}), Patient: patient})
	}
	of := func(owner byte) (n int) {
		for ref := range p.q.repos {
			if ref.Owner == repoOf(owner, 0).Owner {
				n++
			}
		}
		return n
	}
	for i := range 8 {
		want(1, i, true)
	}
	require.Equal(t, 2, p.dropped)
	for i := range 4 {
		want(2, i, true)
	}
	require.Equal(t, 3, p.dropped)
	require.Equal(t, []int{3, 3}, []int{of(1), of(2)})
	want(2, 9, false)
	require.Equal(t, 3, p.dropped)
	require.Contains(t, p.q.repos, repoOf(2, 9))
}

func TestWaitsAreLengthened(t *testing.T) {
	cfg := config()
	cfg.Seed = 7
	q := New(cfg)
	seen := make(map[time.Duration]bool)
	for i := range 100 {
		wait := q.backoff(&entry{repo: repoOf(1, i)}, 1+i%5)
		plain := backoff.Doubled(cfg.Backoff, cfg.MaxBackoff, 1+i%5)
		require.GreaterOrEqual(t, wait, plain)
		require.LessOrEqual(t, wait, plain+plain/10)
		seen[wait] = true
	}
	require.Greater(t, len(seen), 50)
}

// Each owner gets its share of the slots. A slow request ends after a minute if another owner
// waits, a fast one does not. The pause of a stopped URL doubles.
func TestSlowRequestsYield(t *testing.T) {
	for name, at := range map[string]string{
		"a domain each": "drip%d.example/r.git", "one domain": "hub.example/drip%d.git", "ports": "drip.example:%d/r.git",
	} {
		t.Run(name, func(t *testing.T) {
			p := play(t, config())
			honest, large := repoOf(1, 0), repoOf(2, 0)
			ends := func(f Fetch) (time.Duration, Outcome) {
				switch f.Repo {
				case honest:
					return time.Second, Complete
				case large:
					return time.Hour, Complete
				}
				return 5 * time.Hour, Nothing
			}
			p.rate = func(f Fetch) int64 {
				if f.Repo == large {
					return 100_000
				}
				return 50_000
			}
			p.wantOf(2, 0, "large.example/r.git")
			p.run(time.Second, ends)
			const strangers = 60
			for i := range strangers {
				p.wantOf(byte(100+i), i, fmt.Sprintf(at, 2000+i))
			}
			for range 5 {
				p.run(20*time.Minute, ends)
				p.wantOf(1, 0, "hub.example/r.git")
				since := p.now
				for p.q.repos[honest] != nil {
					p.run(time.Second, ends)
					require.Less(t, p.now.Sub(since), (strangers/4+1)*time.Minute)
				}
			}
			require.Nil(t, p.q.repos[large])
			stops := make(map[graspsync.CloneURL][]time.Duration)
			for _, f := range p.stopped {
				require.NotEqual(t, large, f.Repo)
				stops[f.URL] = append(stops[f.URL], p.began[f.ID].Sub(start))
			}
			require.Greater(t, len(stops), strangers/2)
			for u, at := range stops {
				for i := range len(at) - 1 {
					require.GreaterOrEqual(t, at[i+1]-at[i], slowAfter+backoff.Doubled(stopMin, stopMax, i+1), u)
				}
			}
		})
	}
	p := play(t, config())
	for i := range 10 {
		p.want(i, BySync, fmt.Sprintf("drip%d.example/r.git", i))
	}
	p.wait(10 * time.Minute)
	require.Empty(t, p.stopped, "nobody waits")
}

// In random scenarios the limits always hold, an early Tick does nothing, and the queue becomes
// empty.
func TestDrawnWorlds(t *testing.T) {
	takes := map[byte]time.Duration{'q': time.Second, 'm': 75 * time.Second, 's': 10 * time.Minute}
	for seed := range uint64(racetest.Rounds(80)) {
		rng := rand.New(rand.NewPCG(seed, 31))
		cfg := config()
		cfg.MaxFetchJobs, cfg.MaxRepos, cfg.MaxDomains = 1+rng.IntN(7), 40, 12 // enough domains, so that none is removed
		cfg.DefaultLimit = Limit{Concurrent: 1 + rng.IntN(4), PerMinute: 1 + rng.IntN(30)}
		p := play(t, cfg)
		p.rate = func(f Fetch) int64 { return []int64{0, 1000, 60_000, 1_000_000}[f.ID%4] }
		ends := func(f Fetch) (time.Duration, Outcome) {
			return takes[f.URL.HostPort().Host[0]], Outcome(uint64(f.ID) * 7 % 4)
		}
		for range 150 {
			p.run(time.Duration(rng.IntN(40))*time.Second, ends)
			before, stopped := len(p.fetches), len(p.stopped)
			p.step(Tick{})
			require.Len(t, p.fetches, before, "seed %d", seed)
			require.Len(t, p.stopped, stopped, "seed %d", seed)
			if len(p.open) > 0 && rng.IntN(4) == 0 {
				p.fetched(Fetched{Outcome: Outcome(rng.IntN(4)), More: rng.IntN(3) > 0})
			}
			drawn(t, p, rng)
			limitsHold(t, p)
		}
		p.run(24*time.Hour, func(Fetch) (time.Duration, Outcome) { return time.Second, Complete })
		require.Zero(t, p.q.Len(), "seed %d", seed)
		require.Empty(t, p.q.requests)
		require.Empty(t, p.q.owners)
		require.Zero(t, p.q.ring.Len())
	}
}

// drawn sends an input for a random repository.
func drawn(t *testing.T, p *player, rng *rand.Rand) {
	n := rng.IntN(12)
	ref := repoOf(byte(n%5), n%3)
	switch rng.IntN(6) {
	case 0:
		p.step(NothingMissing{ref})
	case 1:
		p.q.Renew(p.now, ref, nil)
	default:
		var at []graspsync.CloneURL
		for range 1 + rng.IntN(4) {
			at = append(at, url(t, fmt.Sprintf("%c%d.example/%d.git", "qms"[rng.IntN(3)], rng.IntN(4), rng.IntN(3))))
		}
		slices.SortFunc(at, func(a, b graspsync.CloneURL) int { return strings.Compare(a.String(), b.String()) })
		at = slices.Compact(at)
		own := rng.IntN(len(at) + 1)
		p.step(Incomplete{Repo: ref, MemberURLs: at[:own], PullURLs: [][]graspsync.CloneURL{at[own:]}, Origin: Origin(rng.IntN(2)), Fresh: rng.IntN(4) > 0, Patient: rng.IntN(2) > 0})
	}
}

func limitsHold(t *testing.T, p *player) {
	cfg, repos, owners, at := p.q.cfg, make(map[graspsync.RepoRef]int), make(map[graspsync.PubKey]int), make(map[Fetch]int)
	require.LessOrEqual(t, len(p.open), cfg.MaxFetchJobs)
	for _, f := range p.open {
		owners[f.Repo.Owner]++
		require.LessOrEqual(t, owners[f.Repo.Owner], (cfg.MaxFetchJobs+1)/2)
		repos[f.Repo]++
		require.LessOrEqual(t, repos[f.Repo], AtOnce)
		at[Fetch{Repo: f.Repo, URL: f.URL}]++
		require.Equal(t, 1, at[Fetch{Repo: f.Repo, URL: f.URL}])
	}
	recent := make(map[graspsync.HostPort]int)
	for _, f := range p.fetches {
		if p.now.Sub(p.began[f.ID]) < time.Minute {
			recent[f.URL.HostPort()]++
		}
	}
	inFlight := make(map[graspsync.HostPort]int)
	for _, r := range p.q.requests {
		inFlight[r.url.HostPort()]++
	}
	for a, n := range inFlight {
		require.LessOrEqual(t, n, cfg.DefaultLimit.Concurrent)
		require.NotNil(t, p.q.throttle.domains[a])
		require.Equal(t, n, p.q.throttle.domains[a].inFlight)
	}
	for a, n := range recent {
		require.LessOrEqual(t, n, cfg.DefaultLimit.PerMinute, a)
	}
}
