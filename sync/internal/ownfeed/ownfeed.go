// Package ownfeed is the conversation with our own relay, where that is a separate
// process: a standing subscription to what changes what is wanted, and readings of
// what is stored, to their end. It decides only: a [Feed] is told what happened and
// says what to send.
//
// The subscription is opened before anything is read, so that nothing falls between
// the two. The first reading has no since; what was stored while there was no
// connection, and what a subscription that has silently ended did not bring, is
// found by readings that reach back a while.
package ownfeed

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/filters"
	"github.com/graspsync/graspsync/sync/wire"
)

// Errors that end a connection.
var (
	// ErrEnded: the relay ended, or refused, a subscription.
	ErrEnded = errors.New("own relay ended a subscription")
	// ErrSilent: it did not answer in time.
	ErrSilent = errors.New("own relay does not answer")
	// ErrEndless: it answers without end.
	ErrEndless = errors.New("own relay answers without end")
)

// Config holds the constants of a [Feed]. All of them must be set.
type Config struct {
	Overlap   time.Duration // how far a reading reaches back behind the last sign of life
	Recheck   time.Duration // between two readings of what is recent
	Idle      time.Duration // between two messages of an answer
	Total     time.Duration // for one page
	PageLimit int           // events asked for in one page
	MaxPage   int           // events taken in one page, whatever was asked for
}

// Kinds are what the feed is about: announcements, root events, deletions and
// requests to vanish. States (30618) can't change a filter, and updates of pull
// requests (1619) tag what is followed.
func Kinds() []int { return []int{30617, 1617, 1618, 1621, 5, 62} }

// maxSpans bounds the readings that were begun and not finished.
const maxSpans = 4

// leastPage is a page size that every relay can be trusted to have.
const leastPage = 5

// span is a part of the past that is still to be read.
type span struct {
	since nostr.Timestamp // 0: all
	until int64           // everything newer was read; 0: nothing was
}

// Feed is the state of the conversation over all connections. Make one with [New].
type Feed struct {
	cfg      Config
	filter   nostr.Filter
	match    *filters.Matcher
	spans    []span // the newest first
	pageSize int
	first    bool // the first reading has ended

	// Of the connection.
	number    int
	live      string // its subscription
	open      bool   // that one stands
	page      string // the subscription of the page under way, "" if none is
	walk      *filters.Walk
	inPage    int
	noticed   bool
	events    int // of this reading
	gaps      int
	idleBy    time.Time
	totalBy   time.Time
	recheckAt time.Time
}

// New returns a feed that has read nothing.
func New(cfg Config) *Feed {
	f := nostr.Filter{Kinds: Kinds()}
	return &Feed{
		cfg: cfg, filter: f, match: filters.Compile([]nostr.Filter{f}),
		spans: []span{{}},
	}
}

// Result is what follows from what happened.
type Result struct {
	Send  []wire.Request
	Event graspsync.Event // of the feed; its id was not checked
	Live  bool            // Event is new on the relay
	// Read: a reading has reached its end, having brought so many Events. Gaps counts
	// the seconds in it that hold more events than a page.
	Read   bool
	Events int
	Gaps   int
	// Err ends the connection.
	Err error
}

// Connected begins a connection, after the one before was lost.
func (f *Feed) Connected(now time.Time) Result {
	f.number, f.open, f.events, f.gaps = 0, false, 0, 0
	f.live = f.next()
	f.wait(now)
	return Result{Send: []wire.Request{f.req(f.live, filters.Live(f.filter))}}
}

// Lost ends a connection that last gave a sign of life at alive; zero if there was
// none. What was read is kept.
func (f *Feed) Lost(alive time.Time) {
	if f.walk != nil {
		f.spans[0].until = f.walk.Until()
		f.walk = nil
	}
	f.live, f.page = "", ""
	if !alive.IsZero() {
		f.missedSince(alive)
	}
}

// missedSince has everything read again that may have come since shortly before t.
func (f *Feed) missedSince(t time.Time) {
	since := max(1, nostr.Timestamp(t.Add(-f.cfg.Overlap).Unix()))
	for i := range f.spans {
		if s := &f.spans[i]; s.until == 0 {
			s.since = min(s.since, since) // 0 is all
			return
		}
	}
	f.spans = slices.Insert(f.spans, 0, span{since: since})
	if len(f.spans) > maxSpans {
		a, b := f.spans[1], f.spans[2]
		f.spans[2] = span{since: min(a.since, b.since), until: max(a.until, b.until)}
		f.spans = slices.Delete(f.spans, 1, 2)
	}
}

// Complete reports whether the first reading has ended.
func (f *Feed) Complete() bool { return f.first }

// NextWake returns when Tick is due; false if nothing is waited for.
func (f *Feed) NextWake() (time.Time, bool) {
	switch {
	case f.live == "":
		return time.Time{}, false
	case !f.open || f.page != "":
		if f.totalBy.Before(f.idleBy) {
			return f.totalBy, true
		}
		return f.idleBy, true
	}
	return f.recheckAt, true
}

// Tick does what has become due.
func (f *Feed) Tick(now time.Time) Result {
	at, ok := f.NextWake()
	if !ok || now.Before(at) {
		return Result{}
	}
	if !f.open || f.page != "" {
		return Result{Err: ErrSilent}
	}
	f.missedSince(now.Add(-f.cfg.Recheck))
	return Result{Send: f.read(now)}
}

// Receive takes in a message of the relay.
func (f *Feed) Receive(now time.Time, m wire.Message) Result {
	switch m.Type {
	case wire.TypeEvent:
		return f.onEvent(now, m)
	case wire.TypeEOSE:
		return f.onEOSE(now, m)
	case wire.TypeClosed:
		if m.Sub == f.live || m.Sub == f.page {
			return Result{Err: fmt.Errorf("%w: %s", ErrEnded, m.Text)}
		}
	case wire.TypeNotice:
		f.noticed = true
	}
	return Result{}
}

func (f *Feed) onEvent(now time.Time, m wire.Message) (r Result) {
	ours := f.match.Match(m.Event.Event)
	switch {
	case m.Sub == f.live:
		if ours {
			r.Event, r.Live = m.Event, f.open
		}
	case m.Sub == f.page && f.walk != nil:
		f.idleBy = now.Add(f.cfg.Idle)
		f.walk.Saw(m.Event.ID, m.Event.CreatedAt)
		if f.inPage++; f.inPage > f.cfg.MaxPage {
			return Result{Err: ErrEndless}
		}
		if ours {
			f.events++
			r.Event = m.Event
		}
	}
	return r
}

func (f *Feed) onEOSE(now time.Time, m wire.Message) Result {
	switch {
	case m.Sub == f.live && !f.open:
		f.open = true
		return Result{Send: f.read(now)}
	case m.Sub == f.page && f.walk != nil:
		return f.endPage(now, m.Hint)
	}
	return Result{}
}

func (f *Feed) endPage(now time.Time, hint wire.Hint) (r Result) {
	if f.noticed && f.inPage == 0 { // some relays report a failed query so
		return Result{Err: fmt.Errorf("%w: notice and nothing else", ErrEnded)}
	}
	r.Send = []wire.Request{{Type: wire.TypeClose, Sub: f.page}}
	step := f.walk.End(hint == wire.HintFinish, hint == wire.HintMore)
	f.pageSize = max(f.pageSize, f.walk.PageSize())
	if step == filters.StepMore {
		r.Send = append(r.Send, f.nextPage(now))
		return r
	}
	f.gaps += len(f.walk.Gaps())
	f.page, f.walk = "", nil
	f.spans = slices.Delete(f.spans, 0, 1)
	if len(f.spans) > 0 {
		r.Send = append(r.Send, f.read(now)...)
		return r
	}
	r.Read, r.Events, r.Gaps = true, f.events, f.gaps
	f.first, f.events, f.gaps = true, 0, 0
	f.recheckAt = now.Add(f.cfg.Recheck)
	return r
}

// read begins to read the first span.
func (f *Feed) read(now time.Time) []wire.Request {
	s := f.spans[0]
	filter := f.filter
	if s.since > 0 {
		filter = filters.Between(filter, &s.since, nil, 0)
	}
	f.walk = filters.NewWalk(filter, filters.WalkStart{
		Limit: f.cfg.PageLimit, PageSize: max(f.pageSize, leastPage), Until: s.until,
	})
	return []wire.Request{f.nextPage(now)}
}

func (f *Feed) nextPage(now time.Time) wire.Request {
	f.page, f.inPage, f.noticed = f.next(), 0, false
	f.wait(now)
	return f.req(f.page, f.walk.Next())
}

func (f *Feed) wait(now time.Time) {
	f.idleBy, f.totalBy = now.Add(f.cfg.Idle), now.Add(f.cfg.Total)
}

func (f *Feed) next() string {
	f.number++
	return "own" + strconv.Itoa(f.number)
}

func (f *Feed) req(sub string, filter nostr.Filter) wire.Request {
	return wire.Request{Type: wire.TypeReq, Sub: sub, Filters: []nostr.Filter{filter}}
}
