package egress

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/graspsync/graspsync/internal/backoff"
)

// ErrBudget is wrapped when a dial is refused for now, because strangers have
// brought the address too many attempts. The error has a method RetryAfter that
// says how long it is refused for at least; see [BudgetError]. No connection was
// attempted.
var ErrBudget = errors.New("address had its share of attempts")

// BudgetError is the error that wraps [ErrBudget].
type BudgetError struct {
	Address netip.Prefix
	Wait    time.Duration
}

// Error names the address and the wait.
func (e *BudgetError) Error() string {
	return fmt.Sprintf("%s: %s, again in %s", ErrBudget.Error(), e.Address, e.Wait.Round(time.Second))
}

// Unwrap returns ErrBudget.
func (e *BudgetError) Unwrap() error { return ErrBudget }

// RetryAfter returns the time after which the dial may be tried again.
func (e *BudgetError) RetryAfter() time.Duration { return e.Wait }

// BudgetConfig holds the bounds of a [Budget]. The zero value is usable.
type BudgetConfig struct {
	// PerMinute is how many connections of unproven hosts are begun in a minute,
	// to all addresses together; a tenth of them may come at once. Defaults to 600.
	PerMinute int

	fixed budgetConstants
}

// budgetConstants are the numbers about which no two operators would differ. Only tests have others.
type budgetConstants struct {
	// PerAddress is how many connections of unproven hosts are made or stand at one
	// address at once. One place of them is kept for second connections of a host
	// that has one, as for a NIP-11 document. Too small a value makes relays behind
	// one shared address wait for each other when all are new. Defaults to 4.
	PerAddress int
	// BaseBackoff is how long an address is left alone by unproven hosts after a
	// first failure of one of them; each further failure doubles it, up to
	// MaxBackoff. Default to 5 s and 1 h.
	BaseBackoff, MaxBackoff time.Duration
	// DeadAfter is how long there must be nothing but failures until an address is
	// tried once every DeadInterval only. Default to 24 h and 24 h. With an interval
	// that is short the promise of one attempt a day is gone.
	DeadAfter, DeadInterval time.Duration
	// RestartPause is the shortest time between two attempts of unproven hosts at
	// an address when the process was started anew in between. Defaults to 1 min.
	RestartPause time.Duration
	// Jitter is the largest share by which a wait is lengthened at random, from 0
	// to 1. Defaults to 0.1; to have none, set Rand to a function that returns 0.
	Jitter float64
	// MaxAddresses and MaxHosts bound the addresses and the proven hosts that are
	// remembered. Beyond them those heard of longest ago are dropped: an address that
	// waits for no attempt, and a host, which is unproven then. If all addresses wait, a
	// new one is not dialed. An address takes about 200 bytes. Default to 50,000 and 50,000.
	MaxAddresses, MaxHosts int
	// Rand returns a random number in [0, 1). It is called under a lock and must
	// not call the Budget. Defaults to [math/rand/v2.Float64].
	Rand func() float64
}

func (c BudgetConfig) withDefaults() BudgetConfig {
	set := func(field *time.Duration, value time.Duration) {
		if *field == 0 {
			*field = value
		}
	}
	set(&c.fixed.BaseBackoff, backoff.Base)
	set(&c.fixed.MaxBackoff, backoff.Max)
	set(&c.fixed.DeadAfter, backoff.DeadAfter)
	set(&c.fixed.DeadInterval, backoff.DeadInterval)
	set(&c.fixed.RestartPause, backoff.RestartPause)
	for _, f := range []struct {
		field *int
		value int
	}{{&c.fixed.PerAddress, 4}, {&c.PerMinute, 600}, {&c.fixed.MaxAddresses, 50_000}, {&c.fixed.MaxHosts, 50_000}} {
		if *f.field == 0 {
			*f.field = f.value
		}
	}
	if c.fixed.Jitter == 0 {
		c.fixed.Jitter = backoff.Jitter
	}
	if c.fixed.Rand == nil {
		c.fixed.Rand = rand.Float64
	}
	return c
}

// Budget keeps strangers from having us attack somebody: what connects to an
// address, a /32 of IPv4 or a /48 of IPv6, is counted together, under whichever
// names and ports. While a host is unproven, which is until [Budget.Proven] is told
// of it, its connections come out of the budget of the address: after n of them that
// ended without proof, the address is left alone by unproven hosts for 5 s * 2^(n-1),
// at most an hour, and once there was nothing but that for a day, for a day.
//
// A proven host is free at the addresses at which it was proven, so that made-up
// names behind a shared address can't starve a relay there. Should its name lead to
// another address later, that one has a second budget for such hosts: who proves a
// host and then points its name at a victim gains no more than others, and who uses
// up the first budget does not keep a relay from moving.
//
// A Budget is made by [NewBudget], starts nothing and needs no closing. Its methods
// may be called concurrently. Several Dialers may share one.
type Budget struct {
	mu     sync.Mutex
	ledger ledger // guarded by mu
}

// NewBudget returns an empty Budget. The error names every bad field of c.
func NewBudget(c BudgetConfig) (*Budget, error) {
	if c.PerMinute < 0 {
		return nil, errors.New("egress budget: field PerMinute: negative")
	}
	return &Budget{ledger: newLedger(c.withDefaults())}, nil
}

// Proven says that host, a name or address without a port, answers as what it is
// dialed for: a relay that held a connection for a minute, a git server that
// answered as one. Its connections that stand now, and later ones to the same
// addresses, are free.
func (b *Budget) Proven(host string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ledger.prove(host)
}

// Answered says that we end the connections of a host for reasons of our own, and that
// it has answered as what it was dialed for: their end is no failure. It proves nothing.
func (b *Budget) Answered(host string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ledger.answered(host)
}

// Refused returns how many dials were refused since the start.
func (b *Budget) Refused() uint64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.ledger.refused
}

// Dropped returns how many addresses and hosts were dropped, since the start,
// because there were too many.
func (b *Budget) Dropped() uint64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.ledger.accounts.Evicted() + b.ledger.hosts.Evicted()
}

// Export returns all that is to be kept over a restart. Connections that are being
// made or stand count as failed in it, since a process that dies of one must not be
// freer afterwards. Saved once in a while it costs at most what happened since.
func (b *Budget) Export() BudgetState {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.ledger.export(time.Now())
}

// Import takes over what an earlier process exported; it belongs before the first
// dial. What is known already stays where it is stricter. Times that lie too far in
// the future, as after the clock was set back, are corrected. After it nothing is
// freer than it was for the earlier process.
func (b *Budget) Import(s BudgetState) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ledger.restore(s, time.Now())
}

// begin asks for a connection of a host to an address. A nil ticket is free. Any other one is given to end, or
// to cancel if no packet was sent.
func (b *Budget) begin(host string, to netip.Prefix) (*ticket, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.ledger.begin(host, to, time.Now())
}

func (b *Budget) end(t *ticket) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ledger.end(t, time.Now())
}

func (b *Budget) cancel(t *ticket) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ledger.cancel(t)
}

// order sorts the addresses of a host by when they were last tried.
func (b *Budget) order(host string, addrs []netip.Addr) []netip.Addr {
	b.mu.Lock()
	defer b.mu.Unlock()
	slices.SortStableFunc(addrs, func(x, y netip.Addr) int {
		return b.ledger.tried(host, budgetPrefix(x)).Compare(b.ledger.tried(host, budgetPrefix(y)))
	})
	return addrs
}

// budgetPrefix is what is counted together with addr.
func budgetPrefix(addr netip.Addr) netip.Prefix {
	addr = addr.Unmap().WithZone("")
	bits := 32
	if addr.Is6() {
		bits = 48
	}
	p, _ := addr.Prefix(bits) // only fails for the zero Addr, and so for what is never dialed
	return p
}
