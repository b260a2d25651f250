package staged_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/goldentest"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory/gitserve/internal/staged"
)

// sorted is for names of which the order does not matter.
func sorted(names []string) []string {
	slices.Sort(names)
	return names
}

// In drawn worlds of clients that push for events of a few repositories, who is refused, who
// gives way and what is left for whom is what it was before.
func TestWorlds(t *testing.T) {
	sums := goldentest.NewSums(t, "testdata/worlds.sum")
	for seed := range uint64(30) {
		rng := rand.New(rand.NewPCG(seed, 7))
		limits := staged.Limits{
			Hold: time.Hour, All: int64(1+rng.IntN(20)) * staged.Least, PerRepo: int64(1+rng.IntN(10)) * staged.Least,
			PerClient: int64(1+rng.IntN(5)) * staged.Least,
		}
		if seed%2 == 0 {
			limits.Network = func(client string) string { return client[:min(2, len(client))] }
		}
		b, now := staged.New(limits), time.Unix(1_700_000_000, 0)
		var lines []string
		say := func(format string, args ...any) { lines = append(lines, fmt.Sprintf(format, args...)) }
		repo := func() graspsync.RepoRef { return graspsync.RepoRef{Identifier: fmt.Sprint("r", rng.IntN(4))} }
		client := func() string { return fmt.Sprintf("c%d.%d", rng.IntN(4), rng.IntN(3)) }
		event := func() (id graspsync.EventID) { id[0] = byte(rng.IntN(6)); return id }
		type push struct {
			*staged.Grant
			repo   graspsync.RepoRef
			client string
			ids    []graspsync.EventID
		}
		var open []push
		names := 0
		old := func() staged.Upload {
			names++
			return staged.Upload{
				Name: fmt.Sprint("u", names), Repo: repo(), Client: []string{"", client()}[rng.IntN(2)],
				Tips: map[graspsync.EventID]nip34.ObjectID{event(): {}}, Bytes: rng.Int64N(staged.Least), Since: now.Add(-time.Duration(rng.IntN(4000)) * time.Second),
			}
		}
		for range 500 {
			i := 0
			if len(open) > 0 {
				i = rng.IntN(len(open))
			}
			take := func() (p push) {
				p = open[i]
				open = append(open[:i], open[i+1:]...)
				return p
			}
			switch n := rng.IntN(16); {
			case n < 4:
				p := push{repo: repo(), client: client()}
				for range 1 + rng.IntN(2) {
					p.ids = append(p.ids, event())
				}
				var err error
				p.Grant, err = b.Begin(p.repo, p.client, p.ids)
				say("begin %v %s %x: %v", p.repo, p.client, p.ids, err)
				if err == nil {
					open = append(open, p)
				}
			case n < 7 && len(open) > 0:
				say("left %d, charge: %v", b.Left(open[i].Grant), b.Charge(open[i].Grant, rng.Int64N(3*staged.Least)))
				say("has %d", open[i].Bytes())
			case n < 10 && len(open) > 0:
				p := take()
				names++
				u := staged.Upload{Name: fmt.Sprint("u", names), Repo: p.repo, Client: p.client, Tips: make(map[graspsync.EventID]nip34.ObjectID), Bytes: p.Bytes(), Since: now}
				for _, id := range p.ids {
					u.Tips[id] = nip34.ObjectID{}
				}
				say("keep %s: %v", u.Name, sorted(b.Keep(p.Grant, u)))
			case n == 10 && len(open) > 0:
				b.End(take().Grant)
			case n == 11:
				r, id := repo(), event()
				var of []string
				for _, u := range b.Of(r, id) {
					of = append(of, fmt.Sprint(u.Name, " ", u.Bytes))
				}
				say("of %v, strike %v", sorted(of), sorted(b.Strike(r, id)))
			case n == 12:
				b.Remove(fmt.Sprint("u", 1+rng.IntN(names+1)))
			case n == 13:
				now = now.Add(time.Duration(rng.IntN(1800)) * time.Second)
				due := b.Due(now)
				say("due %v", sorted(due))
				for _, name := range due {
					b.Remove(name)
				}
			case n == 14 && rng.IntN(4) == 0:
				b.Put(old())
			case n == 15:
				say("restore: %v", b.Restore(old()))
			}
			next, ok := b.Next()
			want := repo()
			say("gone %v, %d of %d bytes, next %v %v, to %d", sorted(b.Displaced()), b.Len(), b.Bytes(), next.Unix(), ok, len(b.To(func(r graspsync.RepoRef) bool { return r == want })))
		}
		sums.Equal(t, fmt.Sprintf("world%02d", seed), lines)
	}
}
