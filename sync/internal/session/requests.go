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
	want      map[graspsync.EventID]struct{} // reqIDs: not yet received
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
	return slices.SortedFunc(maps.Keys(x.want), graspsync.EventID.Compare)
}

func (x *request) asks() []nostr.Filter {
	if x.q != nil {
		return []nostr.Filter{x.q.filter}
	}
	return x.filters
}

// suits reports whether an event matches or resembles the filters. The tags of a known event were
// not read.
func (x *request) suits(m wire.Message) (matches, similar bool) {
	ev := m.Event.Event
	if !m.Known {
		matches = x.match.Match(ev)
		return matches, matches || resembles(x.filters, ev)
	}
	for _, f := range x.filters {
		f.Tags = nil
		matches, similar = matches || f.Matches(ev), similar || resembles([]nostr.Filter{f}, ev)
	}
	return matches, matches || similar
}

// triable reports whether the filters may be the cause of a refusal.
func (x *request) triable() bool {
	return x.kind == reqLive && x.openAt == 0 || x.kind == reqPage && x.q.unbegun() && x.events == 0
}

func byNumber(a, b *request) int { return cmp.Compare(a.number, b.number) }

// requests contains the open and the waiting requests. It sends them, sets deadlines, and assigns a
// NOTICE to a request.
type requests struct {
	cfg  *Config
	out  *outbox
	caps *relayCaps

	next         uint64 // last number of a request or query
	subs         subscriptions
	liveSubs     liveSubs
	closing      []*request // open until their replacements have opened
	opening      *request   // sent last, not answered
	waiting      []*request // in sending order
	historic     int
	mostHistoric int
	bisected     *request // refused, under bisection

	auth       *auth
	unanswered unanswered
	pace       pacing
}

func newRequests(cfg *Config, out *outbox, t *relayCaps) *requests {
	return &requests{
		cfg: cfg, out: out, caps: t, mostHistoric: cfg.Historic,
		subs:     make(subscriptions),
		liveSubs: make(liveSubs),
		auth:     &auth{cfg: cfg, out: out},
		pace:     pacing{last: cfg.Cooled},
	}
}

// expect applies new limits, which may be wider.
func (r *requests) expect(t relaylimits.Limits) {
	if t.MaxSubscriptions > r.caps.MaxSubscriptions {
		r.mostHistoric = relaylimits.Requests{MaxSubscriptions: t.MaxSubscriptions}.Historic()
	}
	r.pace.believe(t.Pace)
}

func (r *requests) number() uint64 {
	r.next++
	return r.next
}

// issued reports whether a subscription id was ever used, because a late message is no fault of the
// relay.
func (r *requests) issued(id string) bool {
	if len(id) < 2 {
		return false
	}
	n, err := strconv.ParseUint(id[1:], 10, 64)
	return err == nil && n > 0 && n <= r.next
}

func (r *requests) follow(x *request) {
	x.order = r.number()
	r.waiting = append(r.waiting, r.divide(x)...)
}

func (r *requests) unfollow(live plan.LiveID) {
	for _, x := range slices.Clone(r.liveSubs[live]) {
		if r.sent(x) {
			x.closeAt = r.number()
			r.closing = append(r.closing, x)
		} else {
			r.drop(x, false)
		}
	}
}

// divide returns the requests of a live subscription, several if the limits are tighter than
// planned.
func (r *requests) divide(x *request) []*request {
	var out []*request
	for _, fs := range r.caps.pack(x.filters) {
		out = append(out, &request{kind: reqLive, filters: fs, match: filters.Compile(fs), live: x.live, order: x.order})
	}
	if n := r.caps.MaxSubscriptions; len(out) > 1 && n > 0 {
		for _, parts := range r.liveSubs {
			n -= len(parts)
		}
		if len(out) > n-1 { // one slot remains for history
			r.closeLive(x.live, 0, wire.RefusalTooManySubs, "too few subscriptions for its parts")
			return nil
		}
	}
	r.liveSubs.add(out...)
	return out
}

func (r *requests) open(now time.Time) {
	r.openingOver(now)
	r.closeReplaced()
	cooling := r.pace.cooling(now)
	if !cooling {
		r.pace.pass(now)
	}
	if cooling || r.opening != nil || r.auth.underWay() {
		return
	}
	for r.opening == nil && !r.auth.underWay() {
		i := slices.IndexFunc(r.waiting, func(x *request) bool {
			if r.bisected != nil && x.kind != reqProbe {
				return false // the bisection must end first
			}
			if x.kind != reqLive && !r.pace.next.IsZero() {
				return false
			}
			return r.hasRoom(x)
		})
		if i < 0 {
			return
		}
		x := r.waiting[i]
		r.waiting = slices.Delete(r.waiting, i, i+1)
		r.send(now, x)
	}
}

func (r *requests) send(now time.Time, x *request) {
	x.events, x.noticed, x.openAt = 0, false, 0
	x.openBy = now.Add(openTimeout)
	r.opening = x
	out := wire.Request{Type: wire.TypeReq, Filters: r.caps.form(x, now)}
	prefix := "r"
	switch x.kind {
	case reqLive:
		prefix = "l"
	case reqProbe:
		prefix = "p"
		r.historic++
		x.idleBy, x.totalBy = now.Add(firstAnswer), now.Add(totalTimeout)
	case reqNeg:
		prefix = "n"
		out.Type, out.Payload = wire.TypeNegOpen, x.payload
		x.idleBy, x.totalBy = now.Add(negentropyFirst), now.Add(negentropyTimeout)
	default:
		r.historic++
		x.idleBy, x.totalBy = now.Add(firstAnswer), now.Add(totalTimeout)
	}
	if x.kind != reqLive {
		r.pace.asked(now)
	}
	x.number = r.number()
	x.id = prefix + strconv.FormatUint(x.number, 10)
	out.Sub = x.id
	r.subs[x.id] = x
	r.out.do(Send{out})
}

// openingOver ends the time in which the newest request blocks others and is assigned all NOTICEs.
func (r *requests) openingOver(now time.Time) {
	if r.opening != nil && !now.Before(r.opening.openBy) {
		r.opening = nil
	}
}

func (r *requests) answered(x *request) {
	if r.opening == x {
		r.opening = nil
	}
}

func (r *requests) sent(x *request) bool { return x.id != "" && r.subs[x.id] == x }

func (r *requests) enqueue(x *request) { r.waiting = append(r.waiting, x) }

func (r *requests) enqueueFirst(x *request) { r.waiting = slices.Insert(r.waiting, 0, x) }

// drop ends a request. sendClose also closes it at the relay.
func (r *requests) drop(x *request, sendClose bool) {
	r.answered(x)
	is := func(y *request) bool { return y == x }
	if x.kind == reqLive {
		r.liveSubs.remove(x)
	}
	if !r.sent(x) {
		r.waiting = slices.DeleteFunc(r.waiting, is)
		if r.bisected == x {
			r.bisected = nil
			for _, y := range r.where(func(y *request) bool { return y.kind == reqProbe }) {
				r.drop(y, true)
			}
		}
		return
	}
	delete(r.subs, x.id)
	switch x.kind {
	case reqPage, reqIDs, reqProbe:
		r.historic--
	}
	if !sendClose {
		return
	}
	typ := wire.TypeClose
	if x.kind == reqNeg {
		typ = wire.TypeNegClose
	}
	r.out.do(Send{wire.Request{Type: typ, Sub: x.id}})
}

func (r *requests) unsend(x *request, sendClose bool) {
	r.drop(x, sendClose)
	if x.kind == reqLive {
		r.liveSubs.add(x)
	}
}

func (r *requests) closeReplaced() {
	for len(r.closing) > 0 {
		c := r.closing[0]
		before := func(x *request) bool { return x.kind == reqLive && x.order < c.closeAt }
		if r.opening != nil && before(r.opening) || r.bisected != nil && before(r.bisected) ||
			slices.ContainsFunc(r.waiting, before) {
			return
		}
		r.closing = r.closing[1:]
		if r.sent(c) {
			r.drop(c, true)
		}
	}
}

// closeLive reports the end of a live subscription. openAt is 0 if the relay refused it.
func (r *requests) closeLive(live plan.LiveID, openAt int64, why wire.Refusal, text string) {
	r.dropLive(live)
	r.out.do(LiveClosed{Live: live, OpenAt: openAt, Reason: text, Why: why})
}

func (r *requests) dropLive(live plan.LiveID) {
	for _, part := range slices.Clone(r.liveSubs[live]) {
		r.drop(part, true)
	}
}

// where returns the open, waiting and bisected requests for which is is true.
func (r *requests) where(is func(*request) bool) []*request {
	out := r.subs.where(is)
	for _, x := range r.waiting {
		if is(x) {
			out = append(out, x)
		}
	}
	if r.bisected != nil && is(r.bisected) {
		out = append(out, r.bisected)
	}
	return out
}

// attribute returns the request to which a NOTICE belongs, or nil: the newest request, or a NEG-
// OPEN, without an answer.
func (r *requests) attribute(notice string) (x *request, why wire.Refusal) {
	why = wire.Classify(notice)
	x = r.opening
	neg := r.subs.unansweredNeg()
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

func (r *requests) wake(w *wake) {
	r.subs.wake(w)
	if r.auth.underWay() {
		w.consider(r.auth.by)
	}
	if len(r.waiting) == 0 && len(r.closing) == 0 {
		return
	}
	switch {
	case r.opening != nil:
		w.consider(r.opening.openBy)
	case !r.pace.until.IsZero():
		w.consider(r.pace.until)
	}
	if r.pace.until.IsZero() && !r.pace.next.IsZero() {
		w.consider(r.pace.next)
	}
}

func (r *requests) excuse(d time.Duration) {
	r.subs.excuse(d)
	if r.opening != nil {
		r.opening.openBy = r.opening.openBy.Add(d)
	}
	r.auth.by = r.auth.by.Add(d)
}

func (r *requests) cool(now time.Time, reason string) {
	if !r.pace.complained(now) {
		return
	}
	r.out.do(RateLimited{Until: r.pace.until, For: r.pace.last.For, Reason: reason})
	r.caps.Pace = r.pace.every
	r.out.do(Learned{Kind: relaylimits.Pace, Value: int(r.pace.every / time.Millisecond), Reason: reason})
}

// hasRoom reports whether a waiting request may be sent. Live subscriptions have priority.
func (r *requests) hasRoom(x *request) bool {
	switch x.kind {
	case reqNeg:
		return true // relays count NEG-OPENs separately
	case reqLive:
		if r.historic > 0 && !r.retains(x) {
			return false
		}
		// No other request can end, so a wait would not end. The relay may refuse.
		return r.historic == 0 || r.free() > 0
	}
	if r.historic >= r.mostHistoric {
		return false
	}
	if r.historic == 0 && (r.free() > 0 || len(r.closing) == 0 || x.kind == reqProbe && r.bisected.kind == reqLive) {
		// One historic request is always tried. A subscription in closing may wait for the
		// subscription under bisection.
		return true
	}
	return r.free() > 0 && r.retains(x) && (x.kind == reqProbe || !r.liveWaits())
}

func (r *requests) retains(x *request) bool {
	return r.caps.MaxRetained == 0 || r.subs.retained()+x.size() <= r.caps.MaxRetained
}

func (r *requests) free() int {
	most := r.caps.MaxSubscriptions
	if most == 0 {
		return r.mostHistoric
	}
	return most - r.subs.reqs()
}

func (r *requests) liveWaits() bool {
	return slices.ContainsFunc(r.waiting, func(x *request) bool { return x.kind == reqLive })
}

// crowded learns a limit from a request for which the relay had no room. It reports whether the
// request is repeated later.
func (r *requests) crowded(x *request, why wire.Refusal, text string) bool {
	if why == wire.RefusalTooManyBytes {
		return r.tooManyBytes(x, text)
	}
	return r.tooMany(x, text)
}

func (r *requests) tooMany(x *request, text string) bool {
	open := r.subs.reqs()
	if r.sent(x) && x.kind != reqNeg {
		open--
	}
	r.caps.learn(relaylimits.MaxSubscriptions, open, text)
	if n := r.caps.MaxSubscriptions; n > 0 {
		r.mostHistoric = min(r.mostHistoric, relaylimits.Requests{MaxSubscriptions: n}.Historic())
	}
	if x.kind == reqLive {
		return false
	}
	r.mostHistoric = max(1, min(r.mostHistoric, r.historic-1))
	return r.historic > 1
}

// bytes of open requests that every relay accepts
const leastRetained = 4 << 10

// tooManyBytes learns the maximum size of open requests from the relay's text or from the open
// requests.
func (r *requests) tooManyBytes(x *request, text string) bool {
	others := r.subs.retained()
	if r.sent(x) {
		others -= x.size()
	}
	most := others + x.size() - 1
	if n := wire.SaidMost(text); n > 0 {
		most = min(most, n)
	} else if others > 0 {
		most = others
	}
	return r.caps.learn(relaylimits.MaxRetained, max(most, leastRetained), text) && x.kind != reqLive
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

func (s subscriptions) wake(w *wake) {
	for _, x := range s {
		if x.kind != reqLive {
			w.consider(x.idleBy)
			w.consider(x.totalBy)
		}
	}
}

func (s subscriptions) excuse(d time.Duration) {
	for _, x := range s {
		x.idleBy = x.idleBy.Add(d)
		x.totalBy = x.totalBy.Add(d)
	}
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
