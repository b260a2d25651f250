package session

import (
	"slices"
	"strconv"
	"time"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/filters"
	"github.com/graspsync/graspsync/sync/internal/negentropy"
	"github.com/graspsync/graspsync/sync/internal/plan"
	"github.com/graspsync/graspsync/sync/wire"
)

// Config holds the constants of a [Session]. All numbers and durations must be set.
type Config struct {
	Historic     int           // historic requests open at once
	Reconciling  int           // NIP-77 sessions open at once
	PageLimit    int           // events asked for in one page
	PageSize     int           // largest page the relay ever gave, 0 if unknown
	MaxPage      int           // events taken in one page, whatever was asked for
	IDChunk      int           // ids asked for in one request
	NegFrame     int           // bytes of a NIP-77 message that we send, before hex
	NegRounds    int           // messages of one reconciliation
	NegIDs       int           // ids taken from one reconciliation
	Terms        Terms         // what the relay takes, as far as it is known
	SetAside     []Value       // which it never takes
	Auth         bool          // there is a key to authenticate with (NIP-42)
	OpenTimeout  time.Duration // before the next request is opened without an answer
	FirstNeg     time.Duration // for the first answer to NEG-OPEN
	NegTimeout   time.Duration // for a reconciliation in all
	FirstAnswer  time.Duration // for the first message of an answer, at least IdleTimeout
	IdleTimeout  time.Duration // between two messages of an answer
	TotalTimeout time.Duration // for an answer in all
	Cooldown     time.Duration // without new requests after a rate limit; it doubles up to an hour
	Cooled       Cooling       // the last time without, of an earlier connection
	GapAge       time.Duration // how long a live filter must have been open to have missed an event
	MaxStrikes   int           // proofs of hostility within an hour

}

// Session is the state of the conversation. Make one with [New]. It is not safe
// for concurrent use.
type Session struct {
	cfg *Config // read-only
	out *outbox

	next    uint64 // numbers subscriptions and queries
	batches map[plan.BatchID]*batch
	queries map[QueryID]*query
	subs    map[string]*sub
	lives   map[plan.LiveID][]*sub
	closing []closing

	opening      *sub   // sent last, not answered yet
	waiting      []*sub // to be opened, in order
	historic     int    // historic REQs that are open
	mostHistoric int    // of them
	negQueue     []*query
	negActive    int // queries between LoadSet and the end of reconciliation

	terms Terms
	// What was learned from refused live subscriptions.
	liveValues  int // as terms.MaxValues
	liveNoNotes bool
	idChunk     int // ids asked for in one request
	aside       map[Value]struct{}
	trial       *trial // under way
	held        []*sub // refused: repeated once it is known how
	tried       *sub   // the one of them that is bisected
	auth        *auth

	negentropy bool
	negDoubts  int // NEG-OPENs refused in words that may be about the filter
	pageSize   int // largest page the relay ever gave
	pace       pacing
	now        time.Time // of the last message
	liveFrom   int64     // opening time of the oldest live subscription
	strikes    []time.Time
	budgets    budgets
}

// New returns a session for a connection that was just made.
func New(cfg Config) *Session {
	out := &outbox{}
	s := &Session{
		cfg: &cfg, out: out, auth: &auth{cfg: &cfg, out: out},
		terms:        cfg.Terms,
		pageSize:     cfg.PageSize,
		mostHistoric: cfg.Historic,
		idChunk:      cfg.IDChunk,
		batches:      make(map[plan.BatchID]*batch),
		queries:      make(map[QueryID]*query),
		subs:         make(map[string]*sub),
		lives:        make(map[plan.LiveID][]*sub),
		aside:        make(map[Value]struct{}),
	}
	s.pace.last = cfg.Cooled
	s.SetTerms(cfg.Terms, cfg.SetAside)
	return s
}

// batch is a batch that is being fetched.
type batch struct {
	plan.Batch
	open    int // queries that have not ended
	cursors []plan.Cursor
	parts   [][]*query // of each query, ended ones included
	result  plan.Result
	report  Report
	splits  int // pages asked for to split seconds
}

// subKind says what a subscription is for.
type subKind uint8

const (
	subLive subKind = iota
	subPage
	subIDs
	subNeg
	subProbe
)

// sub is a request that was sent or waits to be sent.
type sub struct {
	kind      subKind
	id        string // given when it is sent
	number    uint64 // in it
	filters   []nostr.Filter
	match     *filters.Matcher
	live      plan.LiveID
	last      bool   // live: it gives way to all others
	order     uint64 // live: when it was asked for
	openAt    int64  // live: Unix time of its EOSE, 0 before
	q         *query
	payload   []byte                         // subNeg: of NEG-OPEN
	want      map[graspsync.EventID]struct{} // subIDs: not yet received
	asked     int                            // subIDs: how many there were
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

	openBy  time.Time // the next one may be opened
	idleBy  time.Time
	totalBy time.Time
}

// closing is a live subscription that is no longer wanted. It is closed when those
// stand that were asked for before order: they may be what replaces it.
type closing struct {
	sub   *sub
	order uint64
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
	s.nextTrial()
	s.open(now)
	return s.out.take()
}

func (s *Session) number() uint64 {
	s.next++
	return s.next
}

// Follow opens a live subscription.
func (s *Session) Follow(now time.Time, live plan.LiveID, fs []nostr.Filter) []Action {
	return s.follow(now, &sub{kind: subLive, live: live, filters: fs})
}

// FollowLast opens a live subscription that comes last: it has a place that nothing else
// needs, and gives it up when something does.
func (s *Session) FollowLast(now time.Time, live plan.LiveID, fs []nostr.Filter) []Action {
	return s.follow(now, &sub{kind: subLive, live: live, filters: fs, last: true})
}

func (s *Session) follow(now time.Time, x *sub) []Action {
	x.order = s.number()
	s.waiting = append(s.waiting, s.parts(x)...)
	return s.flush(now)
}

// Unfollow closes a live subscription, but not before those stand that were asked
// for earlier: they may be what replaces it.
func (s *Session) Unfollow(now time.Time, live plan.LiveID) []Action {
	for _, x := range slices.Clone(s.lives[live]) {
		if s.sent(x) {
			s.closing = append(s.closing, closing{sub: x, order: s.number()})
		} else {
			s.drop(x, false)
		}
	}
	return s.flush(now)
}

// Fetch starts a batch.
func (s *Session) Fetch(now time.Time, in plan.Batch) []Action {
	b := &batch{Batch: in, cursors: make([]plan.Cursor, len(in.Queries)), parts: make([][]*query, len(in.Queries))}
	s.batches[in.ID] = b
	var all []*query
	for i, q := range in.Queries {
		all = append(all, s.queriesFor(b, i, q)...)
	}
	for _, q := range all {
		s.begin(q)
	}
	if len(in.Queries) == 0 {
		delete(s.batches, in.ID)
		s.out.do(Done{Batch: in.ID})
	}
	s.reconcileNext()
	return s.flush(now)
}

// Abandon ends a batch without a report.
func (s *Session) Abandon(now time.Time, id plan.BatchID) []Action {
	if b, ok := s.batches[id]; ok {
		s.abandon(b)
	}
	return s.flush(now)
}

// Cursors returns how far the batches got that are under way.
func (s *Session) Cursors() map[plan.BatchID][]plan.Cursor {
	for _, q := range s.queries {
		q.noteCursor()
	}
	out := make(map[plan.BatchID][]plan.Cursor, len(s.batches))
	for id, b := range s.batches {
		out[id] = b.cursors
	}
	return out
}

// Receive takes in a message of the relay.
func (s *Session) Receive(now time.Time, m wire.Message) []Action {
	s.now = now
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
	return s.flush(now)
}

// SetLoaded answers LoadSet. With an error, or without a set, pages are used.
func (s *Session) SetLoaded(now time.Time, id QueryID, set *negentropy.Set, err error) []Action {
	s.now = now
	if q, ok := s.queries[id]; ok && q.state == qLoading {
		if s.mustAdapt(q.filter, s.queryBounds()) {
			s.readaptQuery(q) // it is not the set of what will be asked for
		} else {
			s.setLoaded(q, set, err)
		}
	}
	return s.flush(now)
}

// Checked answers Missing: ids are those that we do not have.
func (s *Session) Checked(now time.Time, id QueryID, ids []graspsync.EventID, err error) []Action {
	if q, ok := s.queries[id]; ok && q.state == qChecking {
		s.checked(q, ids, err)
	}
	return s.flush(now)
}

// Signed answers Authenticate.
func (s *Session) Signed(now time.Time, ev *nostr.Event, err error) []Action {
	if s.auth.state == authSigning {
		if err := s.auth.signed(ev, err); err != nil {
			s.authOver(false, err.Error())
		}
	}
	return s.flush(now)
}

func (s *Session) onOK(m wire.Message) {
	if s.auth.state == authSent && m.ID == s.auth.id {
		s.authOver(m.Accepted, m.Text)
	}
}

// authOver has what was refused repeated, or gives it up.
func (s *Session) authOver(accepted bool, text string) {
	s.auth.over(accepted, s.next)
	if accepted {
		return
	}
	for _, x := range slices.Clone(s.waiting) {
		if x.toAuth && slices.Contains(s.waiting, x) {
			s.final(x, wire.RefusalAuthRequired, text, false)
		}
	}
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

// issued reports whether we ever used a subscription id: what still comes for one
// that has ended is harmless.
func (s *Session) issued(id string) bool {
	if len(id) < 2 {
		return false
	}
	n, err := strconv.ParseUint(id[1:], 10, 64)
	return err == nil && n > 0 && n <= s.next
}
