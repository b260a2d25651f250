package session

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/filters"
	"github.com/graspsync/graspsync/sync/internal/negentropy"
	"github.com/graspsync/graspsync/sync/internal/plan"
	"github.com/graspsync/graspsync/sync/internal/relaylimits"
	"github.com/graspsync/graspsync/sync/wire"
)

// Config contains the limits of a [Session]. All numbers and durations are required.
type Config struct {
	Historic    int // maximum open historic requests
	Reconciling int // maximum concurrent NIP-77 sessions
	PageLimit   int // limit of a page request, in events
	MaxPage     int // maximum events accepted in one page
	PageSize    int // largest page the relay returned, 0 if unknown
	IDChunk     int // maximum ids in one request
	NegFrame    int // maximum size of a sent NIP-77 message in bytes, before hex
	NegRounds   int // maximum messages of one reconciliation
	NegIDs      int // maximum ids of one reconciliation; twice as many at its end
	Limits      relaylimits.Limits
	Excluded    []relaylimits.Value // values that the relay never accepts
	Auth        bool                // a key for NIP-42 exists
	Cooled      Cooling             // last pause of an earlier connection; optional
	MaxStrikes  int                 // maximum proofs of hostility within an hour
}

const (
	// openTimeout is the maximum wait of a request for the first answer to the previous request, so
	// that an answer without a subscription id belongs to one request.
	openTimeout = 2 * time.Second
	// idleTimeout ends a request that receives no message for that time, firstAnswer before the
	// first message, because large relays under load are slow.
	idleTimeout  = 30 * time.Second
	firstAnswer  = 2 * time.Minute
	totalTimeout = 5 * time.Minute

	negentropyFirst   = 10 * time.Second // for the first answer to NEG-OPEN
	negentropyTimeout = 2 * time.Minute  // for a reconciliation

	// gapAge is the minimum time that a live filter was open before the created_at of a gap,
	// because clocks differ.
	gapAge = time.Minute
)

// Session is the state of one connection. It is not safe for concurrent use.
type Session struct {
	cfg     *Config
	actions []Action // for the caller
	caps    *relayCaps
	strikes []time.Time

	// requests
	last        uint64 // number of a request or query
	subs        subscriptions
	liveSubs    liveSubs
	closing     []*request // open until their replacements have opened
	opening     *request   // sent last, not answered
	waiting     []*request // in sending order
	historic    int
	maxHistoric int
	auth        *auth
	unanswered  unanswered
	pace        pacing
	bisected    *request   // refused, under bisection
	bisection   *bisection // the latest

	// history
	batches     map[plan.BatchID]*batch
	queries     map[QueryID]*query
	pageSize    int
	reconciling reconcileQueue
	room        int
}

// New returns a session for a new connection.
func New(cfg Config) *Session {
	s := &Session{
		cfg: &cfg, subs: make(subscriptions), liveSubs: make(liveSubs), maxHistoric: cfg.Historic,
		pace: pacing{last: cfg.Cooled}, batches: make(map[plan.BatchID]*batch), queries: make(map[QueryID]*query),
		pageSize: cfg.PageSize, reconciling: reconcileQueue{most: cfg.Reconciling},
	}
	s.auth = &auth{cfg: s.cfg, do: s.do}
	s.caps = &relayCaps{Limits: cfg.Limits, idChunk: cfg.IDChunk, excluded: make(map[relaylimits.Value]struct{}), do: s.do}
	s.SetLimits(cfg.Limits, cfg.Excluded)
	return s
}

func (s *Session) do(a Action) { s.actions = append(s.actions, a) }

func (s *Session) take() []Action {
	all := s.actions
	s.actions = nil
	return all
}

// SetLimits replaces the limits of the relay and the excluded values. Open requests do not change.
func (s *Session) SetLimits(t relaylimits.Limits, excluded []relaylimits.Value) {
	if t.MaxSubscriptions > s.caps.MaxSubscriptions {
		s.maxHistoric = t.Historic()
	}
	s.pace.believe(t.Pace)
	s.reconciling.offered = !t.NoNegentropy
	s.caps.set(t, excluded)
}

// LearnFromLoss returns the limits to learn if the relay disconnects repeatedly instead of answering,
// as some do after a NEG-OPEN or a message beyond their limit.
func (s *Session) LearnFromLoss() []Action {
	const reason = "disconnected instead of answering"
	if s.subs.unansweredNeg() != nil {
		s.noNegentropy(reason, false)
	} else if x := s.opening; x != nil && x.size() > 4*relaylimits.MinMessage {
		s.caps.learn(relaylimits.MaxMessage, x.size()/2, reason)
	}
	return s.take()
}

// SetIDRoom sets the maximum number of ids for the next query of SetLoaded.
func (s *Session) SetIDRoom(ids int) { s.room = ids }

// ReservedIDs returns the number of ids reserved by open reconciliations.
func (s *Session) ReservedIDs() int { return s.reconciling.reserved }

// Follow opens a live subscription.
func (s *Session) Follow(now time.Time, live plan.LiveID, fs []nostr.Filter) []Action {
	s.waiting = append(s.waiting, s.divide(&request{live: live, filters: fs, order: s.number()})...)
	return s.flush(now)
}

// divide returns the requests of a live subscription, several if the limits are tighter than
// planned.
func (s *Session) divide(x *request) []*request {
	var out []*request
	for _, fs := range s.caps.pack(x.filters) { // as the relay accepts them
		out = append(out, &request{kind: reqLive, filters: fs, match: filters.Compile(fs), live: x.live, order: x.order})
	}
	if n := s.caps.MaxSubscriptions; len(out) > 1 && n > 0 {
		for _, parts := range s.liveSubs {
			n -= len(parts)
		}
		if len(out) > n-1 { // one slot remains for history
			s.closeLive(x.live, 0, wire.RefusalTooManySubs, "too few subscriptions for its parts")
			return nil
		}
	}
	s.liveSubs.add(out...)
	return out
}

// Unfollow closes a live subscription after earlier Follow calls have opened theirs, which may
// replace it.
func (s *Session) Unfollow(now time.Time, live plan.LiveID) []Action {
	for _, x := range slices.Clone(s.liveSubs[live]) {
		if s.sent(x) {
			x.closeAt = s.number()
			s.closing = append(s.closing, x)
		} else {
			s.drop(x, false)
		}
	}
	return s.flush(now)
}

// Receive handles a message of the relay.
func (s *Session) Receive(now time.Time, m wire.Message) []Action {
	s.openingOver(now)
	switch m.Type {
	case wire.TypeEvent:
		s.onEvent(now, m)
	case wire.TypeEOSE:
		s.onEOSE(now, m)
	case wire.TypeClosed:
		s.onClosed(now, m)
	case wire.TypeNotice:
		s.onNotice(now, m)
	case wire.TypeNegMsg:
		s.onNegMsg(now, m)
	case wire.TypeNegErr:
		s.onNegErr(now, m)
	case wire.TypeAuth:
		s.auth.challenged(now, m.Text)
	case wire.TypeOK:
		s.onOK(m)
	}
	s.unanswered.heard(s.last)
	return s.flush(now)
}

func (s *Session) flush(now time.Time) []Action {
	if s.unanswered.hung(now) {
		s.do(Hangup{Reason: "requests get no answer"})
		return s.take()
	}
	s.openWaiting(now)
	return s.take()
}

func (s *Session) onEvent(now time.Time, m wire.Message) {
	x, ok := s.subs[m.Sub]
	if !ok {
		if !s.issued(m.Sub) {
			s.strike(now, "event for an unknown subscription")
		}
		return
	}
	s.answered(x)
	if x.kind == reqProbe {
		s.probed(x, true, true)
		return
	}
	if x.kind == reqNeg {
		s.strike(now, "unrequested event")
		return
	}
	matches, similar := x.suits(m)
	if !similar {
		s.strike(now, "unrequested event")
		return
	}
	if x.kind == reqLive {
		if matches {
			s.do(Deliver{Event: m.Event, Known: m.Known, Size: m.Size})
		}
		return
	}
	s.onHistoric(now, x, m, matches)
}

func (s *Session) onEOSE(now time.Time, m wire.Message) {
	x, ok := s.subs[m.Sub]
	if !ok {
		return
	}
	s.answered(x)
	switch {
	case x.kind == reqLive:
		if x.openAt == 0 { // it delivers new events from now on
			x.openAt, x.limited = now.Unix(), 0
		}
	case x.noticed && x.events == 0 && (x.kind == reqPage || x.kind == reqIDs):
		// Some relays report a failed query with a NOTICE before the EOSE.
		s.fail(x, "answered with a NOTICE and no events")
	case x.kind == reqPage:
		s.endPage(x, m.Hint)
	case x.kind == reqIDs:
		s.endIDs(x)
	case x.kind == reqProbe:
		s.probed(x, !x.noticed, true)
	}
}

func (s *Session) onClosed(now time.Time, m wire.Message) {
	x, ok := s.subs[m.Sub]
	if !ok {
		s.lateRefusal(now, m, wire.Classify(m.Text))
		return
	}
	why := wire.Classify(m.Text)
	if x.kind == reqNeg {
		why = wire.ClassifyNegErr(m.Text, 0)
	}
	s.refused(now, x, why, m.Text, false)
}

func (s *Session) onNegMsg(now time.Time, m wire.Message) {
	if x, ok := s.subs[m.Sub]; ok && x.kind == reqNeg {
		s.answered(x)
		s.negotiate(now, x, m.Payload)
	}
}

func (s *Session) onNegErr(now time.Time, m wire.Message) {
	why := wire.ClassifyNegErr(m.Text, m.Max)
	x, ok := s.subs[m.Sub]
	if !ok {
		s.lateRefusal(now, m, why)
		return
	}
	if x.kind != reqNeg {
		return
	}
	if why == wire.RefusalTooLarge {
		s.caps.learn(relaylimits.NegentropyMax, m.Max, m.Text)
	}
	s.refused(now, x, why, m.Text, false)
}

// lateRefusal applies a rate limit that arrives after its request was given up.
func (s *Session) lateRefusal(now time.Time, m wire.Message, why wire.Refusal) {
	if s.issued(m.Sub) && why == wire.RefusalRateLimited {
		s.cool(now, m.Text)
	}
}

// onNotice handles a NOTICE. A refusal is the answer to a request. Some relays send an EOSE after
// other texts.
func (s *Session) onNotice(now time.Time, m wire.Message) {
	x, why := s.attribute(m.Text)
	switch {
	case why == wire.RefusalRateLimited && x == nil:
		s.cool(now, m.Text)
	case why == wire.RefusalAuthRequired && x == nil:
		s.auth.begin(now)
		s.do(Notice{Text: m.Text})
	case x == nil, why == wire.RefusalOther && x.kind == reqNeg:
		if why >= wire.RefusalBadRequest {
			s.subs.suspect()
		}
		s.do(Notice{Text: m.Text})
	case why == wire.RefusalOther:
		x.noticed = true
		if x.kind != reqNeg {
			x.idleBy = now.Add(idleTimeout)
		}
		s.unblock(x)
		s.do(Notice{Text: m.Text})
	default:
		s.refused(now, x, why, m.Text, true)
	}
}

func (s *Session) onOK(m wire.Message) {
	if a := s.auth; a.state == authSent && m.ID == a.id {
		s.authenticated(m.Accepted, m.Text)
	}
}

// Signed is the answer to Authenticate.
func (s *Session) Signed(now time.Time, ev *nostr.Event, err error) []Action {
	if a := s.auth; a.state == authSigning {
		if err := a.signed(ev, err); err != nil {
			s.authenticated(false, err.Error())
		}
	}
	return s.flush(now)
}

// SetLoaded is the answer to LoadSet. With an error or a nil set the query is fetched by pages.
func (s *Session) SetLoaded(now time.Time, id QueryID, set *negentropy.Set, err error) []Action {
	s.setLoaded(id, set, err)
	return s.flush(now)
}

// Checked is the answer to Missing. Ids in later are requested from another relay and checked again
// afterwards.
func (s *Session) Checked(now time.Time, id QueryID, ids, later []graspsync.EventID, err error) []Action {
	s.checked(id, ids, later, err)
	return s.flush(now)
}

// Unsent reports that a request was not sent because it exceeds the maximum message size.
func (s *Session) Unsent(now time.Time, id string, size int, reason string) []Action {
	if x, ok := s.subs[id]; ok {
		s.unsent(x, size, reason)
	}
	return s.flush(now)
}

// Forged counts an event of this relay with a wrong id or signature.
func (s *Session) Forged(now time.Time, reason string) []Action {
	s.strike(now, reason)
	return s.flush(now)
}

func (s *Session) strike(now time.Time, reason string) {
	kept := s.strikes[:0]
	for _, t := range s.strikes {
		if now.Sub(t) < time.Hour {
			kept = append(kept, t)
		}
	}
	s.strikes = append(kept, now)
	s.do(Strike{Reason: reason, Last: len(s.strikes) == s.cfg.MaxStrikes})
}

// Tick handles expired deadlines.
func (s *Session) Tick(now time.Time) []Action {
	for _, x := range s.subs.late(now) {
		switch {
		case !s.sent(x): // it ended together with another request
		case x.kind == reqNeg:
			s.drop(x, true)
			s.negSilent(x)
		case x.kind == reqProbe:
			s.unanswered.failed(now, x, s.last)
			s.probeFailed(x, "no answer in time", true)
		default:
			s.unanswered.failed(now, x, s.last)
			s.fail(x, "no answer in time")
		}
	}
	if s.auth.late(now) {
		s.authenticated(false, "authentication got no answer")
	}
	s.expire(now)
	return s.flush(now)
}

// NextWake returns the time of the next Tick, or false.
func (s *Session) NextWake() (next time.Time, ok bool) {
	var w wake
	for _, x := range s.subs {
		if x.kind != reqLive {
			w.consider(x.idleBy)
			w.consider(x.totalBy)
		}
	}
	for _, b := range s.batches {
		w.consider(b.Deadline)
	}
	if s.auth.underWay() {
		w.consider(s.auth.by)
	}
	s.wakeForNext(&w)
	return w.at, w.ok
}

type wake struct {
	at time.Time
	ok bool
}

func (w *wake) consider(t time.Time) {
	if !w.ok || t.Before(w.at) {
		w.at, w.ok = t, true
	}
}

// ExtendDeadlines extends all deadlines of answers by d, for a time in which no message was read.
func (s *Session) ExtendDeadlines(d time.Duration) {
	for _, x := range s.subs {
		x.idleBy, x.totalBy = x.idleBy.Add(d), x.totalBy.Add(d)
	}
	if s.opening != nil {
		s.opening.openBy = s.opening.openBy.Add(d)
	}
	s.auth.by = s.auth.by.Add(d)
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

// issued reports whether a subscription id was ever used, because a late message is no fault of the
// relay.
func (s *Session) issued(id string) bool {
	if len(id) < 2 {
		return false
	}
	n, err := strconv.ParseUint(id[1:], 10, 64)
	return err == nil && n > 0 && n <= s.last
}

// openingOver ends the time in which the newest request blocks later requests and gets all NOTICEs.
func (s *Session) openingOver(now time.Time) {
	if s.opening != nil && !now.Before(s.opening.openBy) {
		s.opening = nil
	}
}

// unblock allows the next request, if it waits for an answer to x.
func (s *Session) unblock(x *request) {
	if s.opening == x {
		s.opening = nil
	}
}

// answered records that the relay has answered x, with an event or a message.
func (s *Session) answered(x *request) {
	s.unblock(x)
	s.unanswered.answers(x)
}

// resembles reports whether an honest relay may send an event that does not match. Some match a tag
// value under any name, or ignore since and until.
func resembles(fs []nostr.Filter, ev *nostr.Event) bool {
	values := make(map[string]struct{}, len(ev.Tags))
	for _, t := range ev.Tags {
		if len(t) > 1 {
			values[t[1]] = struct{}{}
		}
	}
	return slices.ContainsFunc(fs, func(f nostr.Filter) bool {
		if f.IDs != nil || f.Kinds != nil && !slices.Contains(f.Kinds, ev.Kind) ||
			f.Authors != nil && !slices.Contains(f.Authors, ev.PubKey) {
			return false
		}
		return len(f.Tags) == 0 || hasValue(f.Tags, values)
	})
}

func hasValue(wanted nostr.TagMap, values map[string]struct{}) bool {
	for _, list := range wanted {
		for _, v := range list {
			if _, ok := values[v]; ok {
				return true
			}
		}
	}
	return false
}

const (
	// consecutive requests without an answer, each sent after the previous failure
	maxSilent = 3
	// silentFor is the minimum silence if a request was answered before, because some relays drop
	// requests that are too frequent.
	silentFor = time.Hour
	maxForms  = 64
)

// unanswered counts consecutive requests without an answer while the relay sends nothing, without
// NEG-OPENs. Some relays lose a worker or database behind one connection. A new connection may help.
// Other relays never answer one form of request. So a failure counts only if its form was answered on
// this connection, or if no request for history was answered.
type unanswered struct {
	count      int
	since      time.Time
	failedAt   uint64 // requests up to this number were open at the last failure
	heardAfter uint64 // requests up to this number may be answered by the last message

	alive    bool
	answered []string // forms of requests
}

func (u *unanswered) heard(last uint64) { u.count, u.heardAfter = 0, last }

func (u *unanswered) answers(x *request) {
	u.alive = true
	if x.kind == reqLive || x.events > 0 || len(u.answered) >= maxForms {
		return
	}
	if is := formOf(x); !slices.Contains(u.answered, is) {
		u.answered = append(u.answered, is)
	}
}

func (u *unanswered) failed(now time.Time, x *request, last uint64) {
	if x.number <= max(u.failedAt, u.heardAfter) || len(u.answered) > 0 && !slices.Contains(u.answered, formOf(x)) {
		return
	}
	if u.count == 0 {
		u.since = now
	}
	u.count++
	u.failedAt = last
}

func (u *unanswered) hung(now time.Time) bool {
	return u.count >= maxSilent && (!u.alive || now.Sub(u.since) >= silentFor)
}

func formOf(x *request) (s string) {
	for _, f := range x.filters {
		s += fmt.Sprint(len(f.IDs) > 0, len(f.Kinds) > 0, len(f.Authors) > 0, slices.Sorted(maps.Keys(f.Tags)))
	}
	return s
}
