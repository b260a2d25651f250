package relaylimits

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Checks which disconnects count against the form of a request, and for how long.
func TestHangUps(t *testing.T) {
	now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	const negs = 4 * time.Hour
	req, other, probe, neg := Form{FormOfReq, 1}, Form{FormOfReq, 2}, Form{FormOfProbe, 1}, Form{Of: FormOfNegOpen}
	of := func(fs ...Form) (out []Forms) {
		for _, f := range fs {
			out = append(out, Forms{Own: []Form{f}})
		}
		return out
	}
	var o Observed
	require.Empty(t, o.Suspects(now))

	// The second disconnect counts, of a probe the first.
	for _, f := range []Form{req, neg, probe} {
		o = Observed{}
		o.HungUp(of(f), now, negs)
		require.Equal(t, map[Form]bool{f: f == probe}, o.Suspects(now))
		o.HungUp(of(f), now, negs)
		require.Equal(t, map[Form]bool{f: true}, o.Suspects(now))
		until := now.Add(48 * time.Hour)
		if f == neg {
			until = now.Add(negs)
		}
		require.Equal(t, map[Form]bool{f: true}, o.Suspects(until.Add(-1)))
		require.Equal(t, map[Form]bool{f: false}, o.Suspects(until), "it is asked for, alone")
		require.Empty(t, o.Suspects(now.Add(Longest)))
		require.Empty(t, o.forms)
	}

	// Of several requests each may be the cause.
	o = Observed{}
	for range 10 {
		o.HungUp(of(req, probe), now, negs)
		require.Equal(t, map[Form]bool{req: false, probe: false}, o.Suspects(now))
	}

	// An answer in between resets the count, and for a day six disconnects are needed.
	o = Observed{}
	for range 2 {
		o.HungUp(of(neg), now, negs)
	}
	now = now.Add(time.Minute)
	o.Took(neg, now)
	o.Took(other, now)
	require.Empty(t, o.Suspects(now))
	for i := range 6 {
		now = now.Add(time.Minute)
		o.HungUp(of(neg), now, negs)
		require.Equal(t, map[Form]bool{neg: i == 5}, o.Suspects(now))
	}

	// Once is enough for a form that counted before, and then all earlier results apply.
	for _, again := range []Forms{{Own: []Form{req}}, {Own: []Form{other}, Filters: []Form{probe}}} {
		o = Observed{}
		o.HungUp(of(req), now, negs)
		o.HungUp(of(req), now, negs)
		o.HungUp(of(probe), now, negs)
		later := now.Add(72 * time.Hour)
		require.Equal(t, map[Form]bool{req: false, probe: false}, o.Suspects(later))
		o.HungUp([]Forms{again}, later, negs)
		believed := o.Suspects(later.Add(47 * time.Hour))
		require.True(t, believed[req] && believed[probe], "%v", believed)
	}

	// The number of forms is limited; the oldest are evicted.
	o = Observed{}
	for i := range uint64(2 * maxForms) {
		o.HungUp(of(Form{FormOfProbe, i}), now.Add(time.Duration(i)), negs)
	}
	require.Len(t, o.forms, maxForms)
	require.NotContains(t, o.forms, Form{FormOfProbe, maxForms - 1})
	require.Contains(t, o.forms, Form{FormOfProbe, maxForms})
}
