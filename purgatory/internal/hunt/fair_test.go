package hunt

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/backoff"
)

func repoOf(owner byte, i int) graspsync.RepoRef {
	return graspsync.RepoRef{Owner: pubKey(owner), Identifier: fmt.Sprint(i)}
}

func (p *player) wantOf(owner byte, i int, urls ...string) {
	in := Wanted{Repo: repoOf(owner, i)}
	for _, u := range urls {
		in.URLs = append(in.URLs, url(p.t, u))
	}
	p.step(in)
}

func pubKey(b byte) graspsync.PubKey {
	k, _ := graspsync.ParsePubKey(fmt.Sprintf("%064x", b))
	return k
}

// Who has many repositories waits for a server, and for a place, with each of them; who
// has one does not wait for all of those.
func TestFairToOwners(t *testing.T) {
	cfg := config()
	cfg.MaxAttempts = 100
	p := play(t, cfg)
	for i := range 40 {
		p.wantOf(1, i, fmt.Sprintf("https://a.example/%d.git", i))
	}
	p.wait(time.Second)
	p.wantOf(2, 0, "https://a.example/good.git")
	p.wait(time.Second)
	for len(p.open) > 0 {
		p.answer(Nothing)
	}
	p.wait(61 * time.Second)
	require.Contains(t, p.asked(), "https://a.example/good.git")

	cfg.MaxAttempts = 2
	p = play(t, cfg)
	for i := range 5 {
		p.wantOf(1, i, fmt.Sprintf("https://s%d.example/a.git", i), fmt.Sprintf("https://s%d.example/b.git", i))
	}
	p.wait(time.Second)
	require.Len(t, p.open, 2)
	p.wantOf(2, 0, "https://good.example/x.git")
	p.wait(time.Second)
	p.answer(Nothing)
	require.Equal(t, "https://good.example/x.git", p.open[1].URL.String())
	seen := make(map[graspsync.CloneURL]bool)
	for len(p.open) > 0 {
		p.answer(Nothing)
	}
	for _, f := range p.fetches {
		require.False(t, seen[f.URL], "an attempt goes on where it was left")
		seen[f.URL] = true
	}
	require.Len(t, seen, 11)
	require.Zero(t, p.q.attempts)
}

// Servers that always may have more take no place and no server from others: an attempt leaves
// between two requests while others wait, and is through after a few.
func TestFairToOwnersWhileOthersGoOn(t *testing.T) {
	cfg := config()
	cfg.MaxAttempts = 2
	p := play(t, cfg)
	for i := range 5 {
		p.wantOf(1, i, fmt.Sprintf("https://s%d.example/a.git", i))
	}
	p.wait(time.Second)
	require.Len(t, p.open, 2)
	p.wantOf(2, 0, "https://good.example/x.git")
	p.wait(time.Second)
	p.fetched(Fetched{Outcome: Nothing, More: true})
	require.Equal(t, "https://good.example/x.git", p.open[1].URL.String())
	asked := make(map[graspsync.CloneURL]int)
	for len(p.open) > 0 {
		p.fetched(Fetched{Outcome: Nothing, More: true})
	}
	for _, f := range p.fetches {
		asked[f.URL]++
	}
	require.Len(t, asked, 6)
	for u, n := range asked {
		require.Equal(t, 1+mostFurther, n, u)
	}
	require.Len(t, p.ends, 6)

	p = play(t, config())
	for i := range 40 {
		p.wantOf(1, i, fmt.Sprintf("https://a.example/%d.git", i))
	}
	p.wait(time.Second)
	p.wantOf(2, 0, "https://a.example/good.git")
	for range 62 {
		for len(p.open) > 0 {
			p.fetched(Fetched{Outcome: Nothing, More: true})
		}
		p.wait(time.Second)
	}
	require.Contains(t, p.asked(), "https://a.example/good.git")
	require.LessOrEqual(t, len(p.fetches), 60, "thirty a minute")
}

// What was not asked, since it is known not to help, takes nothing of what a server may
// be burdened with from those who can be helped.
func TestUnaskedIsNotCounted(t *testing.T) {
	cfg := config()
	cfg.MaxAttempts = 100
	cfg.DefaultLimit = Limit{Concurrent: 5, PerMinute: 5}
	p := play(t, cfg)
	for i := range 20 {
		p.want(i, BySync, fmt.Sprintf("https://a.example/%d.git", i))
	}
	p.want(99, BySync, "https://a.example/good.git")
	p.wait(time.Second)
	for len(p.open) > 0 {
		p.answer(Unasked)
	}
	require.Contains(t, p.asked(), "https://a.example/good.git")
	for i := range 20 {
		p.want(i, BySync, fmt.Sprintf("https://a.example/%d.git", i))
	}
	p.wait(time.Second)
	for len(p.open) > 0 {
		p.answer(Nothing)
	}
	require.Len(t, p.fetches, 21+5, "real requests count as ever")
	require.Empty(t, p.q.InFlight())
}

// One key has forty repositories on servers that take as long as they may, each of its own:
// it had all places at once, and who came next waited for ten minutes.
func TestOneKeyWithSlowServersLeavesPlaces(t *testing.T) {
	p := play(t, config())
	for i := range 40 {
		p.wantOf(1, i, fmt.Sprintf("https://slow%d.example/r.git", i))
	}
	p.goOn(20*time.Second, takesTen, func() {})
	for n := range 20 {
		good := fmt.Sprintf("good%d.example", n)
		p.wantOf(byte(2+n), n, "https://"+good+"/r.git")
		since := p.now
		p.goOn(3*time.Minute, takesTen, func() {})
		last := p.fetches[len(p.fetches)-1]
		for _, f := range p.fetches {
			if f.URL.HostPort().Host == good {
				last = f
			}
		}
		require.Equal(t, good, last.URL.HostPort().Host)
		require.LessOrEqual(t, p.began[last.ID].Sub(since), time.Second)
	}
}

// Waits are longer by up to a tenth, differently for each repository and attempt, and the
// same for the same.
func TestWaitsAreLengthened(t *testing.T) {
	cfg := config()
	cfg.Seed = 7
	q, again := New(cfg), New(cfg)
	cfg.Seed = 8
	other := New(cfg)
	seen := make(map[time.Duration]bool)
	differ := false
	for i := range 50 {
		for n := 1; n < 6; n++ {
			wait := q.backoff(repo(i), n)
			plain := backoff.Doubled(cfg.Backoff, cfg.MaxBackoff, n)
			require.GreaterOrEqual(t, wait, plain)
			require.LessOrEqual(t, wait, plain+plain/10)
			require.Equal(t, wait, again.backoff(repo(i), n))
			differ = differ || wait != other.backoff(repo(i), n)
			seen[wait] = true
		}
	}
	require.True(t, differ)
	require.Greater(t, len(seen), 150)
}
