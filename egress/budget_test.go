package egress_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
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

// world is a Dialer without a network. The test decides the result of each connection.
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
	egress.SetSocket(w.d, func(_ context.Context, to netip.AddrPort, check func(string) error) (net.Conn, error) {
		for range 2 { // the system may ask twice for one connection
			if err := check(to.String()); err != nil {
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

// dial opens a connection to a host, which is closed at the end of the test.
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

// Invented names with the address of a relay, as behind a shared front end, used up the attempts of
// that relay.
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
		w.d.MarkProven("relay.example")
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
		// It moves, maybe to a victim.
		w.dns.set("relay.example", "8.8.4.4")
		w.fails["8.8.4.4"] = syscall.ECONNREFUSED
		w.fail("relay.example")
		assert.Equal(t, 5*time.Second, w.refused("relay.example"))
		time.Sleep(5 * time.Second)
		delete(w.fails, "8.8.4.4")
		_, err = w.dial("relay.example")
		require.NoError(t, err)
		w.d.MarkProven("relay.example")
		for range 20 {
			_, err := w.dial("relay.example")
			require.NoError(t, err)
		}
	})
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
		w.d.MarkProven("h1.example")
		_, err = w.dial("h3.example")
		require.NoError(t, err, "a proven one needs no place")
		for _, conn := range open {
			require.NoError(t, conn.Close())
		}
		assert.Equal(t, 20*time.Second, w.refused("h4.example"), "three ended without proof, one was proven")
	})
}

func TestPromiseP15_BudgetOverRestarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, egress.BudgetConfig{})
		w.dns.set("relay.example", "8.8.8.8")
		_, err := w.dial("relay.example")
		require.NoError(t, err)
		w.d.MarkProven("relay.example")
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
		assert.Equal(t, state.Hosts, next.b.Export().Hosts)
	})
}

func TestBudgetIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, egress.BudgetConfig{PerMinute: 100_000}.With(egress.FixedBudget{MaxRecords: 10}))
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
			w.b.Import(egress.BudgetState{Hosts: []egress.ProvenHost{{
				Host: fmt.Sprintf("p%d.example", i), Address: netip.MustParsePrefix("8.8.8.8/32"),
			}}})
		}
		assert.Len(t, w.b.Export().Hosts, 10)
	})
}

func FuzzBudgetState(f *testing.F) {
	f.Add([]byte(`{"addresses":[{"address":"8.8.8.8/32","failures":3,"next_attempt":"2030-01-01T00:00:00Z"}],"hosts":[{"host":"a.example","address":"8.8.8.8/32"}]}`))
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

// A connection that we ended within a minute counted as a failure of its address, even if the relay
// had answered. After a restart the address then had to wait.
func TestAnsweredHostIsNoFailure(t *testing.T) {
	for _, answered := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, egress.BudgetConfig{})
			w.dns.set("relay.example", "8.8.8.8")
			conn, err := w.dial("relay.example")
			require.NoError(t, err)
			if answered {
				w.b.MarkAnswered("relay.example")
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
