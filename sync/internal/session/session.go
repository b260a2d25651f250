package session

import (
	"time"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
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
	SetAside    []relaylimits.Value // values that the relay never accepts
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
	cfg      *Config
	out      *outbox
	caps     *relayCaps
	requests *requests
	history  *history
	repair   *repair
	strikes  []time.Time
}

// New returns a session for a new connection.
func New(cfg Config) *Session {
	s := &Session{cfg: &cfg, out: &outbox{}}
	s.caps = newRelayCaps(s.cfg, s.out)
	s.requests = newRequests(s.cfg, s.out, s.caps)
	s.history = newHistory(s.cfg, s.out, s.caps, s.requests)
	s.repair = &repair{caps: s.caps, requests: s.requests, history: s.history}
	s.SetLimits(cfg.Limits, cfg.SetAside)
	return s
}

type outbox struct{ actions []Action }

func (o *outbox) do(a Action) { o.actions = append(o.actions, a) }

func (o *outbox) take() []Action {
	all := o.actions
	o.actions = nil
	return all
}

func (s *Session) flush(now time.Time) []Action {
	if s.requests.unanswered.hung(now) {
		s.out.do(Hangup{Reason: "requests get no answer"})
		return s.out.take()
	}
	s.requests.open(now)
	return s.out.take()
}

// SetLimits replaces the limits of the relay and the excluded values. Open requests do not change.
func (s *Session) SetLimits(t relaylimits.Limits, aside []relaylimits.Value) {
	s.requests.expect(t)
	s.history.reconciling.offered = !t.NoNegentropy
	s.caps.set(t, aside)
}

// Cut returns the limits to learn if the relay disconnects repeatedly instead of answering, because
// some relays do so after a NEG-OPEN or after a message that is too large for them.
func (s *Session) Cut() []Action {
	const reason = "disconnected instead of answering"
	if s.requests.subs.unansweredNeg() != nil {
		s.history.noNegentropy(reason, false)
	} else if x := s.requests.opening; x != nil && x.size() > 4*relaylimits.LeastMessage {
		s.caps.learn(relaylimits.MaxMessage, x.size()/2, reason)
	}
	return s.out.take()
}

// Room sets the maximum number of ids for the next query of SetLoaded.
func (s *Session) Room(ids int) { s.history.room = ids }

// Granted returns the number of ids reserved by open reconciliations.
func (s *Session) Granted() int { return s.history.reconciling.granted }

// Follow opens a live subscription.
func (s *Session) Follow(now time.Time, live plan.LiveID, fs []nostr.Filter) []Action {
	s.requests.follow(&request{kind: reqLive, live: live, filters: fs})
	return s.flush(now)
}

// Unfollow closes a live subscription after earlier Follow calls have opened theirs, which may
// replace it.
func (s *Session) Unfollow(now time.Time, live plan.LiveID) []Action {
	s.requests.unfollow(live)
	return s.flush(now)
}

// Fetch starts a batch.
func (s *Session) Fetch(now time.Time, in plan.Batch) []Action {
	s.history.fetch(in)
	return s.flush(now)
}

// Abandon ends a batch without a report.
func (s *Session) Abandon(now time.Time, id plan.BatchID) []Action {
	s.history.abandon(id)
	return s.flush(now)
}

// Cursors returns the progress of the running batches.
func (s *Session) Cursors() map[plan.BatchID][]plan.Cursor { return s.history.cursors() }

// Receive handles a message of the relay.
func (s *Session) Receive(now time.Time, m wire.Message) []Action {
	s.requests.openingOver(now)
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
		s.requests.auth.challenged(now, m.Text)
	case wire.TypeOK:
		s.onOK(m)
	}
	s.requests.unanswered.heard(s.requests.next)
	return s.flush(now)
}

func (s *Session) onEvent(now time.Time, m wire.Message) {
	x, ok := s.requests.subs[m.Sub]
	if !ok {
		if !s.requests.issued(m.Sub) {
			s.strike(now, "event for an unknown subscription")
		}
		return
	}
	s.requests.answered(x)
	s.requests.unanswered.answers(x)
	if x.kind == reqProbe {
		s.repair.probed(x, true, true)
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
			s.out.do(Deliver{Event: m.Event, Known: m.Known, Size: m.Size})
		}
		return
	}
	s.history.onHistoric(now, x, m, matches)
}

func (s *Session) onEOSE(now time.Time, m wire.Message) {
	x, ok := s.requests.subs[m.Sub]
	if !ok {
		return
	}
	s.requests.answered(x)
	s.requests.unanswered.answers(x)
	switch {
	case x.kind == reqLive:
		if x.openAt == 0 { // it delivers new events from now on
			x.openAt, x.limited = now.Unix(), 0
		}
	case x.noticed && x.events == 0 && (x.kind == reqPage || x.kind == reqIDs):
		// Some relays report a failed query with a NOTICE before the EOSE.
		s.history.fail(x, "answered with a NOTICE and no events")
	case x.kind == reqPage:
		s.history.endPage(x, m.Hint)
	case x.kind == reqIDs:
		s.history.endIDs(x)
	case x.kind == reqProbe:
		s.repair.probed(x, !x.noticed, true)
	}
}

func (s *Session) onClosed(now time.Time, m wire.Message) {
	x, ok := s.requests.subs[m.Sub]
	if !ok {
		s.lateRefusal(now, m, wire.Classify(m.Text))
		return
	}
	why := wire.Classify(m.Text)
	if x.kind == reqNeg {
		why = wire.ClassifyNegErr(m.Text, 0)
	}
	s.repair.refused(now, x, why, m.Text, false)
}

func (s *Session) onNegMsg(now time.Time, m wire.Message) {
	if x, ok := s.requests.subs[m.Sub]; ok && x.kind == reqNeg {
		s.requests.answered(x)
		s.requests.unanswered.answers(x)
		s.history.negotiate(now, x, m.Payload)
	}
}

func (s *Session) onNegErr(now time.Time, m wire.Message) {
	why := wire.ClassifyNegErr(m.Text, m.Max)
	x, ok := s.requests.subs[m.Sub]
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
	s.repair.refused(now, x, why, m.Text, false)
}

// lateRefusal: a rate limit still applies after the request was given up.
func (s *Session) lateRefusal(now time.Time, m wire.Message, why wire.Refusal) {
	if s.requests.issued(m.Sub) && why == wire.RefusalRateLimited {
		s.requests.cool(now, m.Text)
	}
}

// onNotice handles a NOTICE. A refusal is the answer to a request. Some relays send an EOSE after
// other texts.
func (s *Session) onNotice(now time.Time, m wire.Message) {
	x, why := s.requests.attribute(m.Text)
	switch {
	case why == wire.RefusalRateLimited && x == nil:
		s.requests.cool(now, m.Text)
	case why == wire.RefusalAuthRequired && x == nil:
		s.requests.auth.begin(now)
		s.out.do(Notice{Text: m.Text})
	case x == nil, why == wire.RefusalOther && x.kind == reqNeg:
		if why >= wire.RefusalBadRequest {
			s.requests.subs.suspect()
		}
		s.out.do(Notice{Text: m.Text})
	case why == wire.RefusalOther:
		x.noticed = true
		if x.kind != reqNeg {
			x.idleBy = now.Add(idleTimeout)
		}
		s.requests.answered(x)
		s.out.do(Notice{Text: m.Text})
	default:
		s.repair.refused(now, x, why, m.Text, true)
	}
}

func (s *Session) onOK(m wire.Message) {
	if a := s.requests.auth; a.state == authSent && m.ID == a.id {
		s.repair.authenticated(m.Accepted, m.Text)
	}
}

// Signed is the answer to Authenticate.
func (s *Session) Signed(now time.Time, ev *nostr.Event, err error) []Action {
	if a := s.requests.auth; a.state == authSigning {
		if err := a.signed(ev, err); err != nil {
			s.repair.authenticated(false, err.Error())
		}
	}
	return s.flush(now)
}

// SetLoaded is the answer to LoadSet. With an error or a nil set the query is fetched by pages.
func (s *Session) SetLoaded(now time.Time, id QueryID, set *negentropy.Set, err error) []Action {
	s.history.setLoaded(id, set, err)
	return s.flush(now)
}

// Checked is the answer to Missing. Ids in later are requested from another relay and checked again
// afterwards.
func (s *Session) Checked(now time.Time, id QueryID, ids, later []graspsync.EventID, err error) []Action {
	s.history.checked(id, ids, later, err)
	return s.flush(now)
}

// Unsent reports that a request was not sent because it exceeds the maximum message size.
func (s *Session) Unsent(now time.Time, id string, size int, reason string) []Action {
	if x, ok := s.requests.subs[id]; ok {
		s.repair.unsent(x, size, reason)
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
	s.out.do(Strike{Reason: reason, Last: len(s.strikes) == s.cfg.MaxStrikes})
}

// Tick handles expired deadlines.
func (s *Session) Tick(now time.Time) []Action {
	for _, x := range s.requests.subs.late(now) {
		switch {
		case !s.requests.sent(x): // it ended together with another request
		case x.kind == reqNeg:
			s.requests.drop(x, true)
			s.history.negSilent(x)
		case x.kind == reqProbe:
			s.requests.unanswered.failed(now, x, s.requests.next)
			s.repair.probeFailed(x, "no answer in time", true)
		default:
			s.requests.unanswered.failed(now, x, s.requests.next)
			s.history.fail(x, "no answer in time")
		}
	}
	if s.requests.auth.late(now) {
		s.repair.authenticated(false, "authentication got no answer")
	}
	s.history.expire(now)
	return s.flush(now)
}

// NextWake returns the time of the next Tick, or false.
func (s *Session) NextWake() (next time.Time, ok bool) {
	var w wake
	s.requests.wake(&w)
	s.history.wake(&w)
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

// Excuse extends all deadlines of answers by d, for a time in which no message was read.
func (s *Session) Excuse(d time.Duration) { s.requests.excuse(d) }
