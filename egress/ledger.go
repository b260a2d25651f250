package egress

import (
	"net/netip"
	"slices"
	"time"

	"golang.org/x/time/rate"

	"github.com/graspsync/graspsync/internal/backoff"
	"github.com/graspsync/graspsync/limit"
)

// ledger contains the records of a [Budget]. It gets the time as an argument and does no I/O.
type ledger struct {
	cfg      BudgetConfig
	accounts *limit.Table[accountKey, *account]
	hosts    *limit.Table[string, *provenHost]
	open     map[string][]*ticket // by host; bounded by the number of connections
	pace     *rate.Limiter        // of new connections
}

// accountKey identifies one of the two budgets of an address: for unproven hosts, and for hosts
// that were proven at other addresses.
type accountKey struct {
	prefix netip.Prefix
	moved  bool
}

// account is a budget of an address.
type account struct {
	backoff.Record
	open   int  // connections that are being made or open, and unproven
	shared bool // a host was proven at this address
}

// provenHost contains the addresses at which a host was proven, the latest last.
type provenHost struct{ at []netip.Prefix }

// mostProofs is the maximum number of kept addresses of one host. Some names have dozens.
const mostProofs = 16

// sharedBackoff is the maximum wait at an address where a host was proven. Such a server, maybe the
// front end of many, can stand one attempt per minute. Without this maximum, invented names behind
// the address that fail in turn would delay a new host for days.
const sharedBackoff = time.Minute

// ticket is a connection that is being made or is open.
type ticket struct {
	host   string
	key    accountKey
	second bool // the host has another one at this address; count one failure
	fine   bool // its end is not a failure
}

func newLedger(c BudgetConfig) ledger {
	return ledger{
		cfg:      c,
		accounts: limit.NewTable[accountKey, *account](c.fixed.MaxAddresses, 0),
		hosts:    limit.NewTable[string, *provenHost](c.fixed.MaxHosts, 0),
		open:     make(map[string][]*ticket),
		pace:     rate.NewLimiter(rate.Limit(float64(c.PerMinute)/60), max(1, c.PerMinute/10)),
	}
}

// begin returns a nil ticket if the connection is exempt.
func (l *ledger) begin(host string, to netip.Prefix, now time.Time) (*ticket, error) {
	proven, known := l.hosts.Get(host)
	if known {
		l.hosts.Touch(host)
		if slices.Contains(proven.at, to) {
			return nil, nil
		}
	}
	t := &ticket{host: host, key: accountKey{to, known}}
	a := l.account(t.key)
	t.second = slices.ContainsFunc(l.open[host], func(o *ticket) bool { return o.key == t.key })
	if wait := l.wait(a, t, now); wait > 0 {
		return nil, &BudgetError{Address: to, Wait: wait}
	}
	a.Record = l.rules(a).Begin(a.Record, now)
	a.open++
	if !l.put(t.key, a, now) {
		return nil, &BudgetError{Address: to, Wait: backoff.Base}
	}
	l.pace.AllowN(now, 1)
	l.open[host] = append(l.open[host], t)
	return t, nil
}

// put stores the account of an address. If the table is full, the least recently used account that
// waits for no attempt is dropped. It returns false if there is none.
func (l *ledger) put(k accountKey, a *account, now time.Time) bool {
	_, ok := l.accounts.PutKeeping(k, limit.Stranger{}, 0, a, func(k accountKey) bool {
		known, _ := l.accounts.Get(k)
		return known.open > 0 || now.Before(known.Next)
	})
	return ok
}

func (l *ledger) account(k accountKey) *account {
	if a, ok := l.accounts.Get(k); ok {
		return a
	}
	return &account{}
}

// tried returns the time of the last attempt of an unproven host at the address, or zero if this
// host is exempt there.
func (l *ledger) tried(host string, to netip.Prefix) time.Time {
	proven, known := l.hosts.Get(host)
	if known && slices.Contains(proven.at, to) {
		return time.Time{}
	}
	return l.account(accountKey{to, known}).LastAttempt
}

// wait returns the time until a connection may begin, or 0.
func (l *ledger) wait(a *account, t *ticket, now time.Time) time.Duration {
	most := perAddress
	if !t.second {
		most = max(1, most-1)
		if now.Before(a.Next) {
			return a.Next.Sub(now)
		}
	}
	if a.open >= most {
		return backoff.Base
	}
	return time.Duration(max(0, 1-l.pace.TokensAt(now)) * float64(time.Minute) / float64(l.cfg.PerMinute))
}

// end ends a connection. Without proof it counts as a failure, whatever ended it.
func (l *ledger) end(t *ticket, now time.Time) {
	if !l.cancel(t) || t.second || t.fine {
		return
	}
	a := l.account(t.key)
	l.fail(a, now)
	l.put(t.key, a, now)
}

// cancel ends a connection without counting a failure. It returns false if the host was proven in
// the meantime.
func (l *ledger) cancel(t *ticket) bool {
	if !l.leave(t) {
		return false
	}
	if a, ok := l.accounts.Get(t.key); ok {
		a.open = max(0, a.open-1)
	}
	return true
}

// leave removes a ticket from the open ones and reports whether it was open.
func (l *ledger) leave(t *ticket) bool {
	list := l.open[t.host]
	i := slices.Index(list, t)
	if i < 0 {
		return false
	}
	if list = slices.Delete(list, i, i+1); len(list) == 0 {
		delete(l.open, t.host)
	} else {
		l.open[t.host] = list
	}
	return true
}

func (l *ledger) fail(a *account, now time.Time) {
	a.Record = l.waits(a).Fail(a.Record, now, l.random())
}

// rules returns the backoff rules of an address. An address where a host was proven is never dead,
// so that other hosts at this address are not delayed for a day.
func (l *ledger) rules(a *account) backoff.Rules {
	rules := backoff.Rules{
		Base: backoff.Base, Max: backoff.Max, DeadAfter: backoff.DeadAfter, DeadInterval: backoff.DeadInterval,
		RestartPause: backoff.RestartPause, Jitter: backoff.Jitter,
	}
	if a.shared {
		rules.DeadAfter = 0
	}
	return rules
}

// waits contains the rules by which a failure lengthens the wait.
func (l *ledger) waits(a *account) backoff.Rules {
	rules := l.rules(a)
	if a.shared {
		rules.Max = min(rules.Max, sharedBackoff)
	}
	return rules
}

// random returns a number in [0, 1) for any Rand of the caller.
func (l *ledger) random() float64 {
	if r := l.cfg.fixed.Rand(); r >= 0 && r < 1 {
		return r
	}
	return 0 // also for NaN
}

// answered marks the open connections of a host, so that their end is not a failure. An address
// without other attempts owes no pause after a restart.
func (l *ledger) answered(host string) {
	for _, t := range l.open[host] {
		t.fine = true
		if a, ok := l.accounts.Get(t.key); ok && a.Failures == 0 {
			a.LastAttempt = time.Time{}
		}
	}
}

// prove makes a host exempt at the addresses to which it is connected.
func (l *ledger) prove(host string) {
	p, ok := l.hosts.Get(host)
	if !ok {
		p = &provenHost{}
	}
	for _, t := range l.open[host] {
		p.add(t.key.prefix)
		if a, ok := l.accounts.Get(t.key); ok {
			a.open = max(0, a.open-1)
			a.shared = true
			l.accounts.Touch(t.key)
		}
	}
	delete(l.open, host)
	l.hosts.Put(host, limit.Stranger{}, 0, p)
}

func (p *provenHost) add(at netip.Prefix) {
	if slices.Contains(p.at, at) {
		return
	}
	if len(p.at) >= mostProofs {
		p.at = slices.Delete(p.at, 0, 1)
	}
	p.at = append(p.at, at)
}
