package session

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/filters"
	"github.com/graspsync/graspsync/sync/internal/plan"
	"github.com/graspsync/graspsync/sync/internal/relaylimits"
	"github.com/graspsync/graspsync/sync/wire"
)

// refuser is a relay without events that refuses requests by CLOSED.
type refuser struct {
	s      *Session
	refuse func(wire.Request) string
	reqs   []wire.Request
	other  []Action // all except requests
}

// play answers until no request is open.
func (r *refuser) play(t *testing.T, actions []Action) {
	t.Helper()
	for len(actions) > 0 {
		require.Less(t, len(r.reqs), 2000)
		a := actions[0]
		actions = actions[1:]
		send, ok := a.(Send)
		if !ok {
			r.other = append(r.other, a)
			continue
		}
		if send.Request.Type != wire.TypeReq {
			continue
		}
		r.reqs = append(r.reqs, send.Request)
		m := eose(send.Request.Sub)
		if text := r.refuse(send.Request); text != "" {
			m = closed(send.Request.Sub, text)
		}
		actions = append(actions, r.s.Receive(start, m)...)
	}
}

func (r *refuser) probes() (n int) {
	for _, req := range r.reqs {
		if strings.HasPrefix(req.Sub, "p") {
			n++
		}
	}
	return n
}

func newRefuser(refuse func(wire.Request) string) *refuser {
	c := defaults()
	c.Limits.NoNegentropy = true
	return &refuser{s: New(c), refuse: refuse}
}

// refuseValues refuses filters with a value that begins with "BAD".
func refuseValues(r wire.Request) string {
	for _, f := range r.Filters {
		lists := [][]string{f.IDs, f.Authors}
		for _, values := range f.Tags {
			lists = append(lists, values)
		}
		for _, values := range lists {
			if slices.ContainsFunc(values, func(v string) bool { return strings.HasPrefix(v, "BAD") }) {
				return "bad req: " + fmt.Sprint(lists)
			}
		}
	}
	return ""
}

// values returns n values, of which those with the indexes bad are refused.
func values(n int, bad ...int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = fmt.Sprintf("30617:%064d:%d", 1, i)
	}
	for _, i := range bad {
		out[i] = fmt.Sprint("BAD", i)
	}
	return out
}

// All refused values of any list are found, and no others, live or historic, with a logarithmic
// number of probes.
func TestTrialFindsThePoison(t *testing.T) {
	for seed := range uint64(60) {
		rng := rand.New(rand.NewPCG(seed, 1))
		n := 1 + rng.IntN(100)
		var bad []int
		for range 1 + rng.IntN(3) {
			if i := rng.IntN(n); !slices.Contains(bad, i) {
				bad = append(bad, i)
			}
		}
		list := []string{"a", "q", filters.ListAuthors, filters.ListIDs}[rng.IntN(4)]
		f := nostr.Filter{}
		switch vs := values(n, bad...); list {
		case filters.ListAuthors:
			f.Authors = vs
		case filters.ListIDs:
			f.IDs = vs
		default:
			f.Tags = nostr.TagMap{list: vs}
		}
		r := newRefuser(refuseValues)
		live := rng.IntN(2) == 0
		if live {
			r.play(t, r.s.Follow(start, 1, []nostr.Filter{filters.Live(filters.Layer1()), filters.Live(f)}))
		} else {
			r.play(t, r.s.Fetch(start, batchOf(1, plan.History, f)))
			assert.Equal(t, plan.Gaps, one[Done](t, r.other).Result)
		}
		want := make(map[relaylimits.Value]struct{})
		for _, i := range bad {
			want[relaylimits.Value{Tag: list, Text: fmt.Sprint("BAD", i)}] = struct{}{}
		}
		require.Equal(t, want, r.s.caps.excluded, "seed %d", seed)
		require.Len(t, only[ExcludeValue](r.other), len(bad))
		require.LessOrEqual(t, r.probes(), 4+len(bad)*2*7)
		last := r.reqs[len(r.reqs)-1]
		require.Empty(t, refuseValues(last))
		if n > len(bad) {
			f := last.Filters[len(last.Filters)-1]
			_, left := filters.Longest(f, false)
			require.Equal(t, n-len(bad), left)
		}
		require.Nil(t, r.s.bisected)
	}
}
