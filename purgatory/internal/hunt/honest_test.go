package hunt

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/racetest"
)

// attacks are what strangers do: each returns the URLs of one more repository of theirs.
var attacks = []struct {
	name string
	urls func(i int) []string
}{
	{"a domain each", func(i int) []string { return []string{fmt.Sprintf("https://drip%d.example/r.git", i)} }},
	{"ports", func(i int) []string { return []string{fmt.Sprintf("https://drip.example:%d/r.git", 2000+i)} }},
	{"ports of the hub's host", func(i int) []string { return []string{fmt.Sprintf("https://hub.example:%d/r.git", 2000+i)} }},
	{"sixteen names", func(i int) (out []string) {
		for j := range 16 {
			out = append(out, fmt.Sprintf("https://drip%d.evil.example/%d.git", j, i))
		}
		return out
	}},
	{"the hub, and names that drip", func(i int) []string {
		return []string{fmt.Sprintf("https://hub.example/m%d.git", i), fmt.Sprintf("https://drip%d-a.example/r.git", i), fmt.Sprintf("https://drip%d-b.example/r.git", i)}
	}},
	{"large ones of the hub", func(i int) []string { return []string{fmt.Sprintf("https://hub.example/huge%d.git", i)} }},
	{"the URL of somebody else", func(i int) []string { return []string{fmt.Sprintf("https://hub.example/honest%d.git", i%5)} }},
}

// Whatever strangers do, and however many of them come, whoever has a repository with a server that has it is done with it: a small
// one soon, and a large one, which takes minutes, before what waits for it is given up.
func TestHonestOnesComeThrough(t *testing.T) {
	for _, attack := range attacks {
		t.Run(attack.name, func(t *testing.T) {
			for seed := range uint64(racetest.Rounds(8)) {
				come(t, attack.urls, rand.New(rand.NewPCG(seed, 11)))
			}
		})
	}
}

func come(t *testing.T, urls func(i int) []string, rng *rand.Rand) {
	cfg := config()
	cfg.MaxDomains, cfg.MaxRepos = 10_000, 20_000
	cfg.DefaultLimit = Limit{Concurrent: 5, PerMinute: 30}
	cfg.MaxAttempts = 10
	p := play(t, cfg)
	large := rng.IntN(2) == 0
	counting := large && rng.IntN(2) == 0 // its server says nothing for more than a minute
	honest := func(f Fetch) bool { return f.Repo.Owner == pubKey(1) }
	takes := func(f Fetch) (time.Duration, Outcome) {
		switch {
		case honest(f) && counting:
			return 75 * time.Second, Complete
		case honest(f) && large:
			return 4 * time.Minute, Complete
		case honest(f):
			return time.Second, Complete
		case strings.HasPrefix(f.URL.String(), "https://hub.example/m"):
			return time.Second, Nothing
		}
		return 5 * time.Hour, Nothing
	}
	p.rates = func(f Fetch) int64 {
		switch {
		case counting && honest(f):
			return 0
		case honest(f):
			return 500_000
		}
		return 2000
	}
	strangers := 0
	flood := func(n int) {
		for range n {
			ref := graspsync.RepoRef{Owner: pubKey(byte(100 + rng.IntN(100))), Identifier: fmt.Sprint("r", strangers)}
			in := Wanted{Repo: ref}
			for _, u := range urls(strangers) {
				in.URLs = append(in.URLs, url(t, u))
			}
			strangers++
			p.step(in)
		}
	}
	p.step(Wanted{Repo: graspsync.RepoRef{Owner: pubKey(1), Identifier: "served"}, URLs: []graspsync.CloneURL{url(t, "https://hub.example/honest0.git")}})
	p.goOn(10*time.Minute, takes, func() {})
	flood(40 + rng.IntN(40))
	p.goOn(time.Duration(rng.IntN(300))*time.Second, takes, func() {})
	since := p.now
	for i := range 5 {
		ref := graspsync.RepoRef{Owner: pubKey(1), Identifier: fmt.Sprint("honest", i)}
		at := fmt.Sprintf("https://hub.example/honest%d.git", i)
		if i > 2 {
			at = fmt.Sprintf("https://newcomer%d.example/r.git", i)
		}
		p.step(Wanted{Repo: ref, URLs: []graspsync.CloneURL{url(t, at)}})
	}
	waits := func() (n int) {
		for ref := range p.q.repos {
			if ref.Owner == pubKey(1) {
				n++
			}
		}
		return n
	}
	for waits() > 0 {
		most := 10 * time.Minute
		if large { // one after the other: who has several waits for owners who have none under way
			most = 90 * time.Minute
		}
		require.LessOrEqual(t, p.now.Sub(since), most, "large %v: %d wait, %d stopped, %d strangers", large, waits(), len(p.stopped), strangers)
		flood(rng.IntN(4))
		p.goOn(time.Minute, takes, func() {})
	}
	t.Logf("large %v: done after %v, %d stopped, %d strangers", large, p.now.Sub(since), len(p.stopped), strangers)
}

// Who waits for a place has nobody stopped who brings much: forty clones of some minutes from one hub took seven times as long, and
// most of what came was thrown away.
func TestClonesOfAHubAreNotWasted(t *testing.T) {
	cfg := config()
	cfg.DefaultLimit, cfg.MaxAttempts = Limit{Concurrent: 5, PerMinute: 30}, 10
	p := play(t, cfg)
	p.rates = func(Fetch) int64 { return 1_000_000 }
	for i := range 40 {
		p.wantOf(byte(1+i), i, fmt.Sprintf("https://hub.example/%d.git", i))
	}
	p.goOn(25*time.Minute, func(Fetch) (time.Duration, Outcome) { return 3 * time.Minute, Complete }, func() {})
	require.Zero(t, p.q.Len())
	require.Empty(t, p.stopped)
	require.Len(t, p.fetches, 40)
}

// A hub that is asked without end left no place at its site, beside one that drips, to a server there that had never delivered, and was
// itself stopped again and again for that.
func TestNewcomerBesideABusyHub(t *testing.T) {
	for name, takes := range map[string]time.Duration{"quick": 10 * time.Second, "silent for more than a minute": 75 * time.Second} {
		t.Run(name, func(t *testing.T) {
			cfg := config()
			cfg.DefaultLimit, cfg.MaxAttempts = Limit{Concurrent: 5, PerMinute: 30}, 20
			p := play(t, cfg)
			p.rates = func(Fetch) int64 { return 0 }
			ends := func(f Fetch) (time.Duration, Outcome) {
				switch host := f.URL.HostPort().Host; {
				case strings.HasPrefix(host, "drip"):
					return 5 * time.Hour, Nothing
				case strings.HasPrefix(host, "new"), f.Repo == repoOf(1, 0):
					return time.Second, Complete
				}
				return takes, Complete
			}
			p.wantOf(1, 0, "https://hub.site.example/0.git")
			p.goOn(time.Minute, ends, func() {})
			p.wantOf(3, 1000, "https://drip.site.example/r.git")
			for i := range 100 {
				p.wantOf(1, i+1, fmt.Sprintf("https://hub.site.example/%d.git", i+1))
			}
			p.goOn(time.Minute, ends, func() {})
			p.wantOf(2, 2000, "https://new.site.example/r.git")
			p.goOn(10*time.Second, ends, func() {})
			require.NotContains(t, p.q.repos, repoOf(2, 2000))
			p.goOn(5*time.Minute, ends, func() {})
			require.Empty(t, p.stopped)
		})
	}
}

// Those who wait at a server that may be asked less than others of its site had these stopped, which freed nothing for it.
func TestServerWithALimitOfItsOwn(t *testing.T) {
	cfg := config()
	cfg.DefaultLimit, cfg.MaxAttempts = Limit{Concurrent: 5, PerMinute: 30}, 20
	cfg.Limits = map[graspsync.HostPort]Limit{url(t, "https://small.site.example/x.git").HostPort(): {Concurrent: 2, PerMinute: 30}}
	p := play(t, cfg)
	p.rates = func(Fetch) int64 { return 0 }
	ends := func(f Fetch) (time.Duration, Outcome) {
		if f.Repo.Owner == pubKey(2) {
			return time.Second, Complete
		}
		return 75 * time.Second, Complete
	}
	p.wantOf(2, 99, "https://small.site.example/first.git")
	for i := range 30 {
		p.wantOf(1, i, fmt.Sprintf("https://hub.site.example/%d.git", i))
	}
	p.goOn(2*time.Minute, ends, func() {})
	p.wantOf(2, 100, "https://small.site.example/r.git")
	p.goOn(10*time.Second, ends, func() {})
	require.NotContains(t, p.q.repos, repoOf(2, 100))
	p.goOn(10*time.Minute, ends, func() {})
	require.Empty(t, p.stopped)
}

// Whoever was stopped has longer before he gives way again, and is slow all the same: a hundred strangers who answered after somewhat
// less than that had all places.
func TestPatienceMakesNobodyQuick(t *testing.T) {
	cfg := config()
	cfg.MaxDomains, cfg.MaxAttempts = 1000, 10
	p := play(t, cfg)
	p.rates = func(Fetch) int64 { return 0 }
	stops := make(map[graspsync.RepoRef]int)
	p.onStop = func(f Fetch) { stops[f.Repo]++ }
	ends := func(f Fetch) (time.Duration, Outcome) {
		switch {
		case f.Repo.Owner == pubKey(1):
			return time.Second, Complete
		case stops[f.Repo] >= mostPatience:
			return slowAfter<<mostPatience - time.Second, Nothing
		}
		return 5 * time.Hour, Nothing
	}
	for i := range 100 {
		p.wantOf(byte(100+i), i, fmt.Sprintf("https://drip%d.example/r.git", i))
	}
	p.goOn(12*time.Hour, ends, func() {})
	require.Greater(t, len(stops), 90)
	p.wantOf(1, 1000, "https://honest.example/r.git")
	p.goOn(10*time.Second, ends, func() {})
	require.NotContains(t, p.q.repos, repoOf(1, 1000))
}

// What a request has brought is known whatever happens, not only when a time has come: else one that was answered had those
// stopped that bring much.
func TestWhatComesCountsAtEveryStep(t *testing.T) {
	p := play(t, config())
	p.rates = func(Fetch) int64 { return 10_000_000 }
	for i := range 5 {
		p.wantOf(byte(1+i), i, fmt.Sprintf("https://hub.example/%d.git", i))
	}
	p.wantOf(50, 50, "https://other.example/x.git", "https://hub.example/x.git")
	p.wait(time.Second)
	p.wait(90 * time.Second)
	i := slices.IndexFunc(p.open, func(f Fetch) bool { return f.URL.HostPort().Host == "other.example" })
	p.open[0], p.open[i] = p.open[i], p.open[0]
	p.fetched(Fetched{Outcome: Nothing})
	require.Empty(t, p.stopped)
	_, slow := p.q.servers.slowSites["other.example"]
	require.False(t, slow, "nor is it slow")
}

// A second request that was stopped for a quick server has longer the next time: it was stopped at each attempt for one that had nothing.
func TestSecondServerThatTakesLongComesToItsEnd(t *testing.T) {
	p := play(t, config())
	ends := func(f Fetch) (time.Duration, Outcome) {
		switch host := f.URL.HostPort().Host; {
		case f.Repo != repoOf(1, 0):
			return time.Second, Complete
		case host == "hangs.example":
			return 30 * time.Minute, Nothing
		case host == "has.example":
			return 2 * time.Minute, Complete
		}
		return time.Second, Nothing
	}
	for i, host := range []string{"hangs", "hangs", "hangs", "has", "has", "quick"} {
		p.wantOf(9, 100+i, "https://"+host+".example/x.git")
		p.goOn(5*time.Second, ends, func() {})
	}
	p.goOn(time.Minute, ends, func() {})
	p.wantOf(1, 0, "https://has.example/r.git", "https://hangs.example/r.git", "https://quick.example/r.git")
	p.goOn(40*time.Minute, ends, func() {})
	require.NotContains(t, p.q.repos, repoOf(1, 0))
}

// Strangers have large repositories of a hub fetched, which come quickly. Once each of these had its time, who is new there, or was served
// before, waits for minutes: places that were to be had longer by having been stopped were had for hours.
func TestSmallOnesAmongHugeOnesOfAHub(t *testing.T) {
	for _, rate := range []int64{2000, 100_000} {
		for _, served := range []bool{false, true} { // the strangers, before
			t.Run(fmt.Sprintf("%d bytes a second, served %v", rate, served), func(t *testing.T) {
				cfg := config()
				cfg.DefaultLimit = Limit{Concurrent: 5, PerMinute: 30}
				p := play(t, cfg)
				p.rates = func(Fetch) int64 { return rate }
				ends := func(f Fetch) (time.Duration, Outcome) {
					if strings.Contains(f.URL.String(), "huge") {
						return 5 * time.Hour, Nothing
					}
					return time.Second, Complete
				}
				p.wantOf(1, 1, "https://hub.example/first.git")
				for i := range 60 {
					if served {
						p.wantOf(byte(100+i), i, fmt.Sprintf("https://hub.example/small%d.git", i))
					}
				}
				p.goOn(10*time.Minute, ends, func() {})
				for i := range 60 {
					p.wantOf(byte(100+i), 1000+i, fmt.Sprintf("https://hub.example/huge%d.git", i))
				}
				p.goOn(3*time.Hour, ends, func() {})
				p.wantOf(1, 2, "https://hub.example/again.git")
				p.wantOf(2, 3, "https://hub.example/new.git")
				p.goOn(10*time.Minute, ends, func() {})
				require.NotContains(t, p.q.repos, repoOf(1, 2))
				require.NotContains(t, p.q.repos, repoOf(2, 3))
			})
		}
	}
}

// Whatever else a repository names, in pull requests of strangers, the server that has delivered before is asked every few minutes: an
// attempt went through all others first, which took hours, and two that hang had all requests of the repository. Servers that have delivered
// for their own and take their time say nothing either.
func TestServerThatDeliversIsAskedBesideOthers(t *testing.T) {
	for _, n := range []int{2, 16, 100} {
		for _, takes := range []time.Duration{10 * time.Minute, 5 * time.Hour} {
			for _, rate := range []int64{0, 70_000} {
				cfg := config()
				cfg.MaxBackoff, cfg.MaxDomains = 2*time.Minute, 1000
				p := play(t, cfg)
				p.rates = func(Fetch) int64 { return rate }
				ends := func(f Fetch) (time.Duration, Outcome) {
					switch {
					case f.URL.HostPort().Host != "hub.example":
						return takes, Nothing
					case f.Repo == repoOf(1, 0):
						return time.Second, Complete
					}
					return time.Second, Nothing
				}
				p.wantOf(1, 0, "https://hub.example/first.git")
				p.goOn(time.Minute, ends, func() {})
				in := Wanted{Repo: repoOf(1, 1), URLs: []graspsync.CloneURL{url(t, "https://hub.example/r.git")}}
				for i := range n {
					in.Strangers = append(in.Strangers, url(t, fmt.Sprintf("https://slow%d.example/r.git", i)))
				}
				p.step(in)
				at, asked, longest := p.now, len(p.fetches), time.Duration(0)
				p.goOn(12*time.Hour, ends, func() {
					for ; asked < len(p.fetches); asked++ {
						if f := p.fetches[asked]; f.URL.HostPort().Host == "hub.example" {
							longest, at = max(longest, p.began[f.ID].Sub(at)), p.began[f.ID]
						}
					}
				})
				require.Less(t, max(longest, p.now.Sub(at)), 12*time.Minute, "%d servers that take %v, %d bytes a second", n, takes, rate)
			}
		}
	}
}

// What was begun at a server before that had delivered does not count as what is under way at those that have.
func TestHalfIsThatOfTheBeginning(t *testing.T) {
	cfg := config()
	cfg.DefaultLimit = Limit{Concurrent: 5, PerMinute: 30}
	p := play(t, cfg)
	p.rates = func(Fetch) int64 { return 100_000 }
	ends := func(f Fetch) (time.Duration, Outcome) {
		if f.Repo.Owner == pubKey(1) || f.Repo.Identifier == "100" {
			return 2 * time.Second, Complete
		}
		return 5 * time.Hour, Nothing
	}
	p.wantOf(1, 0, "https://192.0.2.7/r.git")
	p.goOn(time.Minute, ends, func() {})
	for i := range 5 { // of its network
		p.wantOf(byte(100+i), 100+i, fmt.Sprintf("https://192.0.2.9/%d.git", i))
	}
	p.goOn(30*time.Second, ends, func() {})
	require.Len(t, p.open, 4)
	for i := range 5 {
		p.wantOf(1, 1+i, fmt.Sprintf("https://192.0.2.7/r%d.git", i))
	}
	p.wait(time.Second)
	require.Len(t, p.open, 9)
}

// Mirrors that have delivered, and together take longer to say that they have nothing than the wait before they are asked again, were asked
// in turn without end, and nobody else ever was.
func TestServersAskedAgainAreNotTheOnlyOnes(t *testing.T) {
	for _, takes := range []time.Duration{15 * time.Second, 40 * time.Second} {
		cfg := config()
		cfg.MaxBackoff = 2 * time.Minute
		p := play(t, cfg)
		ends := func(f Fetch) (time.Duration, Outcome) {
			switch {
			case f.Repo != repoOf(1, 1), f.URL.HostPort().Host == "new.example":
				return time.Second, Complete
			}
			return takes, Nothing
		}
		var urls []string
		for i := range 12 {
			p.wantOf(1, 100+i, fmt.Sprintf("https://mirror%d.example/first.git", i))
			urls = append(urls, fmt.Sprintf("https://mirror%d.example/r.git", i))
		}
		p.goOn(time.Minute, ends, func() {})
		p.wantOf(1, 1, append(urls, "https://new.example/r.git")...)
		p.goOn(10*time.Minute, ends, func() {})
		require.NotContains(t, p.q.repos, repoOf(1, 1), "%v each", takes)
	}
}

// What comes is not thrown away since another server of the repository, which has nothing, is to be asked again.
func TestCloneIsNotStoppedForServersAskedAgain(t *testing.T) {
	for _, delivered := range []bool{false, true} {
		p := play(t, config())
		p.rates = func(f Fetch) int64 {
			if f.URL.HostPort().Host == "large.example" {
				return 500_000
			}
			return 500
		}
		ends := func(f Fetch) (time.Duration, Outcome) {
			switch host := f.URL.HostPort().Host; {
			case f.Repo != repoOf(1, 1):
				return time.Second, Complete
			case host == "large.example":
				return 20 * time.Minute, Complete
			case host == "drip.example":
				return 5 * time.Hour, Nothing
			}
			return 45 * time.Second, Nothing
		}
		p.wantOf(1, 2, "https://hub.example/first.git")
		if delivered {
			p.wantOf(1, 3, "https://large.example/first.git")
		}
		p.goOn(time.Minute, ends, func() {})
		p.wantOf(1, 1, "https://hub.example/r.git", "https://drip.example/r.git", "https://large.example/r.git")
		p.goOn(23*time.Minute, ends, func() {})
		require.NotContains(t, p.q.repos, repoOf(1, 1), "delivered before: %v", delivered)
		for _, f := range p.stopped {
			require.Equal(t, "drip.example", f.URL.HostPort().Host)
		}
	}
}

// As many large repositories of a hub as it has places, without end, and as fast: a clone of twenty minutes was stopped each time after
// a quarter of an hour.
func TestLargeOneAmongHugeOnes(t *testing.T) {
	for _, n := range []int{5, 10} {
		cfg := config()
		cfg.DefaultLimit = Limit{Concurrent: 5, PerMinute: 30}
		p := play(t, cfg)
		p.rates = func(Fetch) int64 { return 500_000 }
		ends := func(f Fetch) (time.Duration, Outcome) {
			switch f.Repo {
			case repoOf(1, 1):
				return 20 * time.Minute, Complete
			case repoOf(9, 0):
				return time.Second, Complete
			}
			return 20 * time.Hour, Nothing
		}
		p.wantOf(9, 0, "https://hub.example/first.git")
		p.goOn(time.Minute, ends, func() {})
		for i := range n {
			p.wantOf(byte(100+i), 100+i, fmt.Sprintf("https://hub.example/huge%d.git", i))
		}
		p.goOn(10*time.Minute, ends, func() {})
		p.wantOf(1, 1, "https://hub.example/r.git")
		p.goOn(90*time.Minute, ends, func() {})
		require.NotContains(t, p.q.repos, repoOf(1, 1), "%d huge ones", n)
	}
}
