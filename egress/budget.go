package egress

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/graspsync/graspsync/internal/backoff"
	"github.com/graspsync/graspsync/limit"
)

// ErrBudget means that unproven hosts made too many attempts at an address. The error is a
// [BudgetError].
var ErrBudget = errors.New("address had its share of attempts")

// BudgetError is the error that wraps [ErrBudget].
type BudgetError struct {
	Address netip.Prefix
	Wait    time.Duration
}

func (e *BudgetError) Error() string {
	return fmt.Sprintf("%s: %s, again in %s", ErrBudget.Error(), e.Address, e.Wait.Round(time.Second))
}

func (e *BudgetError) Unwrap() error { return ErrBudget }

// RetryAfter returns the time after which the dial may be repeated.
func (e *BudgetError) RetryAfter() time.Duration { return e.Wait }

// BudgetConfig holds the bounds of a [Budget]. The zero value is usable.
type BudgetConfig struct {
	// PerMinute is the maximum number of started connections of unproven hosts. A tenth may start
	// together. Defaults to 600.
	PerMinute int

	fixed budgetConstants
}

type budgetConstants struct {
	// MaxRecords is the maximum number of addresses, and of proven hosts at an address. The least
	// recently used record that does not wait is dropped. Defaults to 50,000.
	MaxRecords int
	// Rand returns a random number in [0, 1). Defaults to [math/rand/v2.Float64].
	Rand func() float64
}

const (
	// maxPerAddress is the maximum number of connections of unproven hosts to one address, one of them
	// for second connections of a connected host, such as a NIP-11 request.
	maxPerAddress = 4
	// maxSharedBackoff is the maximum wait at an address where a host was proven, because invented
	// names behind a shared front end must not delay new hosts for days.
	maxSharedBackoff = time.Minute
)

func (c BudgetConfig) withDefaults() BudgetConfig {
	c.PerMinute = cmp.Or(c.PerMinute, 600)
	c.fixed.MaxRecords = cmp.Or(c.fixed.MaxRecords, 50_000)
	if c.fixed.Rand == nil {
		c.fixed.Rand = rand.Float64
	}
	return c
}

// Budget limits the connections to one IPv4 address, or one IPv6 /48, over all host names and
// ports, so that strangers cannot use this server to attack a third party. After n connections of
// unproven hosts without proof, the address gets none for 5 s * 2^(n-1), at most 1 h, or one day
// after a day of failures.
//
// A host is exempt at the addresses where [Budget.MarkProven] was called for it. At other addresses
// it is unproven, because its name may point to a victim.
//
// [NewBudget] makes a Budget. It may be called concurrently, and shared by several Dialers.
type Budget struct {
	cfg BudgetConfig // read-only

	mu sync.Mutex
	// guarded by mu
	addresses *limit.Table[netip.Prefix, *addressEntry]
	hosts     *limit.Table[ProvenHost, struct{}]
	open      map[string][]*reservation // by host; bounded by the number of connections
	startRate *rate.Limiter             // of new connections
}

type addressEntry struct {
	AddressRecord
	open int // reservations
}

// reservation is a connection of an unproven host, until it ends or the host is proven.
type reservation struct {
	ProvenHost      // its host and address
	second     bool // the host has another one at this address; never a failure
}

// NewBudget returns an empty Budget. The error names every invalid field of c.
func NewBudget(c BudgetConfig) (*Budget, error) {
	if c.PerMinute < 0 {
		return nil, errors.New("egress budget: field PerMinute: negative")
	}
	return newBudget(c.withDefaults()), nil
}

func newBudget(c BudgetConfig) *Budget {
	return &Budget{
		cfg:       c,
		addresses: limit.NewTable[netip.Prefix, *addressEntry](c.fixed.MaxRecords, 0),
		hosts:     limit.NewTable[ProvenHost, struct{}](c.fixed.MaxRecords, 0),
		open:      make(map[string][]*reservation),
		startRate: rate.NewLimiter(rate.Limit(float64(c.PerMinute)/60), max(1, c.PerMinute/10)),
	}
}

// MarkProven makes a host, without port, exempt at its current addresses: a relay that held a
// connection for a minute, or a git server that answered.
func (b *Budget) MarkProven(host string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, r := range slices.Clone(b.open[host]) {
		b.releaseWithoutFailure(r)
		a := b.entry(r.Address)
		a.Shared, a.NextAttempt = true, time.Time{}
		b.addresses.Touch(r.Address)
		b.hosts.Put(r.ProvenHost, limit.Stranger{}, 0, struct{}{})
	}
}

// MarkAnswered records that this process ends the connections of a host that answered correctly.
// They are no failures, and do not make the host proven.
func (b *Budget) MarkAnswered(host string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, r := range slices.Clone(b.open[host]) {
		b.releaseWithoutFailure(r)
	}
}

// reserve counts a new connection of a host to an address. The caller must release the reservation,
// which is nil if the connection is exempt.
func (b *Budget) reserve(host string, to netip.Prefix) (*reservation, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	r := &reservation{ProvenHost: ProvenHost{host, to}}
	if b.hosts.Touch(r.ProvenHost) {
		return nil, nil
	}
	now := time.Now()
	r.second = slices.ContainsFunc(b.open[host], func(other *reservation) bool { return other.Address == to })
	a := b.entry(to)
	if wait := b.waitTime(a, r, now); wait > 0 {
		return nil, &BudgetError{Address: to, Wait: wait}
	}
	a.open++
	if !r.second {
		// Counted as a failure now, because it may crash the process. The wait begins at its end.
		begun := backoffRules(a).Begin(a.Record, now)
		a.Record = backoffRules(a).Fail(begun, now, 0)
		a.NextAttempt = begun.NextAttempt
	}
	if !b.put(a) {
		return nil, &BudgetError{Address: to, Wait: backoff.Base}
	}
	b.startRate.AllowN(now, 1)
	b.open[host] = append(b.open[host], r)
	return r, nil
}

// put returns false if the table is full and every entry is in use or waits.
func (b *Budget) put(a *addressEntry) bool {
	now := time.Now()
	_, ok := b.addresses.PutKeeping(a.Address, limit.Stranger{}, 0, a, func(k netip.Prefix) bool {
		known := b.entry(k)
		return known.open > 0 || now.Before(known.NextAttempt)
	})
	return ok
}

func (b *Budget) entry(to netip.Prefix) *addressEntry {
	if a, ok := b.addresses.Get(to); ok {
		return a
	}
	return &addressEntry{AddressRecord: AddressRecord{Address: to}}
}

func (b *Budget) waitTime(a *addressEntry, r *reservation, now time.Time) time.Duration {
	maxOpen := maxPerAddress
	if !r.second {
		maxOpen--
		if now.Before(a.NextAttempt) {
			return a.NextAttempt.Sub(now)
		}
	}
	if a.open >= maxOpen {
		return backoff.Base
	}
	return time.Duration(max(0, 1-b.startRate.TokensAt(now)) * float64(time.Minute) / float64(b.cfg.PerMinute))
}

// release ends a reservation with a failure, or without one if no packet was sent.
func (b *Budget) release(r *reservation, sent bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !sent {
		b.releaseWithoutFailure(r)
	} else if b.remove(r) && !r.second {
		b.delayNextAttempt(b.entry(r.Address), time.Now())
	}
}

func (b *Budget) remove(r *reservation) bool {
	list := b.open[r.Host]
	i := slices.Index(list, r)
	if i < 0 {
		return false
	}
	b.open[r.Host] = slices.Delete(list, i, i+1)
	if len(list) == 1 {
		delete(b.open, r.Host)
	}
	b.entry(r.Address).open--
	return true
}

func (b *Budget) delayNextAttempt(a *addressEntry, from time.Time) {
	a.Record = backoffRules(a).DelayNext(a.Record, a.Failures, from, b.cfg.fixed.Rand())
}

// releaseWithoutFailure ends a reservation, and takes back the failure that reserve counted.
func (b *Budget) releaseWithoutFailure(r *reservation) {
	if !b.remove(r) || r.second {
		return
	}
	a := b.entry(r.Address)
	if a.Failures--; a.Failures <= 0 {
		a.Record = backoff.Record{}
	}
}

// backoffRules returns rules by which a shared address is never dead.
func backoffRules(a *addressEntry) backoff.Rules {
	rules := backoff.Default()
	if a.Shared {
		rules.DeadAfter, rules.Max = 0, maxSharedBackoff
	}
	return rules
}

// sortByLastAttempt puts addresses first that are exempt or not tried recently.
func (b *Budget) sortByLastAttempt(host string, addrs []netip.Addr) []netip.Addr {
	b.mu.Lock()
	defer b.mu.Unlock()
	lastAttempt := func(addr netip.Addr) (at time.Time) {
		to := budgetPrefix(addr)
		if _, proven := b.hosts.Get(ProvenHost{host, to}); !proven {
			at = b.entry(to).LastAttempt
		}
		return at
	}
	slices.SortStableFunc(addrs, func(x, y netip.Addr) int { return lastAttempt(x).Compare(lastAttempt(y)) })
	return addrs
}

func budgetPrefix(addr netip.Addr) netip.Prefix {
	addr = addr.Unmap().WithZone("")
	bits := 32
	if addr.Is6() {
		bits = 48
	}
	p, _ := addr.Prefix(bits) // Prefix fails only for the zero Addr, which is never dialed
	return p
}
