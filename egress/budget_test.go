package egress_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net"
	"net/netip"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/egress"
	"github.com/graspsync/graspsync/internal/racetest"
)

// world is a Dialer without a network beneath: what connects to an address is
// decided by the test.
type world struct {
	*testing.T
	d     *egress.Dialer
	b     *egress.Budget
	dns   *answers
	fails map[string]error // by address
	tried []string
}

func newWorld(t *testing.T, bc egress.BudgetConfig, changes ...func(*egress.Config)) *world {
	t.Helper()
	if bc.Fixed().Rand == nil {
		bc.Fixed().Rand = func() float64 { return 0 }
	}
	b, err := egress.NewBudget(bc)
	require.NoError(t, err)
	w := &world{T: t, b: b, dns: &answers{names: map[string][]string{}}, fails: map[string]error{}}
	c := egress.Config{Budget: b, Resolver: w.dns}.With(egress.Fixed{HostAddrs: func() ([]netip.Addr, error) { return nil, nil }})
	for _, change := range changes {
		change(&c)
	}
	w.d = newDialer(t, c)
	egress.SetSocket(w.d, func(_ context.Context, to netip.AddrPort, judge func(string) error) (net.Conn, error) {
		for range 2 { // the system may ask twice for one connection
			if err := judge(to.String()); err != nil {
				return nil, err
			}
		}
		w.tried = append(w.tried, to.Addr().String())
		if err := w.fails[to.Addr().String()]; err != nil {
			return nil, err
		}
		one, two := net.Pipe()
		t.Cleanup(func() { _ = two.Close() })
		return one, nil
	})
	return w
}

// dial connects to a host, which the test closes in the end.
func (w *world) dial(host string) (net.Conn, error) {
	conn, err := w.d.DialContext(w.Context(), "tcp", net.JoinHostPort(host, "443"))
	if err == nil {
		w.Cleanup(func() { _ = conn.Close() })
	}
	return conn, err
}

func (w *world) refused(host string) time.Duration {
	w.Helper()
	_, err := w.dial(host)
	require.ErrorIs(w, err, egress.ErrBudget)
	var wait interface{ RetryAfter() time.Duration }
	require.ErrorAs(w, err, &wait)
	require.ErrorContains(w, err, "again in")
	return wait.RetryAfter()
}

func (w *world) fail(host string) {
	w.Helper()
	_, err := w.dial(host)
	require.Error(w, err)
	require.NotErrorIs(w, err, egress.ErrBudget)
}

func TestPromiseP14_OneBudgetPerAddress(t *testing.T) {
	racetest.Amounts(t)
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, egress.BudgetConfig{})
		w.fails["8.8.8.8"] = syscall.ECONNREFUSED
		for i := range 10_000 {
			w.dns.set(fmt.Sprintf("n%d.example", i), "8.8.8.8")
		}
		n := 0
		for end, i := time.Now().Add(24*time.Hour), 0; time.Now().Before(end); i++ {
			_, err := w.dial(fmt.Sprintf("n%d.example", i%10_000))
			wait := time.Duration(0)
			var budget *egress.BudgetError
			if errors.As(err, &budget) {
				wait = budget.RetryAfter()
				assert.Equal(t, "8.8.8.8/32", budget.Address.String())
			} else {
				n++
			}
			time.Sleep(wait)
		}
		assert.LessOrEqual(t, n, 36)
		assert.Greater(t, n, 30)
		time.Sleep(time.Hour) // dead by the next attempt
		w.fail("n1.example")
		assert.Equal(t, 24*time.Hour, w.refused("n2.example"))
		assert.Len(t, w.dns.asked, n+2+int(w.b.Refused())-1)
		w.dns.set("six.example", "2606:4700:1:1::1")
		w.dns.set("near.example", "2606:4700:1:2::2")
		w.dns.set("far.example", "2606:4700:2::2")
		w.fails["2606:4700:1:1::1"] = syscall.ECONNREFUSED
		w.fail("six.example")
		assert.Equal(t, 5*time.Second, w.refused("near.example"), "a /48 is one address")
		_, err := w.dial("far.example")
		assert.NoError(t, err)
	})
}

// Made-up names behind the address of a relay, as with a shared front end, took the
// attempts of that relay.
func TestPromiseP14_ProvenHostIsNeverStarved(t *testing.T) {
	racetest.Amounts(t)
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, egress.BudgetConfig{})
		w.dns.set("relay.example", "8.8.8.8")
		conn, err := w.dial("relay.example")
		require.NoError(t, err)
		_, err = w.dial("relay.example")
		require.NoError(t, err, "a second one beside it, as for NIP-11")
		time.Sleep(time.Minute)
		w.d.Proven("relay.example")
		require.NoError(t, conn.Close())
		w.fails["8.8.8.8"] = syscall.ECONNREFUSED
		for i := range 30 { // nobody waits for a day, nor for an hour: there is a relay
			host := fmt.Sprintf("bogus%d.example", i)
			w.dns.set(host, "8.8.8.8")
			time.Sleep(time.Hour)
			w.fail(host)
		}
		assert.Equal(t, time.Minute, w.refused("bogus1.example"))
		delete(w.fails, "8.8.8.8")
		for range 20 {
			_, err := w.dial("relay.example")
			require.NoError(t, err)
		}
		// It moves: what others used up is not its own.
		w.dns.set("bogus.example", "8.8.4.4")
		w.fails["8.8.4.4"] = syscall.ECONNREFUSED
		w.fail("bogus.example")
		w.refused("bogus.example")
		w.dns.set("relay.example", "8.8.4.4")
		w.fail("relay.example")
		// But it is bound there: its name may have been pointed at a victim.
		assert.Equal(t, 5*time.Second, w.refused("relay.example"))
		time.Sleep(5 * time.Second)
		delete(w.fails, "8.8.4.4")
		_, err = w.dial("relay.example")
		require.NoError(t, err)
		w.d.Proven("relay.example")
		for range 20 {
			_, err := w.dial("relay.example")
			require.NoError(t, err)
		}
	})
}

// A place at an address was lost for good with each host that was proven there.
func TestProofGivesBackThePlace(t *testing.T) {
	for _, places := range []int{1, 2, 4} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, egress.BudgetConfig{}.With(egress.FixedBudget{PerAddress: places}))
			for i := range 10 {
				host := fmt.Sprintf("relay%d.example", i)
				w.dns.set(host, "8.8.8.8")
				_, err := w.dial(host)
				require.NoError(t, err, "%d places, host %d", places, i)
				w.d.Proven(host)
			}
			// Those who are not proven have as many places as before.
			for i := range max(1, places-1) {
				host := fmt.Sprintf("new%d.example", i)
				w.dns.set(host, "8.8.8.8")
				_, err := w.dial(host)
				require.NoError(t, err, "%d places", places)
			}
			w.dns.set("more.example", "8.8.8.8")
			w.refused("more.example")
		})
	}
}

func TestBudgetOfConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, egress.BudgetConfig{})
		var open []net.Conn
		for i := range 5 {
			w.dns.set(fmt.Sprintf("h%d.example", i), "8.8.8.8")
		}
		for i := range 3 {
			conn, err := w.dial(fmt.Sprintf("h%d.example", i))
			require.NoError(t, err)
			open = append(open, conn)
		}
		assert.Equal(t, 5*time.Second, w.refused("h3.example"))
		second, err := w.dial("h0.example")
		require.NoError(t, err, "a place is kept for these")
		w.refused("h1.example")
		require.NoError(t, second.Close())
		require.NoError(t, second.Close(), "closed once is closed")
		_, err = w.dial("h1.example")
		require.NoError(t, err)
		w.d.Proven("h1.example")
		_, err = w.dial("h3.example")
		require.NoError(t, err, "a proven one needs no place")
		for _, conn := range open {
			require.NoError(t, conn.Close())
		}
		assert.Equal(t, 10*time.Second, w.refused("h4.example"), "two ended without proof, one was proven")
	})
}

func TestBudgetPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, egress.BudgetConfig{PerMinute: 60})
		n := 0
		for i := range 600 { // ten attempts a second at addresses of their own
			if _, err := w.dial(fmt.Sprintf("8.8.%d.%d", i/250, i%250)); err == nil {
				n++
			}
			time.Sleep(100 * time.Millisecond)
		}
		assert.InDelta(t, 60+6, n, 2)
		assert.EqualValues(t, 600-n, w.b.Refused())
	})
}

// An unproven host with two addresses is tried at one of them, the next time at the other.
func TestBudgetOfTwoAddresses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, egress.BudgetConfig{})
		w.dns.set("two.example", "8.8.8.8", "2606:4700::1", "8.8.8.8")
		w.fails["8.8.8.8"], w.fails["2606:4700::1"] = syscall.ECONNREFUSED, syscall.ECONNREFUSED
		for _, want := range []string{"8.8.8.8", "2606:4700::1", "8.8.8.8"} {
			w.tried = nil
			w.fail("two.example")
			assert.Equal(t, []string{want}, w.tried)
			time.Sleep(5 * time.Second)
		}
		delete(w.fails, "2606:4700::1")
		w.fails["8.8.8.8"] = syscall.ENETUNREACH
		time.Sleep(10 * time.Second)
		w.tried = nil
		_, err := w.dial("two.example")
		require.NoError(t, err)
		assert.Equal(t, []string{"2606:4700::1"}, w.tried)
		w.d.Proven("two.example")
		w.fails["2606:4700::1"] = syscall.ECONNREFUSED
		w.tried = nil
		w.fail("two.example")
		assert.Len(t, w.tried, 2, "once proven, one dial tries all")
	})
}

func TestBudgetAllowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		allow := func(c *egress.Config) { c.Allow = prefixes("127.0.0.0/8", "64:ff9b::/96") }
		w := newWorld(t, egress.BudgetConfig{}, allow)
		w.fails["127.0.0.1"], w.fails["64:ff9b::808:808"] = syscall.ECONNREFUSED, syscall.ECONNREFUSED
		for range 100 {
			w.fail("127.0.0.1")
		}
		// What a translator leads to is not what the operator has opened.
		w.fail("64:ff9b::8.8.8.8")
		w.refused("64:ff9b::8.8.8.8")
		w.refused("8.8.8.8")

		w = newWorld(t, egress.BudgetConfig{}, allow, func(c *egress.Config) { c.BudgetAllowed = true })
		w.fails["127.0.0.1"] = syscall.ECONNREFUSED
		w.fail("127.0.0.1")
		w.refused("127.0.0.1")
	})
}

func TestPromiseP15_BudgetOverRestarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, egress.BudgetConfig{})
		w.dns.set("relay.example", "8.8.8.8")
		_, err := w.dial("relay.example")
		require.NoError(t, err)
		w.d.Proven("relay.example")
		w.fails["9.9.9.9"] = syscall.ECONNREFUSED
		for range 6 {
			w.fail("9.9.9.9")
			time.Sleep(w.refused("9.9.9.9"))
		}
		delete(w.fails, "9.9.9.9")
		_, err = w.dial("9.9.9.9") // and the process dies
		require.NoError(t, err)
		_, err = w.dial("9.9.9.9")
		require.NoError(t, err)
		_, err = w.dial("4.4.4.4")
		require.NoError(t, err)
		b, err := json.Marshal(w.b.Export())
		require.NoError(t, err)
		var state egress.BudgetState
		require.NoError(t, json.Unmarshal(b, &state))
		next := newWorld(t, egress.BudgetConfig{})
		next.b.Import(state)
		next.dns.set("relay.example", "8.8.8.8")
		_, err = next.dial("relay.example")
		assert.NoError(t, err)
		assert.Equal(t, 320*time.Second, next.refused("9.9.9.9"), "what we died of is a failure")
		assert.Equal(t, time.Minute, next.refused("4.4.4.4"), "a start is no reason to try again")
		next.b.Import(state)
		next.b.Import(egress.BudgetState{Addresses: []egress.AddressRecord{{
			Address: netip.MustParsePrefix("9.9.9.9/32"), Failures: 20, LastFailure: time.Now(), FailingSince: time.Now(),
		}}})
		assert.Equal(t, 320*time.Second, next.refused("9.9.9.9"), "the stricter one holds")
		assert.Equal(t, state.Hosts, next.b.Export().Hosts)
	})
}

// The backoff goes on where it was, and does not begin anew: twenty restarts, one after
// each wait, are no more attempts than none.
func TestPromiseP15_BackoffGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, egress.BudgetConfig{})
		want := 5 * time.Second
		for range 20 {
			w.fails["9.9.9.9"] = syscall.ECONNREFUSED
			w.fail("9.9.9.9")
			assert.Equal(t, want, w.refused("9.9.9.9"))
			state := w.b.Export()
			w = newWorld(t, egress.BudgetConfig{})
			w.b.Import(state)
			time.Sleep(max(w.refused("9.9.9.9"), time.Minute))
			if want = min(2*want, time.Hour); state.Addresses[0].LastFailure.Sub(state.Addresses[0].FailingSince) >= 22*time.Hour {
				break // dead soon
			}
		}
	})
}

// A file that somebody broke, or a clock that was wrong, neither frees nor binds
// anybody for longer than the rules do.
func TestBudgetStateIsDistrusted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		far := time.Now().Add(1000 * 24 * time.Hour)
		a := func(s string, b egress.AddressRecord) egress.AddressRecord {
			b.Address = netip.MustParsePrefix(s)
			return b
		}
		w := newWorld(t, egress.BudgetConfig{})
		w.b.Import(egress.BudgetState{
			Addresses: []egress.AddressRecord{
				{}, a("8.8.8.0/24", egress.AddressRecord{Failures: 9}), a("::ffff:8.8.8.8/128", egress.AddressRecord{Failures: 9}),
				a("1.0.0.1/32", egress.AddressRecord{Failures: math.MaxInt, FailingSince: far, LastFailure: far, NextAttempt: far}),
				a("1.0.0.2/32", egress.AddressRecord{Failures: 3}),
				a("1.0.0.3/32", egress.AddressRecord{Failures: -3, LastAttempt: time.Now().Add(-30 * time.Second)}),
				a("1.0.0.4/32", egress.AddressRecord{Failures: 50, FailingSince: far.Add(-2000 * 24 * time.Hour), LastFailure: time.Now(), NextAttempt: far}),
			},
			Hosts: []egress.ProvenHost{{Host: ""}, {Host: "A.example"}, {Host: "a.example.", Addresses: prefixes("8.8.8.8/32")}},
		})
		assert.Len(t, w.b.Export().Addresses, 4)
		assert.Empty(t, w.b.Export().Hosts)
		_, err := w.dial("8.8.8.8")
		require.NoError(t, err)
		assert.Equal(t, 66*time.Minute, w.refused("1.0.0.1"))
		assert.Equal(t, time.Hour, w.refused("1.0.0.2"))
		assert.Equal(t, 30*time.Second, w.refused("1.0.0.3"))
		assert.Equal(t, 1584*time.Minute, w.refused("1.0.0.4"))
	})
}

func TestBudgetIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, egress.BudgetConfig{PerMinute: 100_000}.With(egress.FixedBudget{MaxAddresses: 10, MaxHosts: 10, Rand: math.NaN}))
		var open []net.Conn
		for i := range 11 {
			w.dns.set(fmt.Sprintf("h%d.example", i), fmt.Sprintf("8.8.8.%d", i))
		}
		for i := range 10 {
			conn, err := w.dial(fmt.Sprintf("h%d.example", i))
			require.NoError(t, err)
			open = append(open, conn)
		}
		w.refused("h10.example") // the others are connected
		require.NoError(t, open[0].Close())
		w.refused("h10.example") // one waits for its next attempt, and is not forgotten before that
		time.Sleep(5 * time.Second)
		_, err := w.dial("h10.example")
		require.NoError(t, err)
		assert.Len(t, w.b.Export().Addresses, 10)
		for i := range 20 {
			w.b.Import(egress.BudgetState{Hosts: []egress.ProvenHost{{Host: fmt.Sprintf("p%d.example", i)}}})
		}
		assert.Len(t, w.b.Export().Hosts, 10)
		assert.EqualValues(t, 2+1+10, w.b.Dropped())
		for i := range 40 {
			w.b.Import(egress.BudgetState{Hosts: []egress.ProvenHost{{
				Host: "many.example", Addresses: []netip.Prefix{netip.PrefixFrom(netip.AddrFrom4([4]byte{8, 8, 8, byte(i)}), 32)},
			}}})
		}
		hosts := w.b.Export().Hosts
		assert.Len(t, hosts[len(hosts)-1].Addresses, 16)
	})
}

// Time in which nobody tried is no time of failure.
func TestBudgetDeathNeedsAttempts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, egress.BudgetConfig{})
		w.fails["8.8.8.8"] = syscall.ECONNREFUSED
		w.fail("8.8.8.8")
		time.Sleep(100 * 24 * time.Hour)
		w.fail("8.8.8.8")
		assert.Equal(t, 10*time.Second, w.refused("8.8.8.8"))
	})
}

func TestBudgetConfig(t *testing.T) {
	_, err := egress.NewBudget(egress.BudgetConfig{PerMinute: -1})
	require.ErrorContains(t, err, "PerMinute")
	b, err := egress.NewBudget(egress.BudgetConfig{})
	require.NoError(t, err)
	assert.Empty(t, b.Export())
}

func FuzzBudgetState(f *testing.F) {
	f.Add([]byte(`{"addresses":[{"address":"8.8.8.8/32","failures":3,"next_attempt":"2030-01-01T00:00:00Z"}],"hosts":[{"host":"a.example","addresses":["8.8.8.8/32"]}]}`))
	f.Add([]byte(`{"addresses":[{"address":"2606:4700::/48","failures":-1,"failing_since":"0001-01-01T00:00:00Z"}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var s egress.BudgetState
		if json.Unmarshal(data, &s) != nil {
			return
		}
		b, err := egress.NewBudget(egress.BudgetConfig{})
		require.NoError(t, err)
		b.Import(s)
		limit := time.Now().Add(27 * time.Hour)
		for _, a := range b.Export().Addresses {
			require.False(t, a.NextAttempt.After(limit))
		}
		_, err = json.Marshal(b.Export())
		require.NoError(t, err)
	})
}

// A connection that we ended before it had stood for a minute was a failure of its
// address, though a relay had answered on it, and owed a pause after a restart.
func TestOurOwnEndIsNoFailure(t *testing.T) {
	for _, answered := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, egress.BudgetConfig{})
			w.dns.set("relay.example", "8.8.8.8")
			conn, err := w.dial("relay.example")
			require.NoError(t, err)
			if answered {
				w.b.Answered("relay.example")
			}
			saved := w.b.Export()
			require.NoError(t, conn.Close())
			closed := w.b.Export()
			for _, s := range []egress.BudgetState{saved, closed} {
				next := newWorld(t, egress.BudgetConfig{})
				next.dns.set("relay.example", "8.8.8.8")
				next.b.Import(s)
				if answered {
					_, err := next.dial("relay.example")
					require.NoError(t, err)
				} else {
					assert.Equal(t, time.Minute, next.refused("relay.example"))
				}
			}
		})
	}
}
