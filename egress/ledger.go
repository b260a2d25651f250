package egress

import (
	"net/netip"
	"slices"
	"time"

	"github.com/graspsync/graspsync/internal/backoff"
	"github.com/graspsync/graspsync/limit"
)

// ledger is what a [Budget] knows. It is told the time and does no I/O.
type ledger struct {
	cfg      BudgetConfig
	accounts *limit.Table[accountKey, *account]
	hosts    *limit.Table[string, *provenHost]
	open     map[string][]*ticket // by host; bounded by the connections that stand
	tokens   float64
	filledAt time.Time
	refused  uint64
}

// accountKey names a budget: that of an address for unproven hosts, and that for
// hosts which were proven elsewhere.
type accountKey struct {
	prefix netip.Prefix
	moved  bool
}

// account is the budget of an address.
type account struct {
	// Failures are with those elsewhere that count for it; FailingSince and LastFailure
	// are about its own.
	backoff.Record
	elsewhere int  // of the failures, those since the last attempt at other addresses of a name that has this one
	open      int  // connections that are made or stand, and are not proven
	shared    bool // a host was proven here
}

// provenHost has the addresses at which a host was proven, the latest last.
type provenHost struct{ at []netip.Prefix }

// mostProofs bounds the addresses kept of one host. Some names have dozens.
const mostProofs = 16

// mostElsewhere is how many failures in a row at other addresses count for one that is not
// tried itself meanwhile. A server with two is tried at them in turn. For one that is dead
// it is one: who comes back there waits a day longer at most.
const mostElsewhere = 3

// sharedBackoff is the longest wait at an address where a host was proven. It has a
// server of the kind that is looked for, maybe the front end of many, to which an
// attempt a minute is nothing; and made-up names behind it, of which one fails at each
// turn, must not keep a new one waiting for days.
const sharedBackoff = time.Minute

// ticket is a connection that is being made or stands.
type ticket struct {
	host   string
	key    accountKey
	others []netip.Prefix // that the host's name has
	second bool           // the host has another one here: one failure is enough
	fine   bool           // its end is no failure
}

func newLedger(c BudgetConfig) ledger {
	return ledger{
		cfg:      c,
		accounts: limit.NewTable[accountKey, *account](c.fixed.MaxAddresses, 0),
		hosts:    limit.NewTable[string, *provenHost](c.fixed.MaxHosts, 0),
		open:     make(map[string][]*ticket),
	}
}

// begin returns a nil ticket for what is free.
func (l *ledger) begin(host string, to netip.Prefix, others []netip.Prefix, now time.Time) (*ticket, error) {
	proven, known := l.hosts.Get(host)
	if known {
		l.hosts.Touch(host)
		if slices.Contains(proven.at, to) {
			return nil, nil
		}
	}
	t := &ticket{host: host, key: accountKey{to, known}, others: others}
	a := l.account(t.key)
	t.second = slices.ContainsFunc(l.open[host], func(o *ticket) bool { return o.key == t.key })
	if wait := l.wait(a, t, now); wait > 0 {
		l.refused++
		return nil, &BudgetError{Address: to, Wait: wait}
	}
	if a.FailingSince.IsZero() {
		a.Failures = 0 // others' have made it wait, and say no more of it
	}
	a.Record, a.elsewhere = l.rules(a).Begin(a.Record, now), 0
	a.open++
	l.tokens--
	l.accounts.Put(t.key, limit.Stranger{}, 0, a)
	l.open[host] = append(l.open[host], t)
	return t, nil
}

func (l *ledger) account(k accountKey) *account {
	if a, ok := l.accounts.Get(k); ok {
		return a
	}
	return &account{}
}

// tried is when an unproven host last tried the address; never, if this host is free
// there.
func (l *ledger) tried(host string, to netip.Prefix) time.Time {
	proven, known := l.hosts.Get(host)
	if known && slices.Contains(proven.at, to) {
		return time.Time{}
	}
	return l.account(accountKey{to, known}).LastAttempt
}

// wait returns how long a connection has to wait, 0 if it may be begun.
func (l *ledger) wait(a *account, t *ticket, now time.Time) time.Duration {
	l.fill(now)
	most := l.cfg.fixed.PerAddress
	if !t.second {
		most = max(1, most-1)
		if now.Before(a.Next) {
			return a.Next.Sub(now)
		}
	}
	if a.open >= most {
		return l.cfg.fixed.BaseBackoff
	}
	if l.tokens < 1 {
		return time.Duration((1 - l.tokens) * float64(time.Minute) / float64(l.cfg.PerMinute))
	}
	return 0
}

// fill adds the tokens of the time since the last call.
func (l *ledger) fill(now time.Time) {
	most := max(1, float64(l.cfg.PerMinute)/10)
	if l.filledAt.IsZero() {
		l.tokens = most
	}
	l.tokens += max(0, now.Sub(l.filledAt).Minutes()) * float64(l.cfg.PerMinute)
	l.tokens = min(l.tokens, most)
	l.filledAt = now
}

// end ends a connection. Without proof it was a failure, whatever ended it. It counts for
// the other addresses of the name as well, but lengthens a wait of theirs a few times only: a
// name can be given anybody's address, and what fails elsewhere again and again must not keep
// who is at home there from ever being tried.
func (l *ledger) end(t *ticket, now time.Time) {
	if !l.cancel(t) || t.second || t.fine {
		return
	}
	a := l.account(t.key)
	l.fail(a, now)
	l.accounts.Put(t.key, limit.Stranger{}, 0, a)
	for i, p := range t.others {
		if p == t.key.prefix || slices.Contains(t.others[:i], p) {
			continue
		}
		k := accountKey{p, t.key.moved}
		a := l.account(k)
		l.failElsewhere(a, now)
		l.accounts.Put(k, limit.Stranger{}, 0, a)
	}
}

// cancel ends a connection that is no failure. It returns false if the host was
// proven meanwhile.
func (l *ledger) cancel(t *ticket) bool {
	if !l.leave(t) {
		return false
	}
	if a, ok := l.accounts.Get(t.key); ok {
		a.open = max(0, a.open-1)
	}
	return true
}

// leave takes a ticket out of those that are open, and reports whether it was there.
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

// failElsewhere counts what has failed at another address. It is no sign that this one is
// dead: strangers say which names have it.
func (l *ledger) failElsewhere(a *account, now time.Time) {
	if a.elsewhere >= mostElsewhere || a.elsewhere > 0 && l.dead(a) {
		return
	}
	a.elsewhere++
	a.Failures++
	a.Record = l.waits(a).PutOff(a.Record, a.Failures, now, l.random())
}

// rules are those of the backoff of an address. Where a host was proven there is a server
// of the kind that is looked for, so that others that share its address are not put off
// for a day: it is never dead.
func (l *ledger) rules(a *account) backoff.Rules {
	rules := backoff.Rules{
		Base: l.cfg.fixed.BaseBackoff, Max: l.cfg.fixed.MaxBackoff, DeadAfter: l.cfg.fixed.DeadAfter, DeadInterval: l.cfg.fixed.DeadInterval,
		RestartPause: l.cfg.fixed.RestartPause, Jitter: l.cfg.fixed.Jitter,
	}
	if a.shared {
		rules.DeadAfter = 0
	}
	return rules
}

// waits are the rules by which a failure lengthens the wait.
func (l *ledger) waits(a *account) backoff.Rules {
	rules := l.rules(a)
	if a.shared {
		rules.Max = min(rules.Max, sharedBackoff)
	}
	return rules
}

func (l *ledger) dead(a *account) bool { return l.rules(a).Dead(a.Record) }

// random returns a number in [0, 1), whatever a caller plugs in.
func (l *ledger) random() float64 {
	if r := l.cfg.fixed.Rand(); r >= 0 && r < 1 {
		return r
	}
	return 0 // also for what is no number
}

// answered has the connections of a host that stand end without being failures. An
// address where there was none owes no pause after a restart either.
func (l *ledger) answered(host string) {
	for _, t := range l.open[host] {
		t.fine = true
		if a, ok := l.accounts.Get(t.key); ok && a.Failures == 0 {
			a.LastAttempt = time.Time{}
		}
	}
}

// prove makes a host free at the addresses to which it is connected.
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
			l.accounts.Put(t.key, limit.Stranger{}, 0, a)
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
