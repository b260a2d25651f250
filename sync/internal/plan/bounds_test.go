package plan

import (
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/filters"
)

// History has half of what a relay takes, up to eight; live subscriptions leave it two, if
// there are so many.
func TestPlacesOfARelay(t *testing.T) {
	for _, c := range []struct{ most, live, historic int }{
		{0, 1, 1}, {1, 1, 1}, {2, 1, 1}, {3, 2, 1}, {4, 2, 2}, {5, 3, 2}, {6, 4, 3}, {15, 13, 7}, {16, 14, 8}, {18, 16, 8}, {100, 98, 8},
	} {
		l := Limits{MaxSubscriptions: c.most}
		require.Equal(t, c.live, l.LiveSubscriptions(), c)
		require.Equal(t, c.historic, l.Historic(), c)
	}
}

// What is known of addresses in a line is forgotten once their turns are over, if it is more
// than a thousand besides two for each that waits.
func TestFlowsOfALineAreBounded(t *testing.T) {
	p := newPlan(defaults())
	l, relays := &p.lines[lineNew], urls(t, 2)
	came := func(n, claim int) *relay {
		r := &relay{url: relays[0], claim: uint64(claim), address: netip.PrefixFrom(netip.AddrFrom4([4]byte{9, 9, byte(n / 250), byte(n % 250)}), 32)}
		l.share(r)
		return r
	}
	for n := range mostFlows {
		came(n, 1)
	}
	require.Len(t, l.flows, 1_000)
	l.waiting = append(l.waiting, &relay{}, &relay{})
	for n := range 4 {
		came(1_000+n, 1)
	}
	require.Len(t, l.flows, 1_004, "two for each that waits")
	l.now = 5
	r := &relay{claim: 1, cost: 6, address: netip.MustParsePrefix("9.9.0.0/32")}
	l.share(r)
	require.EqualValues(t, 6, r.place)
	came(1_004, 1)
	require.Len(t, l.flows, 1, "whose turns are not over")
	again := &relay{claim: 1, cost: 6, address: r.address}
	l.share(again)
	require.EqualValues(t, 12, again.place, "behind those at its address")
	other := &relay{claim: 2, cost: 6, address: r.address}
	l.share(other)
	require.EqualValues(t, 6, other.place, "not behind those of less claim")
}

// Of two connections three quarters are one: the second is not for a relay that has yet to
// prove that it is one.
func TestOneOfTwoConnectionsIsForTheProven(t *testing.T) {
	c := defaults()
	c.MaxConnections = 2
	p, us := newPlan(c), urls(t, 3)
	for i, u := range us[:2] {
		p.Step(start, full(ownedBy(i, "repo"), []filters.RelayURL{u}))
	}
	connect(t, p, start, us[0])
	p.Step(start.Add(time.Minute), Tick{})
	require.False(t, p.relays[us[1]].connecting)
	effects := p.Step(start.Add(time.Minute), Bootstrap{Relay: us[2]})
	require.Equal(t, []Dial{{Relay: us[2], Epoch: 2}}, only[Dial](effects))
}

// Marks may be asked for one by one.
func TestMarksEndWhenAsked(t *testing.T) {
	p, us := newPlan(defaults()), urls(t, 2)
	p.Step(start, full(repoRef("one"), us))
	for _, u := range us {
		settle(p, start, u, connect(t, p, start, u))
	}
	p.Step(start.Add(time.Minute), Settled{At: start.Add(time.Minute)})
	n := 0
	for range p.Marks() {
		n++
	}
	require.Equal(t, 2, n)
	for range p.Marks() {
		n++
		break
	}
	require.Equal(t, 3, n)
}
