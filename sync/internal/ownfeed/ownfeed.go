// Package ownfeed is the protocol state machine of the connection to the own relay, if that is a
// separate process. It keeps a standing subscription for events that change the sync targets, and
// reads stored events to the end. A [Feed] only decides: the caller passes events in and sends the
// returned messages.
//
// The subscription opens before the first reading, so no event is lost between them. The first
// reading has no since. Later readings reach back to find events stored while the connection was
// down, or missed by a subscription that ended silently.
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
	// ErrEnded reports that the relay ended or refused a subscription.
	ErrEnded = errors.New("own relay ended a subscription")
	// ErrSilent reports that the relay did not answer in time.
	ErrSilent = errors.New("own relay does not answer")
	// ErrEndless reports an answer of more than MaxPage events.
	ErrEndless = errors.New("own relay sent too many events")
)

// Config contains the limits of a [Feed]. All fields must be set.
type Config struct {
	Overlap   time.Duration // reach of a reading behind the last sign of life
	Recheck   time.Duration // time between two readings of recent events
	Idle      time.Duration // maximum time between two messages of an answer
	Total     time.Duration // maximum time for one page
	PageLimit int           // limit of a page request, in events
	MaxPage   int           // maximum events accepted in one page
}

// Kinds returns the kinds of the feed: announcements, root events, deletions and requests to
// vanish. States (30618) cannot change a filter, and updates of pull requests (1619) tag an event
// that is already followed.
func Kinds() []int { return []int{30617, 1617, 1618, 1621, 5, 62} }

// maxSpans is the maximum number of unfinished readings.
const maxSpans = 4

// leastPage is the page size in events that every relay supports.
const leastPage = 5

// span is a part of the past that must be read.
type span struct {
	since nostr.Timestamp // 0: no lower bound
	until int64           // everything newer was read; 0: nothing was read
}

// Feed is the state over all connections. Make one with [New].
type Feed struct {
	cfg      Config
	filter   nostr.Filter
	match    *filters.Matcher
	spans    []span // newest first
	pageSize int
	first    bool // the first reading has ended

	// Fields of the connection.
	number    int
	live      string // id of the standing subscription
	open      bool   // live got its EOSE
	page      string // subscription id of the current page, "" if none
	walk      *filters.Walk
	inPage    int
	noticed   bool
	events    int // events of this reading
	gaps      int
	idleBy    time.Time
	totalBy   time.Time
	recheckAt time.Time
}

// New returns a feed that has read no events.
func New(cfg Config) *Feed {
	f := nostr.Filter{Kinds: Kinds()}
	return &Feed{
		cfg: cfg, filter: f, match: filters.Compile([]nostr.Filter{f}),
		spans: []span{{}},
	}
}

// Result contains the consequences of one call.
type Result struct {
	Send  []wire.Request
	Event graspsync.Event // event of the feed; its id is not verified
	Live  bool            // Event is new on the relay
	// Read reports the end of a reading that returned Events events. Gaps is the number of seconds
	// with more events than a page.
	Read   bool
	Events int
	Gaps   int
	// Err ends the connection.
	Err error
}

// Connected starts a connection.
func (f *Feed) Connected(now time.Time) Result {
	f.number, f.open, f.events, f.gaps = 0, false, 0, 0
	f.live = f.next()
	f.wait(now)
	return Result{Send: []wire.Request{f.req(f.live, filters.Live(f.filter))}}
}

// Lost ends a connection. alive is the time of its last sign of life, zero if none. The progress of
// readings is kept.
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

// missedSince schedules a reading from shortly before t on.
func (f *Feed) missedSince(t time.Time) {
	since := max(1, nostr.Timestamp(t.Add(-f.cfg.Overlap).Unix()))
	for i := range f.spans {
		if s := &f.spans[i]; s.until == 0 {
			s.since = min(s.since, since) // 0 has no lower bound
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

// NextWake returns the time of the next Tick, or false if no deadline is set.
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

// Tick handles an expired deadline.
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

// Receive handles a message of the relay.
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
	if f.noticed && f.inPage == 0 { // some relays report a failed query with a NOTICE
		return Result{Err: fmt.Errorf("%w: answered with a NOTICE and no events", ErrEnded)}
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

// read starts the first span.
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
