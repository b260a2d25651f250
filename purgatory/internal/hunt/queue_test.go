package hunt

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
)

var start = time.Unix(1_700_000_000, 0)

func config() Config {
	return Config{
		UserDelay: 3 * time.Minute, SyncDelay: 500 * time.Millisecond,
		Backoff: 20 * time.Second, MaxBackoff: 2 * time.Minute,
		BrokenMin: time.Hour, BrokenMax: 24 * time.Hour,
		MaxAttempts: 10, MaxRepos: 1000, MaxDomains: 100,
		DefaultLimit: Limit{Concurrent: 5, PerMinute: 30},
	}
}

func repo(i int) graspsync.RepoRef { return graspsync.RepoRef{Identifier: fmt.Sprintf("r%03d", i)} }

func url(t testing.TB, s string) graspsync.CloneURL {
	u, err := graspsync.ParseCloneURL(s)
	require.NoError(t, err)
	return u
}

// player drives a queue and keeps what it was told to do.
type player struct {
	t       *testing.T
	q       *Queue
	now     time.Time
	open    []Fetch
	fetches []Fetch
	ends    []Attempted
	dropped int
	began   map[RequestID]time.Time
	stopped []Fetch
	onStop  func(Fetch)
	rates   func(Fetch) int64 // bytes a second; nil: nobody knows
	idle    int               // steps at one moment
}

func play(t *testing.T, cfg Config) *player {
	return &player{t: t, q: New(cfg), now: start, began: make(map[RequestID]time.Time)}
}

// received is how many bytes have come by now.
func (p *player) received() map[RequestID]int64 {
	if p.rates == nil {
		return nil
	}
	out := make(map[RequestID]int64)
	for _, f := range p.open {
		out[f.ID] = p.rates(f) * int64(p.now.Sub(p.began[f.ID]).Seconds())
	}
	return out
}

func (p *player) step(in Input) {
	var stopped []RequestID
	defer func() {
		for _, id := range stopped {
			p.step(Fetched{ID: id, Outcome: Nothing})
		}
	}()
	for _, e := range p.q.Step(p.now, in, p.received()) {
		switch e := e.(type) {
		case Stop:
			stopped = append(stopped, e.ID)
			i := slices.IndexFunc(p.open, func(f Fetch) bool { return f.ID == e.ID })
			require.GreaterOrEqual(p.t, i, 0, "it is not under way")
			f := p.open[i]
			p.stopped = append(p.stopped, f)
			p.open = slices.Delete(p.open, i, i+1)
			if p.onStop != nil {
				p.onStop(f)
			}
		case Fetch:
			p.open = append(p.open, e)
			p.began[e.ID] = p.now
			p.fetches = append(p.fetches, e)
		case Attempted:
			p.ends = append(p.ends, e)
		case Dropped:
			p.dropped++
		}
	}
}

// wait goes to the next wake-up that is not later than d from now.
func (p *player) wait(d time.Duration) {
	end := p.now.Add(d)
	for range 10_000 {
		at, ok := p.q.NextWake(p.now)
		if !ok || at.After(end) {
			p.now = end
			return
		}
		if at.After(p.now) {
			p.now = at
		}
		p.step(Tick{})
	}
	p.t.Fatal("the queue wakes itself without end")
}

func (p *player) answer(o Outcome) { p.fetched(Fetched{Outcome: o}) }

// fetched ends the first of the requests under way.
func (p *player) fetched(in Fetched) {
	require.NotEmpty(p.t, p.open, "nothing is being fetched")
	in.ID = p.open[0].ID
	in.Received = p.received()[in.ID]
	p.open = p.open[1:]
	p.step(in)
}

func (p *player) want(i int, by Origin, urls ...string) {
	var us []graspsync.CloneURL
	for _, u := range urls {
		us = append(us, url(p.t, u))
	}
	p.step(Wanted{Repo: repo(i), URLs: us, Origin: by})
}

func (p *player) asked() (out []string) {
	for _, f := range p.fetches {
		out = append(out, f.URL.String())
	}
	return out
}

func TestDelays(t *testing.T) {
	for by, delay := range map[Origin]time.Duration{BySync: 500 * time.Millisecond, ByUser: 3 * time.Minute} {
		p := play(t, config())
		p.want(1, by, "https://a.example/x.git")
		p.wait(delay - 1)
		require.Empty(t, p.fetches)
		p.wait(1)
		require.Len(t, p.fetches, 1)
	}
}

// A new event takes the sooner of two times, and the attempts begin anew.
func TestWantedAnew(t *testing.T) {
	p := play(t, config())
	p.want(1, ByUser, "https://a.example/x.git")
	p.wait(time.Second)
	p.want(1, BySync, "https://a.example/x.git")
	p.wait(500 * time.Millisecond)
	require.Len(t, p.fetches, 1)
	p.want(1, ByUser, "https://a.example/x.git", "https://b.example/x.git") // while it runs
	p.answer(Nothing)
	p.answer(Nothing)
	require.Equal(t, []string{"https://a.example/x.git", "https://b.example/x.git"}, p.asked())
	require.Equal(t, p.now.Add(20*time.Second), p.ends[0].Next, "the backoff is sooner than the delay for users")
	p.want(1, ByUser)
	require.Equal(t, p.now.Add(20*time.Second), p.q.repos[repo(1)].due, "and stays")
}

func TestBackoff(t *testing.T) {
	p := play(t, config())
	p.want(1, BySync, "https://a.example/x.git")
	p.wait(time.Second)
	for _, want := range []time.Duration{20, 40, 80, 120, 120} {
		p.answer(Nothing)
		require.Equal(t, p.now.Add(want*time.Second), p.ends[len(p.ends)-1].Next)
		p.wait(want * time.Second)
	}
	require.Equal(t, 5, p.ends[4].Number)
	p.want(1, BySync, "https://a.example/x.git")
	p.answer(Nothing)
	require.Equal(t, p.now.Add(500*time.Millisecond), p.ends[5].Next, "fresh start")
}

// One URL at a time, until nothing is missing; then the rest is left alone.
func TestUntilComplete(t *testing.T) {
	p := play(t, config())
	p.want(1, BySync, "https://a.example/x.git", "https://b.example/x.git", "https://c.example/x.git")
	p.wait(time.Second)
	require.Len(t, p.open, 1)
	p.answer(Partial)
	require.Len(t, p.open, 1)
	p.answer(Complete)
	require.Empty(t, p.open)
	require.Zero(t, p.q.Len())
	require.True(t, p.ends[0].Next.IsZero())
	_, ok := p.q.NextWake(p.now)
	require.False(t, ok)
}

// What was wanted while a request was under way is not complete by its answer.
func TestCompleteTooEarly(t *testing.T) {
	p := play(t, config())
	p.want(1, BySync, "https://a.example/x.git", "https://b.example/x.git")
	p.wait(time.Second)
	p.want(1, BySync, "https://a.example/x.git", "https://b.example/x.git")
	p.answer(Complete)
	require.Len(t, p.open, 1)
	p.answer(Complete)
	require.Zero(t, p.q.Len())
}

// A late answer says nothing about a repository that is wanted again.
func TestLateAnswer(t *testing.T) {
	p := play(t, config())
	p.want(1, BySync, "https://a.example/x.git")
	p.wait(time.Second)
	p.step(Whole{repo(1)})
	p.want(1, BySync, "https://a.example/x.git")
	p.answer(Complete)
	require.Equal(t, 1, p.q.Len())
	p.wait(time.Second)
	require.Len(t, p.fetches, 2)
	p.step(Fetched{ID: 99, Outcome: Complete})
	require.Equal(t, 1, p.q.Len())
}

func TestWhoDeliveredComesFirst(t *testing.T) {
	p := play(t, config())
	p.want(1, BySync, "https://a.example/x.git", "https://b.example/x.git")
	p.wait(time.Second)
	p.answer(Nothing)
	p.answer(Complete)
	p.want(2, BySync, "https://a.example/y.git", "https://b.example/y.git")
	p.wait(time.Second)
	require.Equal(t, "https://b.example/y.git", p.open[0].URL.String())
}

// Servers that are broken for good are tried rarely, and no attempt waits for them.
func TestBroken(t *testing.T) {
	p := play(t, config())
	p.want(1, BySync, "https://a.example/x.git")
	p.wait(time.Second)
	p.answer(Broken)
	p.wait(59 * time.Minute)
	require.Len(t, p.fetches, 1)
	p.wait(4 * time.Minute)
	require.Len(t, p.fetches, 2)
	p.answer(Broken)
	p.wait(119 * time.Minute)
	require.Len(t, p.fetches, 2)
	p.wait(4 * time.Minute)
	require.Len(t, p.fetches, 3)
}

// URLs of a throttled domain are left to it; it asks them round robin over the
// repositories, set off by a request that ends and by the window opening again.
func TestThrottled(t *testing.T) {
	cfg := config()
	cfg.DefaultLimit = Limit{Concurrent: 2, PerMinute: 4}
	cfg.Backoff, cfg.MaxBackoff = 10*time.Minute, 10*time.Minute // no attempt is due meanwhile
	p := play(t, cfg)
	for i := range 4 {
		p.want(i, BySync, fmt.Sprintf("https://a.example/%d.git", i), fmt.Sprintf("https://a.example/%d-again.git", i))
	}
	p.wait(time.Second)
	require.Len(t, p.open, 2, "two at once")
	require.Len(t, p.ends, 2, "the others have nothing left to ask themselves")
	p.answer(Nothing)
	p.answer(Nothing)
	require.Equal(t, []string{
		"https://a.example/0.git", "https://a.example/1.git",
		"https://a.example/2.git", "https://a.example/3.git",
	}, p.asked(), "each repository has its turn")
	p.answer(Nothing)
	p.answer(Nothing)
	require.Empty(t, p.open, "four a minute")
	p.wait(58 * time.Second)
	require.Empty(t, p.open)
	p.wait(2 * time.Second)
	require.Len(t, p.open, 2, "nobody but the clock woke it")
}

// A retry is a request like any other.
func TestRetriesCount(t *testing.T) {
	cfg := config()
	cfg.DefaultLimit = Limit{Concurrent: 1, PerMinute: 2}
	cfg.Backoff = time.Second
	p := play(t, cfg)
	p.want(1, BySync, "https://a.example/x.git")
	for range 30 {
		p.wait(time.Second)
		if len(p.open) > 0 {
			p.answer(Nothing)
		}
	}
	require.Len(t, p.fetches, 2)
}

func TestOverrides(t *testing.T) {
	cfg := config()
	cfg.Limits = map[graspsync.HostPort]Limit{url(t, "https://big.example").HostPort(): {Concurrent: 10, PerMinute: 60}}
	cfg.MaxAttempts = 14
	p := play(t, cfg)
	for i := range 10 {
		p.want(i, BySync, fmt.Sprintf("https://big.example/%d.git", i))
	}
	p.wait(time.Second)
	require.Len(t, p.open, 10)
	require.Equal(t, map[graspsync.HostPort]int{{Host: "big.example", Port: 443}: 10}, p.q.InFlight())
}

func TestBounds(t *testing.T) {
	cfg := config()
	cfg.MaxRepos, cfg.MaxAttempts, cfg.MaxDomains = 5, 2, 3
	p := play(t, cfg)
	for i := range 8 {
		p.want(i, BySync, fmt.Sprintf("https://h%d.example/x.git", i))
	}
	require.Equal(t, 3, p.dropped)
	p.wait(time.Second)
	require.Len(t, p.open, 2)
	for len(p.open) > 0 {
		p.answer(Complete)
	}
	p.wait(2 * time.Minute)
	p.step(Tick{})
	require.LessOrEqual(t, len(p.q.servers.domains), 3)
}

// Of more domains than are remembered only those go that were used longest ago, and no more
// than must: what is known of the others is what keeps them from being asked too often.
func TestDomainsUsedLongestAgoAreForgotten(t *testing.T) {
	cfg := config()
	cfg.MaxDomains = 3
	p := play(t, cfg)
	for i := range 5 {
		p.want(i, BySync, fmt.Sprintf("https://h%d.example/x.git", i))
		p.wait(time.Second)
		p.answer(Complete)
	}
	p.wait(2 * time.Minute)
	p.step(Tick{})
	var left []string
	for a := range p.q.servers.domains {
		left = append(left, a.Host)
	}
	require.ElementsMatch(t, []string{"h2.example", "h3.example", "h4.example"}, left)
}

// The limits hold at every moment whatever happens, every URL is asked again and
// again until nothing is missing, and the queue ends empty.
func TestLimitsHold(t *testing.T) {
	for seed := range uint64(200) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { storm(t, seed) })
	}
}

func storm(t *testing.T, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 7))
	cfg := config()
	cfg.DefaultLimit = Limit{Concurrent: 1 + rng.IntN(3), PerMinute: 1 + rng.IntN(10)}
	cfg.MaxAttempts = 1 + rng.IntN(5)
	p := play(t, cfg)
	inFlight := make(map[graspsync.HostPort]int)
	starts := make(map[graspsync.HostPort][]time.Time)
	busy := make(map[exchange]bool)
	checked := 0
	check := func() {
		for _, f := range p.fetches[checked:] {
			a := f.URL.HostPort()
			inFlight[a]++
			require.LessOrEqual(t, inFlight[a], cfg.DefaultLimit.Concurrent)
			starts[a] = slices.DeleteFunc(append(starts[a], p.now), func(at time.Time) bool { return p.now.Sub(at) >= time.Minute })
			require.LessOrEqual(t, len(starts[a]), cfg.DefaultLimit.PerMinute)
			require.False(t, busy[exchange{f.Repo, f.URL}], "%s is asked twice at once", f.URL)
			busy[exchange{f.Repo, f.URL}] = true
		}
		checked = len(p.fetches)
		require.LessOrEqual(t, len(p.open), cfg.MaxAttempts+2*p.q.share())
		require.LessOrEqual(t, p.q.requests.second, p.q.share())
	}
	p.onStop = func(f Fetch) {
		check()
		inFlight[f.URL.HostPort()]--
		busy[exchange{f.Repo, f.URL}] = false
	}
	answer := func(o Outcome) {
		i := rng.IntN(len(p.open))
		p.open[0], p.open[i] = p.open[i], p.open[0]
		inFlight[p.open[0].URL.HostPort()]--
		busy[exchange{p.open[0].Repo, p.open[0].URL}] = false
		p.fetched(Fetched{Outcome: o, More: rng.IntN(1+int(seed%3)) > 0})
	}
	for range 300 {
		switch n := rng.IntN(10); {
		case n == 0 && rng.IntN(4) == 0:
			p.step(Whole{repo(rng.IntN(8))})
		case n < 3:
			i := rng.IntN(8)
			p.want(i, Origin(rng.IntN(2)), fmt.Sprintf("https://a.example/%d.git", i),
				fmt.Sprintf("https://b.example/%d.git", i), fmt.Sprintf("https://a.example/%d-b.git", i))
		case n < 7 && len(p.open) > 0:
			answer(Outcome(rng.IntN(3)))
		default:
			if at, ok := p.q.NextWake(p.now); ok && at.After(p.now) && rng.IntN(2) == 0 {
				p.now = at
			} else {
				p.now = p.now.Add(time.Duration(rng.IntN(5000)) * time.Millisecond)
			}
			p.step(Tick{})
		}
		check()
	}
	for range 5000 {
		if p.q.Len() == 0 {
			break
		}
		if len(p.open) > 0 {
			answer(Complete)
		} else {
			at, ok := p.q.NextWake(p.now)
			require.True(t, ok, "the queue is stuck")
			if at.After(p.now) {
				p.now = at
			}
			p.step(Tick{})
		}
		check()
	}
	require.Zero(t, p.q.Len())
	for len(p.open) > 0 { // of what was settled meanwhile
		answer(Nothing)
	}
	require.Zero(t, p.q.attempts)
	require.Zero(t, p.q.requests.left)
	require.Zero(t, p.q.requests.second)
}

// What an earlier process left is gone on from; times that can't be are corrected.
func TestRestore(t *testing.T) {
	a, b := url(t, "https://a.example/x.git"), url(t, "https://b.example/x.git")
	p := play(t, config())
	p.q.Restore(p.now, []PastRepo{
		{repo(1), 2, p.now.Add(30 * time.Second)}, {repo(2), 1 << 40, p.now.Add(1000 * time.Hour)}, {repo(3), -1, p.now.Add(-time.Hour)},
		{repo(4), 3, p.now.Add(time.Minute)},
	}, []PastDomain{
		{Domain: a.HostPort(), Last: p.now.Add(-20 * time.Second), Recent: 29},
		{Domain: b.HostPort(), Last: p.now.Add(time.Hour), Failures: 1, BrokenUntil: p.now.Add(1000 * time.Hour)},
	})
	for i := 1; i <= 3; i++ {
		p.want(i, BySync, a.String()+fmt.Sprint(i), b.String()+fmt.Sprint(i))
	}
	p.step(Whole{repo(4)})
	p.want(4, BySync, a.String())
	p.wait(time.Second)
	require.Len(t, p.fetches, 1, "one more this minute, and b is broken")
	require.Equal(t, repo(3), p.fetches[0].Repo)
	require.Equal(t, 1, p.fetches[0].Attempt)
	require.Equal(t, 20*time.Second, p.fetches[0].Wait)
	require.Equal(t, 30, p.fetches[0].Recent)
	p.answer(Nothing)
	p.wait(38 * time.Second)
	require.Len(t, p.fetches, 1)
	p.wait(2 * time.Second)
	require.Greater(t, len(p.fetches), 1, "the window has opened")
	for len(p.open) > 0 {
		p.answer(Nothing)
	}
	p.wait(100 * time.Second)
	number := make(map[string]int)
	for _, f := range p.fetches {
		require.Equal(t, a.HostPort(), f.URL.HostPort())
		number[f.Repo.Identifier] = max(number[f.Repo.Identifier], f.Attempt)
	}
	require.GreaterOrEqual(t, number["r001"], 3, "it goes on where it was")
	require.NotZero(t, number["r002"], "no later than the longest backoff")
	failures, until := p.q.Broken(b.HostPort())
	require.Equal(t, 1, failures)
	require.Equal(t, start.Add(24*time.Hour), until)
	failures, until = New(Config{}).Broken(b.HostPort())
	require.Zero(t, failures, "of whom nothing is known")
	require.Zero(t, until)
}

// Who waits for a turn is owed one: of each server that may be asked soon, since it came.
func TestOwes(t *testing.T) {
	cfg := config()
	cfg.DefaultLimit = Limit{Concurrent: 1, PerMinute: 2}
	p := play(t, cfg)
	came := p.now
	owes := func() (out []bool) {
		for i := range 3 {
			out = append(out, p.q.Owes(p.now, repo(i), came))
		}
		return out
	}
	none := []bool{false, false, false}
	require.Equal(t, none, owes())
	for i := range 3 {
		p.want(i, BySync, "https://a.example/"+string(rune('x'+i))+".git")
	}
	require.Equal(t, none, owes(), "it is not their turn that they wait for")
	p.wait(time.Second)
	require.Equal(t, []bool{false, true, true}, owes())
	p.answer(Nothing)
	require.Equal(t, []bool{false, false, true}, owes())
	p.answer(Nothing)
	p.wait(time.Minute)
	require.Equal(t, none, owes())
	require.True(t, p.q.Owes(p.now, repo(0), p.now), "for what comes now it was not asked")
	p.answer(Broken)
	p.wait(30 * time.Second)
	require.Equal(t, none, owes(), "nobody is asked soon")

	p.now = p.now.Add(time.Hour)
	p.q.Restore(p.now, []PastRepo{{Repo: repo(7), Attempts: 1, Next: p.now}}, nil)
	p.want(7, BySync, "https://a.example/7.git")
	p.want(8, BySync, "https://a.example/8.git")
	p.now = p.now.Add(time.Second) // and nothing was done yet
	require.False(t, p.q.Owes(p.now, repo(7), came), "it was asked before a restart")
	require.True(t, p.q.Owes(p.now, repo(8), came))
	p.step(Whole{repo(8)})
	require.False(t, p.q.Owes(p.now, repo(8), came))
}

// Repositories whose servers have others before them are left to these in one step: with one at a time a hub of thousands kept the queue
// busy for half a minute.
func TestWhatCannotBeAskedTakesNoStep(t *testing.T) {
	cfg := config()
	cfg.DefaultLimit, cfg.MaxRepos = Limit{Concurrent: 5, PerMinute: 30}, 1000
	p := play(t, cfg)
	for i := range 1000 {
		p.wantOf(byte(i%100), i, fmt.Sprintf("https://hub%d.example/%d.git", i%5, i))
	}
	steps := 0
	p.goOn(10*time.Minute, func(Fetch) (time.Duration, Outcome) { return time.Second, Complete }, func() { steps++ })
	require.Len(t, p.fetches, 1000)
	require.Less(t, steps, 1100)
}
