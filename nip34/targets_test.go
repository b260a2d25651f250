package nip34

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
)

// Whatever the announcements say: those of the owner come first, each relay once and by somebody
// who names it and counts, as many as there is room for; nobody in a line has two more than
// somebody who still has one to name.
func TestTargetsAreShared(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 4))
	var urls []graspsync.RelayURL
	for i := range 12 {
		urls = append(urls, relayURL(t, fmt.Sprintf("wss://r%d.example", i)))
	}
	cut, led, several := 0, 0, 0
	for range 4_000 {
		var same []*Announcement
		n := 1 + rnd.IntN(7)
		for i := range n {
			if rnd.IntN(6) > 0 {
				a := announcement(t, key(i), randomTags(rnd, n)...)
				for _, u := range rnd.Perm(len(urls))[:rnd.IntN(6)] {
					a.Relays = append(a.Relays, urls[u])
				}
				same = append(same, a)
			}
		}
		f, unusable := Membership{}.Family("x", same), urls[rnd.IntN(len(urls))]
		usable := func(u graspsync.RelayURL) bool { return u != unusable }
		rule := TargetBounds{People: MaxMaintainers, Each: 1 + rnd.IntN(5), Most: rnd.IntN(8), Usable: usable}
		relays := f.Targets(rule)
		counts := func(who graspsync.PubKey) (out []graspsync.RelayURL) {
			if a := f.Announcement(who); a != nil {
				out = slices.Clone(a.Relays[:min(rule.Each, len(a.Relays))])
			}
			return slices.DeleteFunc(out, func(u graspsync.RelayURL) bool { return u == unusable })
		}
		for _, i := range rnd.Perm(n) { // one may be asked about after any other
			owner := key(i)
			got, left := relays(owner)
			own := counts(owner)
			require.GreaterOrEqual(t, len(got), len(own))
			var named []graspsync.RelayURL
			for k, s := range got {
				require.NotContains(t, named, s.Relay)
				named = append(named, s.Relay)
				require.Contains(t, counts(s.By), s.Relay)
				require.Equal(t, k < len(own), s.By == owner)
			}
			require.True(t, slices.Equal(own, named[:len(own)]))
			others := len(got) - len(own)
			require.LessOrEqual(t, others, rule.Most)
			require.True(t, left == 0 || others == rule.Most)

			view := f.Authority(graspsync.RepoRef{Owner: owner, Identifier: "x"})
			var lines [2][]graspsync.PubKey
			wanted, _ := f.Wanted([]graspsync.PubKey{owner}, ServedBounds())
			for who := range wanted {
				leads := view.Walk == Found && view.Has(who) || slices.Contains(view.Way, who)
				switch a := f.Announcement(who); {
				case leads:
					lines[0] = append(lines[0], who)
				case a != nil && a.HasSay():
					lines[1] = append(lines[1], who)
				}
			}
			took := func(who graspsync.PubKey) (n int) {
				for _, s := range got[len(own):] {
					if s.By == who {
						n++
					}
				}
				return n
			}
			sum, missed := 0, 0
			for _, line := range lines {
				for _, who := range line {
					sum += took(who)
					if len(line) > 1 && took(who) > 0 {
						several++
					}
					if !slices.ContainsFunc(counts(who), func(u graspsync.RelayURL) bool { return !slices.Contains(named, u) }) {
						continue
					}
					missed++
					for _, other := range line {
						require.LessOrEqual(t, took(other), took(who)+1)
					}
				}
			}
			require.Equal(t, others, sum, "nobody else names any")
			require.Equal(t, missed > 0, left > 0)
			if cut += min(left, 1); len(lines[0]) > 0 {
				led++
			}
		}
	}
	require.Greater(t, min(cut, led, several), 500)
}

// crowdOf is so many owners who each list 256, of whom the first
// thousand have an announcement and name 16 relays.
func crowdOf(tb testing.TB, owners int, whom func(i, j int) int) (all []*Announcement) {
	tb.Helper()
	have := make(map[int]bool)
	add := func(n int, maintainers ...int) {
		a := lists(n, maintainers...)
		for i := range 16 {
			u, err := graspsync.ParseRelayURL(fmt.Sprintf("wss://r%d-%d.example", n, i))
			require.NoError(tb, err)
			a.Relays = append(a.Relays, u)
		}
		have[n] = true
		all = append(all, a)
	}
	for i := range owners {
		var maintainers []int
		for j := range 256 {
			maintainers = append(maintainers, whom(i, j))
		}
		add(i, maintainers...)
	}
	for i := range owners {
		for j := range 256 {
			if n := whom(i, j); !have[n] && n < owners+1_024 { // more are not taken in
				add(n)
			}
		}
	}
	return all
}

// BenchmarkTargets is what it takes to find the relays of 300 repositories with one identifier.
func BenchmarkTargets(b *testing.B) {
	const owners = 300
	for name, whom := range map[string]func(i, j int) int{
		"each other": func(i, j int) int { return (i + j + 1) % owners },
		"all":        func(_, j int) int { return owners + j },
		"others":     func(i, j int) int { return owners + (i*4+j)%1_024 },
		"theirs":     func(i, j int) int { return owners + j*owners + i },
	} {
		f := Membership{}.Family("x", crowdOf(b, owners, whom))
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				relays := f.Targets(TargetBounds{People: 256, Each: 16, Most: 16, Usable: func(graspsync.RelayURL) bool { return true }})
				for i := range owners {
					relays(key(i))
				}
			}
		})
	}
}
