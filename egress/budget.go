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

// ErrBudget means that unproven hosts made too many attempts at an address for now. The error is a
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
	// MaxRecords bounds the remembered addresses, and the proven hosts at an address. The least
	// recently used record that does not wait is dropped. Defaults to 50,000.
	MaxRecords int
	// Rand returns a random number in [0, 1). Defaults to [math/rand/v2.Float64].
	Rand func() float64
}

const (
	// perAddress is the maximum number of connections of unproven hosts to one address, one of them
	// for second connections of a connected host, such as a NIP-11 request.
	perAddress = 4
	// sharedBackoff is the maximum wait at an address where a host was proven, because invented
	// names behind a shared front end must not delay new hosts for days.
	sharedBackoff = time.Minute
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
// A host is exempt at the addresses where [Budget.Proven] was called for it. At others it is
// unproven, because its name may point to a victim.
//
// [NewBudget] makes a Budget. It may be called concurrently, and shared by several Dialers.
type Budget struct {
	cfg BudgetConfig // read-only

	mu sync.Mutex
	// guarded by mu
	accounts *limit.Table[netip.Prefix, *account]
	hosts    *limit.Table[ProvenHost, struct{}]
	open     map[string][]*ticket // by host; bounded by the number of connections
	pace     *rate.Limiter        // of new connections
}

type account struct {
	AddressRecord
	open int // connections that are being made or open, and unproven
}

type ticket struct {
	ProvenHost      // if it proves one
	second     bool // the host has another one at this address; count one failure
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
		cfg:      c,
		accounts: limit.NewTable[netip.Prefix, *account](c.fixed.MaxRecords, 0),
		hosts:    limit.NewTable[ProvenHost, struct{}](c.fixed.MaxRecords, 0),
		open:     make(map[string][]*ticket),
		pace:     rate.NewLimiter(rate.Limit(float64(c.PerMinute)/60), max(1, c.PerMinute/10)),
	}
}

// Proven makes a host, without port, exempt at its current addresses: a relay that held a connection
// for a minute, or a git server that answered.
func (b *Budget) Proven(host string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, t := range slices.Clone(b.open[host]) {
		b.excuse(t)
		a := b.account(t.Address)
		a.Shared, a.NextAttempt = true, time.Time{}
		b.accounts.Touch(t.Address)
		b.hosts.Put(t.ProvenHost, limit.Stranger{}, 0, struct{}{})
	}
}

// Answered records that this process ends the connections of a host that answered correctly. They
// are no failures, and prove nothing.
func (b *Budget) Answered(host string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, t := range slices.Clone(b.open[host]) {
		b.excuse(t)
	}
}

// begin starts a connection of a host to an address. The caller passes the ticket, unless nil (the
// connection is exempt), to end.
func (b *Budget) begin(host string, to netip.Prefix) (*ticket, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	t := &ticket{ProvenHost: ProvenHost{host, to}}
	if b.hosts.Touch(t.ProvenHost) {
		return nil, nil
	}
	now := time.Now()
	t.second = slices.ContainsFunc(b.open[host], func(o *ticket) bool { return o.Address == to })
	a := b.account(to)
	if wait := b.wait(a, t, now); wait > 0 {
		return nil, &BudgetError{Address: to, Wait: wait}
	}
	a.open++
	if !t.second {
		// A failure until it is excused, because it may crash the process. The wait begins at its end.
		r := rulesOf(a).Begin(a.Record, now)
		a.Record = rulesOf(a).Fail(r, now, 0)
		a.NextAttempt = r.NextAttempt
	}
	if !b.put(a) {
		return nil, &BudgetError{Address: to, Wait: backoff.Base}
	}
	b.pace.AllowN(now, 1)
	b.open[host] = append(b.open[host], t)
	return t, nil
}

// put stores an account. It returns false if the table is full and every account waits.
func (b *Budget) put(a *account) bool {
	now := time.Now()
	_, ok := b.accounts.PutKeeping(a.Address, limit.Stranger{}, 0, a, func(k netip.Prefix) bool {
		known := b.account(k)
		return known.open > 0 || now.Before(known.NextAttempt)
	})
	return ok
}

func (b *Budget) account(to netip.Prefix) *account {
	if a, ok := b.accounts.Get(to); ok {
		return a
	}
	return &account{AddressRecord: AddressRecord{Address: to}}
}

func (b *Budget) wait(a *account, t *ticket, now time.Time) time.Duration {
	most := perAddress
	if !t.second {
		most--
		if now.Before(a.NextAttempt) {
			return a.NextAttempt.Sub(now)
		}
	}
	if a.open >= most {
		return backoff.Base
	}
	return time.Duration(max(0, 1-b.pace.TokensAt(now)) * float64(time.Minute) / float64(b.cfg.PerMinute))
}

// failed is false if no packet was sent.
func (b *Budget) end(t *ticket, failed bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !failed {
		b.excuse(t)
	} else if b.leave(t) && !t.second {
		b.putOff(b.account(t.Address), time.Now())
	}
}

func (b *Budget) leave(t *ticket) bool {
	list := b.open[t.Host]
	i := slices.Index(list, t)
	if i < 0 {
		return false
	}
	b.open[t.Host] = slices.Delete(list, i, i+1)
	if len(list) == 1 {
		delete(b.open, t.Host)
	}
	b.account(t.Address).open--
	return true
}

func (b *Budget) putOff(a *account, from time.Time) {
	a.Record = rulesOf(a).PutOff(a.Record, a.Failures, from, b.cfg.fixed.Rand())
}

// excuse ends a connection that is no failure.
func (b *Budget) excuse(t *ticket) {
	if !b.leave(t) || t.second {
		return
	}
	a := b.account(t.Address)
	if a.Failures--; a.Failures <= 0 {
		a.Record = backoff.Record{}
	}
}

// rulesOf returns the backoff rules of an address. A shared address is never dead.
func rulesOf(a *account) backoff.Rules {
	rules := backoff.Default()
	if a.Shared {
		rules.DeadAfter, rules.Max = 0, sharedBackoff
	}
	return rules
}

// order sorts addresses by the time of the last attempt.
func (b *Budget) order(host string, addrs []netip.Addr) []netip.Addr {
	b.mu.Lock()
	defer b.mu.Unlock()
	tried := func(addr netip.Addr) (last time.Time) {
		to := budgetPrefix(addr)
		if _, proven := b.hosts.Get(ProvenHost{host, to}); !proven {
			last = b.account(to).LastAttempt
		}
		return last
	}
	slices.SortStableFunc(addrs, func(x, y netip.Addr) int { return tried(x).Compare(tried(y)) })
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
