package egress

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"
	"time"
)

// ErrBudget is wrapped by the error of a dial that is refused temporarily, because unproven hosts
// made too many attempts at the address. No connection was attempted. The error is a [BudgetError]
// with the time to wait.
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

// Unwrap returns [ErrBudget].
func (e *BudgetError) Unwrap() error { return ErrBudget }

// RetryAfter returns the time after which the dial may be repeated.
func (e *BudgetError) RetryAfter() time.Duration { return e.Wait }

// BudgetConfig holds the bounds of a [Budget]. The zero value is usable.
type BudgetConfig struct {
	// PerMinute is the maximum number of connections of unproven hosts that are started in a
	// minute, to all addresses together. A tenth of them may start together. Defaults to 600.
	PerMinute int

	fixed budgetConstants
}

// budgetConstants are constants that only tests change.
type budgetConstants struct {
	// MaxAddresses and MaxHosts are the maximum numbers of remembered addresses and proven hosts.
	// Beyond them the least recently used record is dropped. A dropped host is unproven again. An
	// address is dropped only if it waits for no attempt. If all addresses wait, a new address is
	// not dialed. An address takes about 200 bytes. Default to 50,000 and 50,000.
	MaxAddresses, MaxHosts int
	// Rand returns a random number in [0, 1). It is called with a lock held and must not call the
	// Budget. Defaults to [math/rand/v2.Float64].
	Rand func() float64
}

// perAddress is the maximum number of concurrent connections of unproven hosts to one address. One
// of them is reserved for second connections of a connected host, such as a NIP-11 request. With
// fewer, new relays behind one shared address wait for each other.
const perAddress = 4

func (c BudgetConfig) withDefaults() BudgetConfig {
	for _, f := range []struct {
		field *int
		value int
	}{{&c.PerMinute, 600}, {&c.fixed.MaxAddresses, 50_000}, {&c.fixed.MaxHosts, 50_000}} {
		if *f.field == 0 {
			*f.field = f.value
		}
	}
	if c.fixed.Rand == nil {
		c.fixed.Rand = rand.Float64
	}
	return c
}

// Budget limits the connections to one address, so that strangers cannot use this server to attack
// a third party. The connections to one IPv4 address, or to one IPv6 /48, count together for all
// host names and ports. A host is unproven until [Budget.Proven] is called for it. After n
// connections of unproven hosts ended without proof, the address gets no connection of unproven
// hosts for 5 s * 2^(n-1), at most 1 h. After a day with failures only, the wait is one day.
//
// A proven host is exempt at the addresses where it was proven. So invented names behind a shared
// address cannot starve a relay there. If the name of a proven host leads to another address later,
// a second budget applies there, which only hosts proven elsewhere share. So a stranger who proves
// a host and then points its name to a victim gains nothing, and a stranger who exhausts the first
// budget does not prevent a relay from moving.
//
// [NewBudget] makes a Budget. It starts no goroutine and needs no closing. Its methods may be
// called concurrently, and several Dialers may share it.
type Budget struct {
	mu     sync.Mutex
	ledger ledger // guarded by mu
}

// NewBudget returns an empty Budget. The error names every invalid field of c.
func NewBudget(c BudgetConfig) (*Budget, error) {
	if c.PerMinute < 0 {
		return nil, errors.New("egress budget: field PerMinute: negative")
	}
	return &Budget{ledger: newLedger(c.withDefaults())}, nil
}

// Proven records that host, a name or address without a port, is the kind of server it was dialed
// as: a relay that held a connection for a minute, or a git server that answered as one. Its
// current connections, and later ones to the same addresses, are exempt from the Budget.
func (b *Budget) Proven(host string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ledger.prove(host)
}

// Answered records that this process ends the connections of a host although the host answered
// correctly. They do not count as failures. The host is not proven by it.
func (b *Budget) Answered(host string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ledger.answered(host)
}

// Export returns the records that must survive a restart. Current connections count as failed in
// them, because a process that crashes by a connection must not repeat it sooner afterwards. Save
// the records periodically. A crash then loses only the changes since the last save.
func (b *Budget) Export() BudgetState {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.ledger.export(time.Now())
}

// Import adds records of an earlier process. Call it before the first dial. If the Budget already
// has a record, the stricter one stays. Times too far in the future, as after the clock was set
// back, are corrected. After Import no limit is weaker than it was in the earlier process.
func (b *Budget) Import(s BudgetState) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ledger.restore(s, time.Now())
}

// begin requests a connection of a host to an address. A nil ticket means that the connection is
// exempt. Pass any other ticket to end, or to cancel if no packet was sent.
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

// order sorts the addresses of a host by the time of the last attempt.
func (b *Budget) order(host string, addrs []netip.Addr) []netip.Addr {
	b.mu.Lock()
	defer b.mu.Unlock()
	slices.SortStableFunc(addrs, func(x, y netip.Addr) int {
		return b.ledger.tried(host, budgetPrefix(x)).Compare(b.ledger.tried(host, budgetPrefix(y)))
	})
	return addrs
}

// budgetPrefix returns the prefix of the addresses that are counted together with addr.
func budgetPrefix(addr netip.Addr) netip.Prefix {
	addr = addr.Unmap().WithZone("")
	bits := 32
	if addr.Is6() {
		bits = 48
	}
	p, _ := addr.Prefix(bits) // Prefix fails only for the zero Addr, which is never dialed
	return p
}
