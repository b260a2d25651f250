package session

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/filters"
	"github.com/graspsync/graspsync/sync/internal/plan"
	"github.com/graspsync/graspsync/sync/internal/relaylimits"
	"github.com/graspsync/graspsync/sync/internal/standing"
	"github.com/graspsync/graspsync/sync/wire"
)

// requestKind says what a subscription is for.
type requestKind uint8

const (
	reqLive requestKind = iota
	reqPage
	reqIDs
	reqNeg
	reqProbe
)

// request is one that was sent or waits to be sent.
type request struct {
	kind      requestKind
	id        string           // given when it is sent
	number    uint64           // in it
	filters   []nostr.Filter   // of all but reqLive
	match     *filters.Matcher // likewise
	standing  standing.Filters // reqLive
	spelled   []nostr.Filter   // while they are sent
	live      plan.LiveID
	last      bool   // live: it gives way to all others
	order     uint64 // live: when it was asked for
	openAt    int64  // live: Unix time of its EOSE, 0 before
	q         *query
	payload   []byte                         // reqNeg: of NEG-OPEN
	want      map[graspsync.EventID]struct{} // reqIDs: not yet received
	asked     int                            // reqIDs: how many there were
	limitZero bool                           // it was sent with limit 0
	bytes     int                            // of it, 0 if they were not counted
	events    int
	noticed   bool   // a NOTICE came and nothing else yet
	missed    bool   // live: what it should have brought has to be caught up with
	refusal   string // what the relay said when it refused it
	passed    bool   // its filters were found to be taken
	toAuth    bool   // it was refused for want of NIP-42
	since     bool   // probe: without limit 0
	limited   int    // times that it was refused as one of too many
	unasked   bool   // it was refused by what is known of its form
	doubted   bool   // so was any other form of it
	sure      bool   // it is asked for all the same
	heard     bool   // it got an answer since it was sent

	sentAt time.Time
	forms  *relaylimits.Forms // once they were asked for,
	formed bool               // and whether that was without limit 0

	openBy  time.Time // the next one may be opened
	idleBy  time.Time
	totalBy time.Time
}

// size is how many bytes the request has.
func (x *request) size() int {
	if x.bytes == 0 {
		x.bytes = requestOverhead
		for _, f := range x.spell() {
			x.bytes += filters.Size(f) + 1
		}
	}
	return x.bytes
}

// spell returns the filters. Their lists must not be changed.
func (x *request) spell() []nostr.Filter {
	switch {
	case x.kind != reqLive:
		return x.filters
	case x.spelled != nil:
		return x.spelled
	}
	return x.standing.Spell()
}

// count is how many filters it has.
func (x *request) count() int { return len(x.filters) + len(x.standing) }

// requestOverhead is what a REQ takes besides its filters and their commas.
const requestOverhead = len(`["REQ","r18446744073709551615"]`)

// left returns the ids whose events did not come.
func (x *request) left() []graspsync.EventID {
	return slices.SortedFunc(maps.Keys(x.want), graspsync.EventID.Compare)
}

// asks returns what a request asks for, without bounds in time.
func (x *request) asks() []nostr.Filter {
	if x.q != nil {
		return []nostr.Filter{x.q.filter}
	}
	return x.spell()
}

// suits reports whether an event is what was asked for, or resembles that. Of one that is known
// the tags were not read: it suits if all else does.
func (x *request) suits(m wire.Message) (matches, similar bool) {
	ev := m.Event.Event
	switch {
	case !m.Known && x.kind == reqLive:
		tags := standing.TagsOf(ev)
		matches = x.standing.Match(ev, tags)
		return matches, matches || x.standing.Resembles(tags, func(f nostr.Filter) bool { return resembles(f, ev) })
	case !m.Known:
		matches = x.match.Match(ev)
		return matches, matches || slices.ContainsFunc(x.filters, func(f nostr.Filter) bool { return resembles(f, ev) })
	}
	forms := slices.Values(x.filters)
	if x.kind == reqLive {
		forms = x.standing.Forms()
	}
	for f := range forms {
		f.Tags = nil
		matches, similar = matches || f.Matches(ev), similar || resembles(f, ev)
	}
	return matches, matches || similar
}

// triable reports whether it makes sense to look for the reason of a refusal: of
// what was taken before it is not the filters.
func (x *request) triable() bool {
	return x.kind == reqLive && x.openAt == 0 || x.kind == reqPage && x.q.unbegun() && x.events == 0
}

// byNumber orders requests that were sent as they were sent.
func byNumber(a, b *request) int { return cmp.Compare(a.number, b.number) }

// requests keeps what was asked for and is open, and what waits to be asked for: which goes
// out when, how long an answer may take, and what a NOTICE is about.
type requests struct {
	cfg   *Config // read-only
	out   *outbox
	terms *terms

	next         uint64 // numbers requests and queries
	subs         subscriptions
	lives        lives
	closing      []closing
	opening      *request   // sent last, not answered yet
	waiting      []*request // to be opened, in order
	historic     int        // historic REQs that are open
	mostHistoric int        // of them
	suspended    []*request // refused: repeated once it is known how
	bisected     *request   // the one of them that is bisected

	auth      *auth
	fruitless fruitless
	pace      pacing
	suspects  suspects
}

func newRequests(cfg *Config, out *outbox, t *terms) *requests {
	return &requests{
		cfg: cfg, out: out, terms: t, mostHistoric: cfg.Historic,
		subs:  make(subscriptions),
		lives: lives{parts: make(map[plan.LiveID][]*request)},
		auth:  &auth{cfg: cfg, out: out},
		pace:  pacing{last: cfg.Cooled},

		suspects: suspects{out: out, terms: t},
	}
}

// doubted returns the first request that is, nil if there is none.
func (r *requests) doubted() *request {
	if i := slices.IndexFunc(r.suspended, func(x *request) bool { return x.doubted }); i >= 0 {
		return r.suspended[i]
	}
	return nil
}

// expect makes use of what is believed of the relay from now on: it may take more than it did.
func (r *requests) expect(t relaylimits.Limits) {
	if t.MaxSubscriptions > r.terms.MaxSubscriptions {
		r.mostHistoric = relaylimits.Requests{MaxSubscriptions: t.MaxSubscriptions}.Historic()
	}
	r.pace.believe(t.Pace)
}

// closing is a live subscription that is no longer wanted. It is closed when those
// stand that were asked for before order: they may be what replaces it.
type closing struct {
	sub   *request
	order uint64
}

func (r *requests) number() uint64 {
	r.next++
	return r.next
}

// issued reports whether we ever used a subscription id: what still comes for one
// that has ended is harmless.
func (r *requests) issued(id string) bool {
	if len(id) < 2 {
		return false
	}
	n, err := strconv.ParseUint(id[1:], 10, 64)
	return err == nil && n > 0 && n <= r.next
}

// follow has a live subscription opened.
func (r *requests) follow(x *request) {
	x.order = r.number()
	r.waiting = append(r.waiting, r.divide(x)...)
}

// unfollow has one closed when what replaces it stands.
func (r *requests) unfollow(live plan.LiveID) {
	for _, x := range slices.Clone(r.lives.parts[live]) {
		if r.sent(x) {
			r.closing = append(r.closing, closing{sub: x, order: r.number()})
		} else {
			r.drop(x, false)
		}
	}
}

// divide makes the requests of a live subscription: one, unless the relay takes less
// than it was planned for.
func (r *requests) divide(x *request) []*request {
	var out []*request
	for _, part := range r.terms.pack(x.standing) {
		out = append(out, &request{
			kind: reqLive, standing: part.filters, bytes: part.size, live: x.live, last: x.last, order: x.order,
		})
	}
	if n := r.terms.MaxSubscriptions; len(out) > 1 && n > 0 {
		n -= r.lives.before(x)
		if len(out) > n-1 { // one is left to history
			r.closeLive(x.live, 0, wire.RefusalTooManySubs, "no room for what it has to be split into")
			return nil
		}
	}
	r.lives.add(out...)
	return out
}

// open sends what waits, one request at a time, and history only into free slots.
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
		r.turnAway()
		i := slices.IndexFunc(r.waiting, func(x *request) bool {
			if r.bisected != nil && x.kind != reqProbe {
				return false // first it has to be known what the relay takes
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
	r.makeRoom(x)
	x.events, x.noticed, x.openAt = 0, false, 0
	x.heard, x.sentAt = false, now
	x.openBy = now.Add(r.cfg.OpenTimeout)
	r.opening = x
	if x.kind == reqLive {
		x.spelled = x.standing.Spell()
		defer func() { x.spelled = nil }()
	}
	out := wire.Request{Type: wire.TypeReq, Filters: r.terms.form(x, now)}
	prefix := "r"
	switch x.kind {
	case reqLive:
		prefix = "l"
	case reqProbe:
		prefix = "p"
		r.historic++
		x.idleBy, x.totalBy = r.answerBy(now), now.Add(r.cfg.TotalTimeout)
	case reqNeg:
		prefix = "n"
		out.Type, out.Payload = wire.TypeNegOpen, x.payload
		x.idleBy, x.totalBy = now.Add(r.cfg.FirstNeg), now.Add(r.cfg.NegTimeout)
	default:
		r.historic++
		x.idleBy, x.totalBy = r.answerBy(now), now.Add(r.cfg.TotalTimeout)
	}
	if x.kind != reqLive {
		r.pace.asked(now)
	}
	if r.suspects.suspected(x) { // alone, so that it can be told whether it is why
		x.openBy = r.answerBy(now)
	}
	x.number = r.number()
	x.id = prefix + strconv.FormatUint(x.number, 10)
	out.Sub = x.id
	r.subs[x.id] = x
	r.out.do(Send{out})
}

// answerBy is when an answer must have begun. Large relays under load take longer for that
// than for what follows.
func (r *requests) answerBy(now time.Time) time.Time {
	return now.Add(max(r.cfg.FirstAnswer, r.cfg.IdleTimeout))
}

// openingOver ends the time in which the request sent last holds up the others, and
// in which a NOTICE is taken to be about it.
func (r *requests) openingOver(now time.Time) {
	if r.opening != nil && !now.Before(r.opening.openBy) {
		r.opening = nil
	}
}

// answered lets the next request be opened.
func (r *requests) answered(x *request) {
	if r.opening == x {
		r.opening = nil
	}
}

// sent reports whether a request is open at the relay, as far as we know.
func (r *requests) sent(x *request) bool { return x.id != "" && r.subs[x.id] == x }

// failed counts a request that had no answer, or was refused, if that may be the connection's
// fault: what there is no room for, or no rate, is another matter, and so is what a relay ends
// that it had answered.
func (r *requests) failed(now time.Time, x *request, why wire.Refusal) {
	wantsAuth := why == wire.RefusalAuthRequired
	switch why {
	case wire.RefusalRateLimited, wire.RefusalTooManySubs, wire.RefusalTooManyBytes:
		return
	}
	if x.kind == reqNeg || x.openAt != 0 || wantsAuth && !r.auth.holdsFor(x) {
		return
	}
	r.fruitless.failed(now, x, r.next, wantsAuth)
}

// enqueue has a historic request opened when its turn comes.
func (r *requests) enqueue(x *request) { r.waiting = append(r.waiting, x) }

// enqueueFirst has a request opened before all others: it was refused for now.
func (r *requests) enqueueFirst(x *request) { r.waiting = slices.Insert(r.waiting, 0, x) }

// drop ends a request, telling the relay if it does not know yet.
func (r *requests) drop(x *request, tell bool) {
	r.answered(x)
	is := func(y *request) bool { return y == x }
	if x.kind == reqLive {
		r.lives.remove(x)
	}
	if !r.sent(x) {
		r.waiting = slices.DeleteFunc(r.waiting, is)
		r.suspended = slices.DeleteFunc(r.suspended, is)
		if r.bisected == x {
			r.bisected = nil
			for _, y := range r.probes() {
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
	if !tell {
		return
	}
	typ := wire.TypeClose
	if x.kind == reqNeg {
		typ = wire.TypeNegClose
	}
	r.out.do(Send{wire.Request{Type: typ, Sub: x.id}})
}

// unsend ends a request at the relay that is still wanted.
func (r *requests) unsend(x *request, tell bool) {
	r.drop(x, tell)
	if x.kind == reqLive {
		r.lives.add(x)
	}
}

// suspend keeps a request until it is known how it can be repeated.
func (r *requests) suspend(x *request, tell bool) {
	r.unsend(x, tell)
	r.suspended = append(r.suspended, x)
}

// resume ends the bisection of a request, which is suspended no more.
func (r *requests) resume(x *request) {
	r.bisected = nil
	r.suspended = slices.DeleteFunc(r.suspended, func(y *request) bool { return y == x })
}

// closeReplaced closes the live subscriptions that are no longer wanted and whose
// successors stand.
func (r *requests) closeReplaced() {
	for len(r.closing) > 0 {
		c := r.closing[0]
		before := func(x *request) bool { return x.kind == reqLive && x.order < c.order }
		if r.opening != nil && before(r.opening) ||
			slices.ContainsFunc(r.waiting, before) || slices.ContainsFunc(r.suspended, before) {
			return
		}
		r.closing = r.closing[1:]
		if r.sent(c.sub) {
			r.drop(c.sub, true)
		}
	}
}

// unwanted reports whether a live subscription is only open since what replaces it does
// not stand yet.
func (r *requests) unwanted(x *request) bool {
	return slices.ContainsFunc(r.closing, func(c closing) bool { return c.sub == x })
}

// closeLive ends a live subscription that the relay refused, or had accepted at openAt and ended.
func (r *requests) closeLive(live plan.LiveID, openAt int64, why wire.Refusal, text string) {
	r.dropLive(live)
	r.out.do(LiveClosed{Live: live, OpenAt: openAt, Reason: text, Why: why})
}

// dropLive ends what there is of a live subscription.
func (r *requests) dropLive(live plan.LiveID) {
	for _, part := range slices.Clone(r.lives.parts[live]) {
		r.drop(part, true)
	}
}

// giveWay ends a live subscription that comes last.
func (r *requests) giveWay(x *request) {
	wanted := !r.unwanted(x)
	r.dropLive(x.live)
	if wanted {
		r.out.do(LiveClosed{Live: x.live, Reason: "its place is needed", GaveWay: true})
	}
}

// requestsOf returns the requests of a query.
func (r *requests) requestsOf(q *query) (out []*request) {
	out = r.subs.where(func(x *request) bool { return x.q == q })
	for _, x := range slices.Concat(r.waiting, r.suspended) {
		if x.q == q {
			out = append(out, x)
		}
	}
	return out
}

func (r *requests) probes() (out []*request) {
	out = r.subs.where(func(x *request) bool { return x.kind == reqProbe })
	for _, x := range r.waiting {
		if x.kind == reqProbe {
			out = append(out, x)
		}
	}
	return out
}

// attribute tells which request a NOTICE is about, nil if that can't be told, and what it
// means. It is the one that was opened last, or a NEG-OPEN that has no answer yet.
func (r *requests) attribute(notice string) (x *request, why wire.Refusal) {
	why = wire.ClassifyNotice(notice)
	x = r.opening
	neg := r.subs.unansweredNeg()
	switch {
	case neg != nil && x == nil && why == wire.RefusalRateLimited:
		x = neg // else its silence would be taken for an answer
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

// wake considers when something is due.
func (r *requests) wake(w *wake) {
	r.subs.wake(w)
	if r.auth.underWay() {
		w.consider(r.auth.by)
	}
	if len(r.waiting) == 0 && len(r.closing) == 0 && r.doubted() == nil {
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

// excuse puts all deadlines off.
func (r *requests) excuse(d time.Duration) {
	r.subs.excuse(d)
	if r.opening != nil {
		r.opening.openBy = r.opening.openBy.Add(d)
	}
	r.auth.by = r.auth.by.Add(d)
}

// cool stops new requests for a while, and has history asked for more slowly from then on.
// What was refused is asked for again then.
func (r *requests) cool(now time.Time, reason string) {
	if !r.pace.complained(now, r.cfg.Cooldown) {
		return
	}
	r.out.do(RateLimited{Until: r.pace.until, For: r.pace.last.For, Reason: reason})
	r.terms.Pace = r.pace.every
	r.out.do(Learned{Kind: relaylimits.Pace, Value: int(r.pace.every / time.Millisecond), Reason: reason})
}

// hasRoom reports whether a request that waits may be opened. Live subscriptions and
// history share the places that the relay gives; those for history are lent to live
// ones as they are needed.
func (r *requests) hasRoom(x *request) bool {
	switch x.kind {
	case reqNeg:
		return true // relays count them apart
	case reqLive:
		if x.last {
			return r.free() > 0 && r.retains(x) && r.othersLive(x) < r.mostLive()
		}
		if r.historic > 0 && !r.retains(x) {
			return false
		}
		// With nothing else to end, waiting would be for ever: the relay may say so.
		return r.historic == 0 || r.free() > 0
	}
	if r.historic >= r.mostHistoric {
		return false
	}
	if r.historic == 0 && (r.free() > 0 || len(r.closing) == 0 || x.kind == reqProbe && r.bisected.kind == reqLive) {
		// It must go on somehow; the relay may say that there is no room. What is to be closed
		// may wait for the subscription that is being tried.
		return true
	}
	return r.free() > 0 && r.retains(x) && (x.kind == reqProbe || !r.liveWaits())
}

// mostLive is how many live subscriptions there may be where some come last.
func (r *requests) mostLive() int {
	if r.terms.MaxSubscriptions == 0 {
		return math.MaxInt
	}
	return relaylimits.Requests{MaxSubscriptions: r.terms.MaxSubscriptions}.LiveSubscriptions()
}

// othersLive is how many requests of live subscriptions are open, or wait before x.
func (r *requests) othersLive(x *request) (n int) {
	n = r.subs.live()
	for _, y := range r.waiting {
		if y.kind == reqLive && (!y.last || y.order < x.order) && y != x {
			n++
		}
	}
	return n
}

// turnAway gives up what comes last, waits, and would wait for more than an answer to end.
func (r *requests) turnAway() {
	if r.bisected != nil {
		return
	}
	for _, x := range slices.Clone(r.waiting) {
		if x.last && !r.hasRoom(x) && (r.historic == 0 || r.othersLive(x) >= r.mostLive()) && slices.Contains(r.waiting, x) {
			r.giveWay(x)
		}
	}
}

// makeRoom has what comes last give way to a request that is about to be sent.
func (r *requests) makeRoom(x *request) {
	if x.kind == reqNeg || x.last {
		return
	}
	for r.free() < 1 || !r.retains(x) {
		y := r.subs.last(r.bisected)
		if y == nil {
			return
		}
		r.giveWay(y)
	}
}

// retains reports whether the relay takes one more request of the size of x beside those
// that are open.
func (r *requests) retains(x *request) bool {
	return r.terms.MaxRetained == 0 || r.subs.retained()+x.size() <= r.terms.MaxRetained
}

// free is how many subscriptions more the relay takes.
func (r *requests) free() int {
	most := r.terms.MaxSubscriptions
	if most == 0 {
		return r.mostHistoric
	}
	return most - r.subs.reqs()
}

func (r *requests) liveWaits() bool {
	return slices.ContainsFunc(r.waiting, func(x *request) bool { return x.kind == reqLive })
}

// crowded learns from a request for which the relay had no room, and reports whether it is to
// be repeated when there is.
func (r *requests) crowded(x *request, why wire.Refusal, text string) bool {
	if why == wire.RefusalTooManyBytes {
		return r.tooManyBytes(x, text)
	}
	return r.tooMany(x, text)
}

// tooMany learns how many requests the relay takes: what is open shows it.
func (r *requests) tooMany(x *request, text string) bool {
	open := r.subs.reqs()
	if r.sent(x) && x.kind != reqNeg {
		open--
	}
	r.terms.learn(relaylimits.MaxSubscriptions, open, text)
	if n := r.terms.MaxSubscriptions; n > 0 {
		r.mostHistoric = min(r.mostHistoric, relaylimits.Requests{MaxSubscriptions: n}.Historic())
	}
	if x.kind == reqLive {
		return false
	}
	if y := r.subs.last(r.bisected); y != nil {
		r.giveWay(y)
		return true
	}
	r.mostHistoric = max(1, min(r.mostHistoric, r.historic-1))
	return r.historic > 1
}

// leastRetained is what every relay is trusted to keep of requests, in bytes.
const leastRetained = 4 << 10

// tooManyBytes learns how many bytes of requests the relay keeps: it says so, or what is open
// shows it. History waits until there is room; live subscriptions the plan makes anew, with
// fewer bytes.
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
	return r.terms.learn(relaylimits.MaxRetained, max(most, leastRetained), text) && x.kind != reqLive
}
