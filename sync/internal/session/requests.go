package session

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/filters"
	"github.com/graspsync/graspsync/sync/internal/plan"
	"github.com/graspsync/graspsync/sync/internal/relaylimits"
	"github.com/graspsync/graspsync/sync/wire"
)

type requestKind uint8

const (
	reqLive requestKind = iota
	reqPage
	reqIDs
	reqNeg
	reqProbe
)

type request struct {
	kind      requestKind
	id        string
	number    uint64
	filters   []nostr.Filter // immutable
	match     *filters.Matcher
	live      plan.LiveID
	order     uint64 // live: number of the Follow call
	closeAt   uint64 // live: number of the Unfollow call, 0: none
	openAt    int64  // live: Unix time of its EOSE, 0 before
	q         *query
	payload   []byte
	missing   map[graspsync.EventID]struct{} // reqIDs: not yet received
	asked     int
	limitZero bool // sent with limit 0
	bytes     int  // 0 if not computed
	events    int
	noticed   bool // a NOTICE arrived but no answer
	passed    bool // a probe with the same filters was accepted
	toAuth    bool // refused because it requires NIP-42
	limited   int

	openBy  time.Time
	idleBy  time.Time
	totalBy time.Time
}

func (x *request) size() int {
	if x.bytes == 0 {
		x.bytes = requestOverhead
		for _, f := range x.filters {
			x.bytes += filters.Size(f) + 1
		}
	}
	return x.bytes
}

const requestOverhead = len(`["REQ","r18446744073709551615"]`)

func (x *request) left() []graspsync.EventID {
	return slices.SortedFunc(maps.Keys(x.missing), graspsync.EventID.Compare)
}

func (x *request) asks() []nostr.Filter {
	if x.q != nil {
		return []nostr.Filter{x.q.filter}
	}
	return x.filters
}

// triable reports whether the filters may be the cause of a refusal.
func (x *request) triable() bool {
	return x.kind == reqLive && x.openAt == 0 || x.kind == reqPage && x.q.unbegun() && x.events == 0
}

func byNumber(a, b *request) int { return cmp.Compare(a.number, b.number) }

func (s *Session) number() uint64 {
	s.last++
	return s.last
}

func (s *Session) sent(x *request) bool { return x.id != "" && s.subs[x.id] == x }

func (s *Session) enqueue(x *request) { s.waiting = append(s.waiting, x) }

func (s *Session) enqueueFirst(x *request) { s.waiting = slices.Insert(s.waiting, 0, x) }

// drop ends a request. sendClose also closes it at the relay.
func (s *Session) drop(x *request, sendClose bool) {
	s.unblock(x)
	is := func(y *request) bool { return y == x }
	if x.kind == reqLive {
		s.liveSubs.remove(x)
	}
	if !s.sent(x) {
		s.waiting = slices.DeleteFunc(s.waiting, is)
		if s.bisected == x {
			s.bisected = nil
			for _, y := range s.where(func(y *request) bool { return y.kind == reqProbe }) {
				s.drop(y, true)
			}
		}
		return
	}
	delete(s.subs, x.id)
	switch x.kind {
	case reqPage, reqIDs, reqProbe:
		s.historic--
	}
	if !sendClose {
		return
	}
	typ := wire.TypeClose
	if x.kind == reqNeg {
		typ = wire.TypeNegClose
	}
	s.do(Send{wire.Request{Type: typ, Sub: x.id}})
}

func (s *Session) unsend(x *request, sendClose bool) {
	s.drop(x, sendClose)
	if x.kind == reqLive {
		s.liveSubs.add(x)
	}
}

func (s *Session) closeReplaced() {
	for len(s.closing) > 0 {
		c := s.closing[0]
		before := func(x *request) bool { return x.kind == reqLive && x.order < c.closeAt }
		if s.opening != nil && before(s.opening) || s.bisected != nil && before(s.bisected) ||
			slices.ContainsFunc(s.waiting, before) {
			return
		}
		s.closing = s.closing[1:]
		if s.sent(c) {
			s.drop(c, true)
		}
	}
}

// closeLive reports the end of a live subscription. openAt is 0 if the relay refused it.
func (s *Session) closeLive(live plan.LiveID, openAt int64, why wire.Refusal, text string) {
	s.dropLive(live)
	s.do(LiveClosed{Live: live, OpenAt: openAt, Reason: text, Why: why})
}

func (s *Session) dropLive(live plan.LiveID) {
	for _, part := range slices.Clone(s.liveSubs[live]) {
		s.drop(part, true)
	}
}

// where returns the open, waiting and bisected requests for which is is true.
func (s *Session) where(is func(*request) bool) []*request {
	out := s.subs.where(is)
	for _, x := range s.waiting {
		if is(x) {
			out = append(out, x)
		}
	}
	if s.bisected != nil && is(s.bisected) {
		out = append(out, s.bisected)
	}
	return out
}

// attribute returns the request to which a NOTICE belongs, or nil. It is the newest request or a
// NEG-OPEN, without an answer.
func (s *Session) attribute(notice string) (x *request, why wire.Refusal) {
	why = wire.Classify(notice)
	x = s.opening
	neg := s.subs.unansweredNeg()
	switch {
	case neg != nil && x == nil && why == wire.RefusalRateLimited:
		x = neg // otherwise its silence would count as an answer
	case neg != nil && (why == wire.RefusalNoNegentropy || (x == nil || x == neg) && wire.RefusesNegentropy(notice)):
		x = neg
		if why == wire.RefusalOther || wire.ClassifyNegErr(notice, 0) == wire.RefusalNoNegentropy {
			why = wire.RefusalNoNegentropy
		}
	case why == wire.RefusalNoNegentropy:
		why = wire.RefusalOther
	}
	return x, why
}

// wakeForNext considers the time at which the next request may be sent.
func (s *Session) wakeForNext(w *wake) {
	if len(s.waiting) == 0 && len(s.closing) == 0 {
		return
	}
	switch {
	case s.opening != nil:
		w.consider(s.opening.openBy)
	case !s.pace.until.IsZero():
		w.consider(s.pace.until)
	}
	if s.pace.until.IsZero() && !s.pace.next.IsZero() {
		w.consider(s.pace.next)
	}
}

func (s *Session) cool(now time.Time, reason string) {
	if !s.pace.complained(now) {
		return
	}
	s.do(RateLimited{Until: s.pace.until, For: s.pace.last.For, Reason: reason})
	s.caps.Pace = s.pace.every
	s.do(Learned{Kind: relaylimits.Pace, Value: int(s.pace.every / time.Millisecond), Reason: reason})
}

// hasRoom reports whether a waiting request may be sent. Live subscriptions have priority.
func (s *Session) hasRoom(x *request) bool {
	switch x.kind {
	case reqNeg:
		return true // relays count NEG-OPENs separately
	case reqLive:
		if s.historic > 0 && !s.retains(x) {
			return false
		}
		// No other request can end, so a wait would not end. The relay may refuse.
		return s.historic == 0 || s.free() > 0
	}
	if s.historic >= s.maxHistoric {
		return false
	}
	if s.historic == 0 && (s.free() > 0 || len(s.closing) == 0 || x.kind == reqProbe && s.bisected.kind == reqLive) {
		// One historic request is always tried. A subscription in closing may wait for the
		// subscription under bisection.
		return true
	}
	return s.free() > 0 && s.retains(x) && (x.kind == reqProbe || !s.liveWaits())
}

func (s *Session) retains(x *request) bool {
	return s.caps.MaxRetained == 0 || s.subs.retained()+x.size() <= s.caps.MaxRetained
}

func (s *Session) free() int {
	most := s.caps.MaxSubscriptions
	if most == 0 {
		return s.maxHistoric
	}
	return most - s.subs.reqs()
}

func (s *Session) liveWaits() bool {
	return slices.ContainsFunc(s.waiting, func(x *request) bool { return x.kind == reqLive })
}

// tooMany learns a limit from a request for which the relay had no room. It reports whether the
// request is repeated later.
func (s *Session) tooMany(x *request, text string) bool {
	open := s.subs.reqs()
	if s.sent(x) && x.kind != reqNeg {
		open--
	}
	s.caps.learn(relaylimits.MaxSubscriptions, open, text)
	if n := s.caps.MaxSubscriptions; n > 0 {
		s.maxHistoric = min(s.maxHistoric, relaylimits.Requests{MaxSubscriptions: n}.Historic())
	}
	if x.kind == reqLive {
		return false
	}
	s.maxHistoric = max(1, min(s.maxHistoric, s.historic-1))
	return s.historic > 1
}

// bytes of open requests that every relay accepts
const leastRetained = 4 << 10

// tooManyBytes learns the maximum size of open requests from the relay's text or from the open
// requests.
func (s *Session) tooManyBytes(x *request, text string) bool {
	others := s.subs.retained()
	if s.sent(x) {
		others -= x.size()
	}
	most := others + x.size() - 1
	if n := wire.SaidMost(text); n > 0 {
		most = min(most, n)
	} else if others > 0 {
		most = others
	}
	return s.caps.learn(relaylimits.MaxRetained, max(most, leastRetained), text) && x.kind != reqLive
}

type subscriptions map[string]*request

func (s subscriptions) where(is func(x *request) bool) (out []*request) {
	for _, x := range s {
		if is(x) {
			out = append(out, x)
		}
	}
	slices.SortFunc(out, byNumber)
	return out
}

func (s subscriptions) unansweredNeg() (oldest *request) {
	for _, x := range s {
		if x.kind == reqNeg && x.events == 0 && (oldest == nil || byNumber(x, oldest) < 0) {
			oldest = x
		}
	}
	return oldest
}

func (s subscriptions) late(now time.Time) []*request {
	late := make([]*request, 0, 4)
	for _, x := range s {
		if x.kind != reqLive && (!now.Before(x.idleBy) || !now.Before(x.totalBy)) {
			late = append(late, x)
		}
	}
	slices.SortFunc(late, byNumber)
	return late
}

// suspect marks the open requests after a complaint of unknown origin. An empty answer to a marked
// request may be a failure.
func (s subscriptions) suspect() {
	for _, x := range s {
		if x.kind != reqLive && x.events == 0 {
			x.noticed = true
		}
	}
}

func (s subscriptions) retained() (n int) {
	for _, y := range s {
		if y.kind != reqNeg {
			n += y.size()
		}
	}
	return n
}

// reqs returns the number of open REQs. Relays count NEG-OPENs separately.
func (s subscriptions) reqs() (n int) {
	for _, x := range s {
		if x.kind != reqNeg {
			n++
		}
	}
	return n
}

// liveSubs are the requests of live subscriptions, sent or not.
type liveSubs map[plan.LiveID][]*request

func (l liveSubs) add(xs ...*request) {
	for _, x := range xs {
		l[x.live] = append(l[x.live], x)
	}
}

func (l liveSubs) remove(x *request) {
	l[x.live] = slices.DeleteFunc(l[x.live], func(y *request) bool { return y == x })
	if len(l[x.live]) == 0 {
		delete(l, x.live)
	}
}

// missed reports whether a live request should have delivered an event, because it was open for
// gapAge before.
func (l liveSubs) missed(now time.Time, ev *nostr.Event) bool {
	const least = int64(gapAge / time.Second)
	at := int64(ev.CreatedAt)
	if at > now.Unix()-least {
		return false
	}
	for _, parts := range l {
		for _, x := range parts {
			if x.openAt != 0 && at >= x.openAt+least && x.match.Match(ev) {
				return true
			}
		}
	}
	return false
}

// openWaiting sends the next request for which there is room, if the previous request got an answer.
func (s *Session) openWaiting(now time.Time) {
	s.openingOver(now)
	s.closeReplaced()
	for !s.pace.cooling(now) && s.opening == nil && !s.auth.underWay() {
		i := slices.IndexFunc(s.waiting, func(x *request) bool {
			if s.bisected != nil && x.kind != reqProbe {
				return false // the bisection must end first
			}
			if x.kind != reqLive && !s.pace.next.IsZero() {
				return false
			}
			return s.hasRoom(x)
		})
		if i < 0 {
			return
		}
		x := s.waiting[i]
		s.waiting = slices.Delete(s.waiting, i, i+1)
		s.send(now, x)
	}
}

func (s *Session) send(now time.Time, x *request) {
	x.events, x.noticed, x.openAt = 0, false, 0
	x.openBy = now.Add(openTimeout)
	s.opening = x
	out := wire.Request{Type: wire.TypeReq, Filters: s.caps.form(x, now)}
	prefix := "r"
	switch x.kind {
	case reqLive:
		prefix = "l"
	case reqProbe:
		prefix = "p"
		s.historic++
		x.idleBy, x.totalBy = now.Add(firstAnswer), now.Add(totalTimeout)
	case reqNeg:
		prefix = "n"
		out.Type, out.Payload = wire.TypeNegOpen, x.payload
		x.idleBy, x.totalBy = now.Add(negentropyFirst), now.Add(negentropyTimeout)
	default:
		s.historic++
		x.idleBy, x.totalBy = now.Add(firstAnswer), now.Add(totalTimeout)
	}
	if x.kind != reqLive {
		s.pace.asked(now)
	}
	x.number = s.number()
	x.id = prefix + strconv.FormatUint(x.number, 10)
	out.Sub = x.id
	s.subs[x.id] = x
	s.do(Send{out})
}

// form returns the filters of a request as they are sent.
func (c *relayCaps) form(x *request, now time.Time) []nostr.Filter {
	fs := x.filters
	if !slices.ContainsFunc(fs, func(f nostr.Filter) bool { return f.LimitZero }) {
		return fs
	}
	if x.limitZero = !c.NoLimitZero; x.limitZero {
		return fs
	}
	out := slices.Clone(fs)
	from := nostr.Timestamp(now.Add(-sinceBack).Unix())
	for i := range out {
		out[i].LimitZero, out[i].Since = false, &from
	}
	return out
}
