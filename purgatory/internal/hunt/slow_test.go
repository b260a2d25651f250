package hunt

import (
	"fmt"
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
