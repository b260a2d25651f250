package hunt

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/egress"
	"github.com/graspsync/graspsync/filters"
)

func (p *player) wantOf(owner byte, i int, urls ...string) {
	in := Wanted{Repo: filters.RepoRef{Owner: pubKey(owner), Identifier: fmt.Sprint(i)}}
	for _, u := range urls {
		in.URLs = append(in.URLs, url(p.t, u))
	}
	p.step(in)
}

func pubKey(b byte) filters.PubKey {
	k, _ := filters.ParsePubKey(fmt.Sprintf("%064x", b))
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
	seen := make(map[egress.URL]bool)
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
