package session

import (
	"maps"
	"time"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/sync/internal/negentropy"
	"github.com/graspsync/graspsync/sync/internal/plan"
	"github.com/graspsync/graspsync/sync/internal/relaylimits"
	"github.com/graspsync/graspsync/sync/internal/standing"
	"github.com/graspsync/graspsync/sync/wire"
)

// Config holds the constants of a [Session]. All numbers and durations must be set.
type Config struct {
	Historic     int                       // historic requests open at once
	Reconciling  int                       // NIP-77 sessions open at once
	PageLimit    int                       // events asked for in one page
	PageSize     int                       // largest page the relay ever gave, 0 if unknown
	MaxPage      int                       // events taken in one page, whatever was asked for
	IDChunk      int                       // ids asked for in one request
	NegFrame     int                       // bytes of a NIP-77 message that we send, before hex
	NegRounds    int                       // messages of one reconciliation
	NegIDs       int                       // ids taken from one reconciliation; twice as many at its end
	Limits       relaylimits.Limits        // what the relay takes, as far as it is known
	SetAside     []relaylimits.Value       // which it never takes
	Suspects     map[relaylimits.Form]bool // over which it hung up; true: it is believed to refuse them
	Auth         bool                      // there is a key to authenticate with (NIP-42)
	OpenTimeout  time.Duration             // before the next request is opened without an answer
	FirstNeg     time.Duration             // for the first answer to NEG-OPEN
	NegTimeout   time.Duration             // for a reconciliation in all
	FirstAnswer  time.Duration             // for the first message of an answer, at least IdleTimeout
	IdleTimeout  time.Duration             // between two messages of an answer
	TotalTimeout time.Duration             // for an answer in all
	Cooldown     time.Duration             // without new requests after a rate limit; it doubles up to an hour
	Cooled       Cooling                   // the last time without, of an earlier connection
	GapAge       time.Duration             // how long a live filter must have been open to have missed an event
	MaxStrikes   int                       // proofs of hostility within an hour
}

// Session is the state of the conversation. Make one with [New]. It is not safe
// for concurrent use. It tells each message to the part that it concerns; what the
// parts want done they put into out. They call in one direction: repair calls history
// and requests, history calls requests, and all of them ask terms.
type Session struct {
	cfg      *Config // read-only
	out      *outbox
	terms    *terms
	requests *requests
	history  *history
	repair   *repair
	strikes  []time.Time // proofs of hostility
}

// New returns a session for a connection that was just made.
func New(cfg Config) *Session {
	s := &Session{cfg: &cfg, out: &outbox{}}
	s.terms = newTerms(s.cfg, s.out)
	s.requests = newRequests(s.cfg, s.out, s.terms)
	s.history = newHistory(s.cfg, s.out, s.terms, s.requests)
	s.repair = &repair{terms: s.terms, requests: s.requests, history: s.history}
	s.SetLimits(cfg.Limits, cfg.SetAside)
	s.Suspect(cfg.Suspects)
	return s
}

// outbox holds what is to be done.
type outbox struct{ actions []Action }

func (o *outbox) do(a Action) { o.actions = append(o.actions, a) }

func (o *outbox) take() []Action {
	all := o.actions
	o.actions = nil
	return all
}

// flush opens what may be opened now and returns all actions.
func (s *Session) flush(now time.Time) []Action {
	switch f := &s.requests.fruitless; {
	case f.hung(now):
		s.out.do(Hangup{Reason: "requests get no answer", Hung: true})
		return s.out.take()
	case f.over(now, s.requests.auth.again):
		s.out.do(Hangup{Reason: "all requests are refused"})
		return s.out.take()
	}
	for more := true; more; more = s.repair.refuseUnasked(now) || s.repair.settleDoubted(now) {
		s.repair.bisectNext()
	}
	s.requests.open(now)
	return s.out.take()
}

// SetLimits replaces what is believed about the relay, and the values that are set
// aside: some of it has expired. What is open stays as it is.
func (s *Session) SetLimits(t relaylimits.Limits, aside []relaylimits.Value) {
	s.requests.expect(t)
	s.history.reconciling.offered = !t.NoNegentropy
	s.terms.set(t, aside)
}

// Suspect replaces the forms over which the relay hung up: some of that has expired.
func (s *Session) Suspect(forms map[relaylimits.Form]bool) {
	s.requests.suspects.forms = maps.Clone(forms)
}

// Unanswered returns the forms of the requests that were sent since then and got no answer.
func (s *Session) Unanswered(since time.Time) []relaylimits.Forms {
	return s.requests.suspects.unanswered(s.requests.subs, since)
}

// Room says how many ids the relay may be found to have and we not, of what the next SetLoaded is about and its parts.
func (s *Session) Room(ids int) { s.history.room = ids }

// Granted returns how much of that is taken by reconciliations that are under way, or of which not all that was found was asked for.
func (s *Session) Granted() int { return s.history.reconciling.granted + s.history.reconciling.left }

// Follow opens a live subscription.
func (s *Session) Follow(now time.Time, live plan.LiveID, fs standing.Filters) []Action {
	s.requests.follow(&request{kind: reqLive, live: live, standing: fs})
	return s.flush(now)
}

// FollowLast opens a live subscription that comes last: it has a place that nothing else
// needs, and gives it up when something does.
func (s *Session) FollowLast(now time.Time, live plan.LiveID, fs standing.Filters) []Action {
	s.requests.follow(&request{kind: reqLive, live: live, standing: fs, last: true})
	return s.flush(now)
}

// Unfollow closes a live subscription, but not before those stand that were asked
// for earlier: they may be what replaces it.
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

// Cursors returns how far the batches got that are under way.
func (s *Session) Cursors() map[plan.BatchID][]plan.Cursor { return s.history.cursors() }

// Receive takes in a message of the relay.
func (s *Session) Receive(now time.Time, m wire.Message) []Action {
	s.history.now = now
	s.requests.openingOver(now)
	if x, ok := s.requests.subs[m.Sub]; ok {
		s.requests.suspects.heard(x)
	}
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
		s.onOK(now, m)
	}
	s.requests.fruitless.heard(s.requests.next)
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
	s.requests.fruitless.answers(x)
	if x.kind == reqProbe {
		s.repair.probed(x, true, true)
		return
	}
	if x.kind == reqNeg {
		s.strike(now, "event that was not asked for")
		return
	}
	matches, similar := x.suits(m)
	if !similar {
		s.strike(now, "event that was not asked for")
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
	s.requests.fruitless.answers(x)
	switch x.kind {
	case reqLive:
		s.requests.lives.stands(x, now)
	case reqPage:
		s.history.endPage(x, m.Hint)
	case reqIDs:
		s.history.endIDs(x)
	case reqProbe:
		s.repair.probed(x, !x.noticed, true)
	}
}

func (s *Session) onClosed(now time.Time, m wire.Message) {
	x, ok := s.requests.subs[m.Sub]
	if !ok {
		s.lateRefusal(now, m, wire.ClassifyClosed(m.Text))
		return
	}
	why := wire.ClassifyClosed(m.Text)
	if x.kind == reqNeg {
		why = wire.ClassifyNegErr(m.Text, 0)
	}
	s.repair.refused(now, x, why, m.Text, false)
}

func (s *Session) onNegMsg(now time.Time, m wire.Message) {
	if x, ok := s.requests.subs[m.Sub]; ok && x.kind == reqNeg {
		s.requests.answered(x)
		s.requests.fruitless.answers(x)
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
		s.terms.learn(relaylimits.NegentropyMax, m.Max, m.Text)
	}
	s.repair.refused(now, x, why, m.Text, false)
}

// lateRefusal takes in the refusal of a request that was given up by then: what the relay
// says of its rate holds all the same.
func (s *Session) lateRefusal(now time.Time, m wire.Message, why wire.Refusal) {
	if s.requests.issued(m.Sub) && why == wire.RefusalRateLimited {
		s.requests.cool(now, m.Text)
	}
}

// onNotice takes in a NOTICE. A refusal is an answer to the request that it is about; other
// words are only remembered, because some relays follow them with an EOSE.
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
		if x.kind != reqNeg { // an answer has begun
			x.idleBy = now.Add(s.cfg.IdleTimeout)
		}
		s.requests.answered(x)
		s.out.do(Notice{Text: m.Text})
	default:
		s.repair.refused(now, x, why, m.Text, true)
	}
}

func (s *Session) onOK(now time.Time, m wire.Message) {
	if a := s.requests.auth; a.state == authSent && m.ID == a.id {
		if m.Accepted || wire.ClassifyClosed(m.Text) != wire.RefusalRestricted {
			a.mayPass(now)
		}
		s.repair.authenticated(m.Accepted, m.Text)
	}
}

// Signed answers Authenticate.
func (s *Session) Signed(now time.Time, ev *nostr.Event, err error) []Action {
	if a := s.requests.auth; a.state == authSigning {
		if err := a.signed(ev, err); err != nil {
			s.repair.authenticated(false, err.Error())
		}
	}
	return s.flush(now)
}

// SetLoaded answers LoadSet. With an error, or without a set, pages are used.
func (s *Session) SetLoaded(now time.Time, id QueryID, set *negentropy.Set, err error) []Action {
	s.history.now = now
	s.history.setLoaded(id, set, err)
	return s.flush(now)
}

// Checked answers Missing: ids are those that we do not have. Those in later are being
// asked for of somebody else, and are asked about again when the ids have come.
func (s *Session) Checked(now time.Time, id QueryID, ids, later []graspsync.EventID, err error) []Action {
	s.history.checked(id, ids, later, err)
	return s.flush(now)
}

// Unsent takes back a request that is larger than what may be sent.
func (s *Session) Unsent(now time.Time, id string, size int, reason string) []Action {
	if x, ok := s.requests.subs[id]; ok {
		s.repair.unsent(x, size, reason)
	}
	return s.flush(now)
}

// Forged counts an event of this relay whose id or signature was wrong.
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

// Tick does what has become due.
func (s *Session) Tick(now time.Time) []Action {
	for _, x := range s.requests.subs.late(now) {
		switch {
		case !s.requests.sent(x): // ended along with another
		case x.kind == reqNeg:
			s.requests.drop(x, true)
			s.history.negSilent(x, now)
		case x.kind == reqProbe:
			s.requests.failed(now, x, wire.RefusalOther)
			s.repair.probeFailed(x, "no answer in time", true)
		default:
			s.requests.failed(now, x, wire.RefusalOther)
			s.history.fail(x, "no answer in time")
		}
	}
	if a := s.requests.auth; a.late(now) {
		if a.state != authSigning { // else it was not the relay
			a.mayPass(now)
		}
		s.repair.authenticated(false, "authentication got no answer")
	}
	s.history.expire(now)
	return s.flush(now)
}

// NextWake returns when Tick is due; false if nothing is waited for.
func (s *Session) NextWake() (next time.Time, ok bool) {
	var w wake
	s.requests.wake(&w)
	s.history.wake(&w)
	return w.at, w.ok
}

// wake is the earliest of some times.
type wake struct {
	at time.Time
	ok bool
}

func (w *wake) consider(t time.Time) {
	if !w.ok || t.Before(w.at) {
		w.at, w.ok = t, true
	}
}

// Excuse puts all deadlines of answers off by d: we were not reading.
func (s *Session) Excuse(d time.Duration) { s.requests.excuse(d) }

// Open reports how many requests are open or wait to be: for tests and status.
func (s *Session) Open() (live, historic, waiting int) {
	return s.requests.subs.live(), s.requests.historic, len(s.requests.waiting)
}

// Progress is what is under way on a connection.
type Progress struct {
	Queries     int // filters of history that have not ended
	Requests    int // open requests for pages and ids
	Reconciling int // queries that reconcile
}

// Progress returns what is under way.
func (s *Session) Progress() Progress {
	return Progress{Queries: len(s.history.queries), Requests: s.requests.historic, Reconciling: s.history.reconciling.active}
}
