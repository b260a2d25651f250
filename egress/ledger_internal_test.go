package egress

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/internal/racetest"
)

// Names that lead to an address of a stranger's and to that of an honest relay as well, and
// fail at the former 20 times a day, kept the relay from ever being tried.
func TestFailuresElsewhereLeaveAttempts(t *testing.T) {
	racetest.Amounts(t)
	b, err := NewBudget(BudgetConfig{})
	require.NoError(t, err)
	l, now := &b.ledger, time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	honest := netip.MustParsePrefix("8.8.8.8/32")
	var open []*ticket
	waited, longest, since := 0, time.Duration(0), now
	for n := range 12 * 60 * 24 * 7 {
		at := now.Add(time.Duration(n) * 5 * time.Second)
		for _, k := range open {
			l.end(k, at)
		}
		open = nil
		for i := range 4 {
			own := netip.MustParsePrefix(fmt.Sprintf("9.9.9.%d/32", i))
			if k, err := l.begin(fmt.Sprintf("n%d.example", n), own, []netip.Prefix{own, honest}, at); err == nil {
				open = append(open, k)
			}
		}
		if n == 0 {
			continue
		}
		if k, err := l.begin("honest.example", honest, []netip.Prefix{honest}, at); err == nil {
			longest, since, waited = max(longest, at.Sub(since)), at, waited+1
			l.end(k, at)
		}
	}
	t.Logf("tried %d times in a week, the longest wait was %v", waited, longest)
	assert.Greater(t, waited, 7)
	assert.Less(t, longest, 2*27*time.Hour)
}

// A relay that was never tried waited for days where names of strangers have its address
// beside one of theirs, which fails: that made it dead before anybody had tried it.
func TestFailuresElsewhereAreNoDeath(t *testing.T) {
	racetest.Amounts(t)
	for name, restart := range map[string]time.Duration{"one process": 0, "a restart every hour": time.Hour} {
		t.Run(name, func(t *testing.T) {
			b, err := NewBudget(BudgetConfig{})
			require.NoError(t, err)
			now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
			honest := netip.MustParsePrefix("8.8.8.8/32")
			longest := time.Duration(0)
			for n := range 24 * 60 * 6 { // six days
				at := now.Add(time.Duration(n) * time.Minute)
				if restart > 0 && n%int(restart/time.Minute) == 0 {
					state := b.ledger.export(at)
					b, err = NewBudget(BudgetConfig{})
					require.NoError(t, err)
					b.ledger.restore(state, at)
				}
				own := netip.MustParsePrefix(fmt.Sprintf("9.9.%d.%d/32", n>>8, n&255))
				k, err := b.ledger.begin(fmt.Sprintf("n%d.example", n), own, []netip.Prefix{own, honest}, at)
				require.NoError(t, err)
				b.ledger.end(k, at)
				// Should a relay begin to announce itself now, how long does it wait?
				longest = max(longest, b.ledger.account(accountKey{honest, false}).Next.Sub(at))
			}
			t.Logf("who comes during six days waits for %v at most", longest)
			assert.LessOrEqual(t, longest, 22*time.Second)
		})
	}
}

// An address that was dead and is none any more waits a day longer at most for what fails
// elsewhere, whatever number of names, and of restarts.
func TestFailuresElsewhereCostADay(t *testing.T) {
	for name, restart := range map[string]bool{"one process": false, "a restart every hour": true} {
		t.Run(name, func(t *testing.T) {
			b, err := NewBudget(BudgetConfig{fixed: budgetConstants{Rand: func() float64 { return 0 }}})
			require.NoError(t, err)
			now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
			honest := netip.MustParsePrefix("8.8.8.8/32")
			for n := range 30 {
				at := now.Add(time.Duration(n) * time.Hour)
				k, err := b.ledger.begin("honest.example", honest, []netip.Prefix{honest}, at)
				if err != nil {
					break // it is dead
				}
				b.ledger.end(k, at)
			}
			last := b.ledger.account(accountKey{honest, false}).LastAttempt
			for n := range 14 { // each a minute before it may be tried again
				at := last.Add(time.Duration(n+1) * (24*time.Hour - time.Minute))
				own := netip.MustParsePrefix(fmt.Sprintf("9.9.%d.%d/32", n>>8, n&255))
				k, err := b.ledger.begin(fmt.Sprintf("n%d.example", n), own, []netip.Prefix{own, honest}, at)
				require.NoError(t, err)
				b.ledger.end(k, at)
				if restart {
					state := b.ledger.export(at)
					b, err = NewBudget(BudgetConfig{fixed: budgetConstants{Rand: func() float64 { return 0 }}})
					require.NoError(t, err)
					b.ledger.restore(state, at)
				}
			}
			waits := b.ledger.account(accountKey{honest, false}).Next.Sub(last)
			t.Logf("an address that is dead is left alone for %v", waits)
			assert.LessOrEqual(t, waits, 48*time.Hour+time.Minute)
		})
	}
}

// A name may have any number of addresses: one failure counts for a few of them.
func TestANameWithManyAddresses(t *testing.T) {
	b, err := NewBudget(BudgetConfig{})
	require.NoError(t, err)
	d, err := NewDialer(Config{Budget: b, Resolver: manyAddresses{}, fixed: constants{HostAddrs: func() ([]netip.Addr, error) { return nil, nil }}})
	require.NoError(t, err)
	SetSocket(d, func(_ context.Context, to netip.AddrPort, judge func(string) error) (net.Conn, error) {
		return nil, errors.Join(judge(to.String()), syscall.ECONNREFUSED)
	})
	_, err = d.DialContext(t.Context(), "tcp", "many.example:443")
	require.ErrorIs(t, err, syscall.ECONNREFUSED)
	assert.Len(t, b.Export().Addresses, mostAttempts)
}

type manyAddresses struct{}

func (manyAddresses) LookupNetIP(context.Context, string, string) (out []netip.Addr, _ error) {
	for i := range 4_000 {
		out = append(out, netip.AddrFrom4([4]byte{8, 8, byte(i >> 8), byte(i)}))
	}
	return out, nil
}

// Of a host the addresses are kept where it was connected last, each once.
func TestProofsOfAHost(t *testing.T) {
	var p provenHost
	var want []netip.Prefix
	for i := range 40 {
		at := netip.PrefixFrom(netip.AddrFrom4([4]byte{9, 9, 9, byte(i)}), 32)
		p.add(at)
		p.add(at)
		want = append(want, at)
		require.Equal(t, want[max(0, len(want)-16):], p.at)
	}
}
