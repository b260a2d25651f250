package hunt

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
)

// goOn lets time pass in which each request takes as long as it does, and calls each
// after every step.
func (p *player) goOn(d time.Duration, takes func(Fetch) (time.Duration, Outcome), each func()) {
	for end := p.now.Add(d); p.now.Before(end); each() {
		first := -1
		next := end
		for i, f := range p.open {
			took, _ := takes(f)
			if at := p.began[f.ID].Add(took); at.Before(next) {
				first, next = i, at
			}
		}
		if at, ok := p.q.NextWake(p.now); ok && at.Before(next) {
			require.False(p.t, at.Before(p.now) && p.idle > 1000, "the queue wakes itself without end")
			p.idle++
			if at.After(p.now) {
				p.now, p.idle = at, 0
			}
			p.step(Tick{})
			continue
		}
		p.now, p.idle = next, 0
		if first < 0 {
			p.step(Tick{})
			continue
		}
		p.open[0], p.open[first] = p.open[first], p.open[0]
		_, o := takes(p.open[0])
		p.answer(o)
	}
}

// takesTen is what slow servers do; the others answer in a second.
func takesTen(f Fetch) (time.Duration, Outcome) {
	if strings.HasPrefix(f.URL.HostPort().Host, "slow") {
		return 10 * time.Minute, Nothing
	}
	return time.Second, Complete
}

// Slow servers that many repositories wait for do not have more and more requests under
// way: who fetches would have no place for anything else.
func TestUnderWayIsBounded(t *testing.T) {
	cfg := config()
	p := play(t, cfg)
	for i := range 200 {
		p.wantOf(byte(i), i, fmt.Sprintf("https://slow%d.example/%d.git", i/10, i))
	}
	most := 0
	p.goOn(4*time.Hour, takesTen, func() { most = max(most, len(p.open)) })
	require.LessOrEqual(t, most, cfg.MaxAttempts+2*p.q.share())
	asked := make(map[string]int)
	for _, f := range p.fetches {
		asked[f.URL.HostPort().Host]++
	}
	require.Len(t, asked, 20, "each has its turn")
}

// A place is taken as long as its request is, whatever became of the attempt.
func TestSettledKeepsItsPlace(t *testing.T) {
	cfg := config()
	cfg.MaxAttempts = 2
	p := play(t, cfg)
	for i := range 10 {
		p.want(i, BySync, fmt.Sprintf("https://s%d.example/x.git", i))
		p.wait(time.Second)
		p.step(Whole{repo(i)})
	}
	require.Len(t, p.open, 2)
	p.want(10, BySync, "https://good.example/x.git")
	p.wait(time.Second)
	require.Len(t, p.open, 2)
	p.answer(Nothing)
	require.Len(t, p.open, 2)
}

// A hundred strangers whose servers were all slow before do not keep a newcomer from
// being asked at once, and have their turns nevertheless.
func TestSlowOnesGoBehind(t *testing.T) {
	for name, hosts := range map[string]int{"a server each": 100, "servers of many": 25, "always another server": 0} {
		t.Run(name, func(t *testing.T) {
			cfg := config()
			cfg.MaxDomains = 10_000
			p := play(t, cfg)
			for i := range 100 {
				var urls []string
				for j := range 16 {
					at := 16*i + j
					if hosts > 0 {
						at = i % hosts
					}
					urls = append(urls, fmt.Sprintf("https://slow%d.example/%d-%d.git", at, i, j))
				}
				p.wantOf(byte(100+i%100), i, urls...)
			}
			p.goOn(3*time.Hour, takesTen, func() {})
			for i := range 50 { // other keys, and servers that were asked
				at := 16 * i
				if hosts > 0 {
					at = i % hosts
				}
				p.wantOf(byte(200+i), i, fmt.Sprintf("https://slow%d.example/new%d.git", at, i))
			}
			p.goOn(time.Second, takesTen, func() {})
			for n := range 8 {
				before := len(p.fetches)
				good := fmt.Sprintf("good%d.example", n)
				p.wantOf(byte(n), 1000+n, "https://"+good+"/r.git")
				since := p.now
				p.goOn(30*time.Minute, takesTen, func() {})
				var at time.Time
				for _, f := range p.fetches[before:] {
					if f.URL.HostPort().Host == good {
						at = p.began[f.ID]
						break
					}
				}
				require.False(t, at.IsZero())
				require.LessOrEqual(t, at.Sub(since), time.Second)
				require.Greater(t, len(p.fetches), before+1, "the slow ones have their turns")
			}
		})
	}
}

// One that is slow and honest is asked, however many newcomers there are.
func TestSlowOneIsAsked(t *testing.T) {
	p := play(t, config())
	p.wantOf(1, 0, "https://slow.example/r.git")
	asked := func() (n int) {
		for _, f := range p.fetches {
			if f.Repo == (graspsync.RepoRef{Owner: pubKey(1), Identifier: "0"}) {
				n++
			}
		}
		return n
	}
	minute := func(f Fetch) (time.Duration, Outcome) {
		if f.URL.HostPort().Host == "slow.example" {
			return 10 * time.Minute, Nothing
		}
		return 50 * time.Second, Complete
	}
	for i := range 90 { // more than there are places for
		for j := range 14 {
			p.wantOf(byte(10+j), 100*i+j, fmt.Sprintf("https://n%d-%d.example/r.git", i, j))
		}
		p.goOn(time.Minute, minute, func() {})
	}
	require.GreaterOrEqual(t, asked(), 2)
}

// Keys that nobody knew, each with a port of its own at one address, or a name of one domain, had all places for ten minutes each, one
// after the other: whoever came after a hundred of them waited for an hour and a half.
func TestSlowStrangersGiveWay(t *testing.T) {
	for name, server := range map[string]string{"ports": "https://203.0.113.9:%d/r.git", "names": "https://slow%d.strangers.example/r.git"} {
		t.Run(name, func(t *testing.T) {
			cfg := config()
			cfg.MaxDomains = 10_000
			p := play(t, cfg)
			takes := func(f Fetch) (time.Duration, Outcome) {
				if strings.HasPrefix(f.URL.HostPort().Host, "good") {
					return time.Second, Complete
				}
				return 10 * time.Minute, Nothing
			}
			strangers := 0
			come := func(n int) {
				for range n {
					strangers++
					p.wantOf(byte(100+strangers%100), strangers, fmt.Sprintf(server, 10_000+strangers))
				}
			}
			come(100)
			p.goOn(time.Second, takes, func() {})
			require.Len(t, p.open, cfg.DefaultLimit.Concurrent, "they are one site")
			for n := range 30 {
				good := fmt.Sprintf("good%d.example", n)
				p.wantOf(byte(n), 1000+n, "https://"+good+"/r.git")
				since, before := p.now, len(p.fetches)
				p.goOn(2*time.Minute, takes, func() {})
				var at time.Time
				for _, f := range p.fetches[before:] {
					if f.URL.HostPort().Host == good {
						at = p.began[f.ID]
						break
					}
				}
				require.False(t, at.IsZero(), "newcomer %d is not asked for", n)
				require.LessOrEqual(t, at.Sub(since), time.Second, "newcomer %d", n)
				come(10)
			}
			require.Greater(t, len(p.fetches), 60, "they have their turns")
		})
	}
}

// Strangers who have a domain each are told apart by nothing; each of them has a place for a minute where others wait. A server
// that has delivered is not stopped for them, as long as there are others.
func TestSlowSitesGiveWay(t *testing.T) {
	cfg := config()
	cfg.MaxDomains = 10_000
	p := play(t, cfg)
	takes := func(f Fetch) (time.Duration, Outcome) {
		switch host := f.URL.HostPort().Host; {
		case host == "large.example" && p.now.Sub(start) > time.Hour:
			return 9 * time.Minute, Complete
		case strings.HasPrefix(host, "slow"):
			return 10 * time.Minute, Nothing
		}
		return time.Second, Complete
	}
	p.wantOf(1, 1, "https://large.example/a.git")
	p.goOn(2*time.Hour, takes, func() {})
	require.Empty(t, p.open)
	p.wantOf(1, 2, "https://large.example/b.git")
	p.goOn(time.Second, takes, func() {})
	require.Len(t, p.open, 1)
	for i := range 60 {
		p.wantOf(byte(100+i), i, fmt.Sprintf("https://slow%d.example/r.git", i))
	}
	p.goOn(time.Second, takes, func() {})
	p.wantOf(2, 1000, "https://good.example/r.git")
	since := p.now
	p.goOn(15*time.Minute, takes, func() {})
	for _, f := range p.stopped {
		require.NotEqual(t, "large.example", f.URL.HostPort().Host)
	}
	at := slices.IndexFunc(p.fetches, func(f Fetch) bool { return f.URL.HostPort().Host == "good.example" })
	require.Positive(t, at)
	require.LessOrEqual(t, p.began[p.fetches[at].ID].Sub(since), 13*time.Minute, "60 before it, of whom 5 give way a minute")
	require.False(t, p.q.About(p.now, graspsync.RepoRef{Owner: pubKey(1), Identifier: "2"}).Waits, "it was completed")
}

// A clone of some minutes from a server that nobody knows began anew each minute, as long as strangers came who have a
// domain each.
func TestWhoBringsMuchIsLetFinish(t *testing.T) {
	for name, delivered := range map[string]bool{"fresh strangers": false, "strangers who have delivered once": true} {
		t.Run(name, func(t *testing.T) {
			cfg := config()
			cfg.MaxDomains = 10_000
			p := play(t, cfg)
			flood := start.Add(30 * time.Minute)
			takes := func(f Fetch) (time.Duration, Outcome) {
				switch host := f.URL.HostPort().Host; {
				case host == "large.example":
					return 3 * time.Minute, Complete
				case p.began[f.ID].Before(flood):
					return time.Second, Complete
				}
				return 10 * time.Minute, Nothing
			}
			p.rates = func(f Fetch) int64 {
				if f.URL.HostPort().Host == "large.example" {
					return 500_000
				}
				return 1000
			}
			strangers := 0
			come := func(n int) {
				for range n {
					p.wantOf(byte(100+strangers%100), strangers, fmt.Sprintf("https://slow%d.example/r.git", strangers))
					strangers++
				}
			}
			if delivered {
				come(60)
				p.goOn(flood.Sub(p.now), takes, func() {})
				strangers = 0
			}
			p.goOn(flood.Sub(p.now), takes, func() {})
			come(60)
			p.goOn(time.Second, takes, func() {})
			p.wantOf(1, 1000, "https://large.example/r.git")
			large := graspsync.RepoRef{Owner: pubKey(1), Identifier: "1000"}
			since := p.now
			for p.q.About(p.now, large).Waits && p.now.Sub(since) < 5*time.Hour {
				come(3)
				p.goOn(time.Minute, takes, func() {})
			}
			require.LessOrEqual(t, p.now.Sub(since), 17*time.Minute, "60 before it, of whom 5 give way a minute")
		})
	}
}

// Names that anybody can have below somebody else's are one site.
func TestSite(t *testing.T) {
	for host, want := range map[string]string{
		"git.example.com": "example.com", "example.com": "example.com", "a.b.example.co.uk": "example.co.uk",
		"mallory1.duckdns.org": "duckdns.org", "x.mallory.github.io": "github.io", "b.compute.amazonaws.com": "amazonaws.com",
		"a.b.c.ck": "b.c.ck", "www.ck": "www.ck", "com": "com", "git.internal": "git.internal", "a.git.internal": "git.internal",
		"192.0.2.7": "192.0.2.0/24", "2001:db8:1:2::3": "2001:db8:1::/48",
	} {
		require.Equal(t, want, site(graspsync.HostPort{Host: host, Port: 443}), host)
	}
}

// An owner who has as many attempts under way as he may had those of others stopped, for repositories that might not start.
func TestNobodyGivesWayForNothing(t *testing.T) {
	cfg := config()
	cfg.MaxDomains = 10_000
	p := play(t, cfg)
	takes := func(Fetch) (time.Duration, Outcome) { return 5 * time.Minute, Complete }
	for i := range 2 {
		p.wantOf(byte(1+i), i, fmt.Sprintf("https://honest%d.example/r.git", i))
	}
	p.goOn(time.Second, takes, func() {})
	for n := range 60 {
		for i := range 5 {
			p.wantOf(100, 100+5*n+i, fmt.Sprintf("https://m%d-%d.example/r.git", n, i))
			p.wantOf(101, 100+5*n+i, fmt.Sprintf("https://n%d-%d.example/r.git", n, i))
		}
		p.goOn(time.Minute, takes, func() {})
	}
	for _, f := range p.stopped {
		require.NotContains(t, f.URL.HostPort().Host, "honest")
	}
	for i := range 2 {
		require.False(t, p.q.About(p.now, graspsync.RepoRef{Owner: pubKey(byte(1 + i)), Identifier: fmt.Sprint(i)}).Waits)
	}
}

// A large repository at a hub has nobody else's at that hub wait, once it has delivered.
func TestLargeRepositoryOfAHub(t *testing.T) {
	cfg := config()
	p := play(t, cfg)
	takes := func(f Fetch) (time.Duration, Outcome) {
		if strings.Contains(f.URL.String(), "huge") {
			return 10 * time.Minute, Nothing
		}
		return time.Second, Complete
	}
	p.wantOf(1, 1, "https://hub.example/small.git")
	p.goOn(time.Minute, takes, func() {})
	for i := range 3 {
		p.wantOf(byte(90+i), 500+i, fmt.Sprintf("https://hub.example/huge%d.git", i))
	}
	p.goOn(3*time.Minute, takes, func() {})
	before, since := len(p.fetches), p.now
	for i := range 10 {
		p.wantOf(byte(1+i), 1000+i, fmt.Sprintf("https://hub.example/r%d.git", i))
	}
	p.goOn(time.Minute, takes, func() {})
	asked := 0
	for _, f := range p.fetches[before:] {
		if strings.Contains(f.URL.String(), "/r") {
			asked++
			require.LessOrEqual(t, p.began[f.ID].Sub(since), 10*time.Second)
		}
	}
	require.Equal(t, 10, asked)
}

// Whoever was told to end, and has not yet, counts once.
func TestEachNewcomerHasOneGiveWay(t *testing.T) {
	q, now := New(config()), start
	stops := func(in Input) (n int) {
		for _, e := range q.Step(now, in, nil) {
			if _, is := e.(Stop); is {
				n++
			}
		}
		return n
	}
	want := func(i int) Wanted {
		u := url(t, fmt.Sprintf("https://s%d.example/r.git", i))
		return Wanted{Repo: graspsync.RepoRef{Owner: pubKey(byte(i)), Identifier: "r"}, URLs: []graspsync.CloneURL{u}}
	}
	for i := range 10 {
		require.Zero(t, stops(want(i)))
	}
	now = now.Add(time.Second)
	require.Zero(t, stops(Tick{}))
	now = now.Add(slowAfter)
	for i := range 7 {
		require.Zero(t, stops(want(100+i)))
		now = now.Add(time.Second)
		given := 1
		if i >= 5 { // slow ones keep their share
			given = 0
		}
		require.Equal(t, given, stops(Tick{}), "newcomer %d", i)
	}
}
