package plan

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/filters"
)

// fetched returns the ids that effects ask a relay for by name.
func fetched(effects []Effect) (ids []string) {
	for _, s := range only[Start](effects) {
		if s.Batch.Kind == NamedIDs {
			ids = append(ids, s.Batch.Queries[0].Filter.IDs...)
		}
	}
	return ids
}

// Ids were lost without a count when nobody was connected, or the relay that had
// them was gone.
func TestNamedWithoutARelay(t *testing.T) {
	for name, u := range map[string]filters.RelayURL{"any": {}, "one that is gone": relayURL(t, "gone")} {
		t.Run(name, func(t *testing.T) {
			p, a := newPlan(defaults()), relayURL(t, "a")
			p.Step(start, full(repoRef("x"), []filters.RelayURL{a}))
			require.Empty(t, p.Step(start, Named{Relay: u, IDs: []filters.EventID{rootID(1)}}))
			effects := connect(t, p, start, a)
			require.Equal(t, []string{rootID(1).String()}, fetched(effects))
			effects = p.Step(start, Named{Relay: u, IDs: []filters.EventID{rootID(2)}})
			effects = append(effects, p.Step(start.Add(time.Second), Tick{})...)
			if len(effects) == 0 { // all places are taken
				for id, b := range p.relays[a].batches {
					if b.kind == NamedIDs {
						effects = p.Step(start, Done{Relay: a, Epoch: p.relays[a].epoch, Batch: id})
						break
					}
				}
			}
			require.Equal(t, []string{rootID(2).String()}, fetched(effects))
		})
	}
}

func TestNamedWithoutARelayIsBounded(t *testing.T) {
	c := defaults()
	c.MaxNamed = 2
	p := newPlan(c)
	ids := []filters.EventID{rootID(1), rootID(2), rootID(3)}
	require.Equal(t, []Effect{Dropped{Reason: "named", Count: 1}}, p.Step(start, Named{IDs: ids}))
	require.Equal(t, []Effect{Dropped{Reason: "named", Count: 3}}, p.Step(start, Named{IDs: ids}))
}

// What a relay was to be asked for that is forgotten is asked of another one.
func TestNamedMovesOn(t *testing.T) {
	p, a, b := newPlan(defaults()), relayURL(t, "a"), relayURL(t, "b")
	p.Step(start, full(repoRef("x"), []filters.RelayURL{a, b}))
	effects := connect(t, p, start, b)
	settle(p, start, b, effects)
	require.Empty(t, fetched(p.Step(start, Named{Relay: a, IDs: []filters.EventID{rootID(1)}})))
	effects = p.Step(start, full(repoRef("x"), []filters.RelayURL{b}))
	require.Equal(t, []string{rootID(1).String()}, fetched(effects))
}

func TestNamedIDsOfOneQueryAreBounded(t *testing.T) {
	c := defaults()
	c.NamedIDs = 2
	p, a := newPlan(c), relayURL(t, "a")
	p.Step(start, full(repoRef("x"), []filters.RelayURL{a}))
	settle(p, start, a, connect(t, p, start, a))
	asked := 0
	for _, e := range p.Step(start, Named{Relay: a, IDs: []filters.EventID{rootID(1), rootID(2), rootID(3)}}) {
		if s, ok := e.(Start); ok {
			for _, q := range s.Batch.Queries {
				require.LessOrEqual(t, len(q.Filter.IDs), 2)
				asked += len(q.Filter.IDs)
			}
		}
	}
	require.NotZero(t, asked)
}
