package sync

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/outage"
	"github.com/graspsync/graspsync/internal/seldom"
)

// report is what everybody tells what has happened: it is counted, told to the observer, and
// a line of the log where there is one to spare.
type telemetry struct {
	*counters
	*observer // nil: there is nobody to tell
	says      says
	log       *slog.Logger
	states    *eventLog
}

func newTelemetry(cfg Config) *telemetry {
	c := &counters{}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	return &telemetry{counters: c, observer: newObserver(cfg, c), log: cfg.Logger, states: newEventLog()}
}

// say logs what became of an event, for whoever looks for one.
func (r *telemetry) say(msg string, in graspsync.Incoming, more ...any) {
	if !r.log.Enabled(context.Background(), slog.LevelDebug) {
		return
	}
	r.log.Debug(msg, append([]any{keyEvent, in.Event.ID, "kind", in.Event.Kind, "source", in.Source.Kind.String(),
		keyRelay, in.Source.Relay.String()}, more...)...)
}

// rejected says, and remembers, that the policy does not want an event, or not now.
func (r *telemetry) rejected(in graspsync.Incoming, is EventCode, v graspsync.Verdict) {
	r.reject(v.Reason)
	detail := graspsync.PrintableAtMost(v.Detail, graspsync.MaxDetail)
	r.states.note(in, EventState{Is: is, Reason: v.Reason, Detail: detail, Rule: ruleOf(v.DependsOn)})
	more := []any{keyReason, graspsync.Printable(v.Reason)}
	if detail != "" {
		more = append(more, "detail", detail)
	}
	r.say("event rejected", in, more...)
}

// Whose code panicked.
const (
	whoseStore     = "store"
	whoseTransport = "transport"
	whoseIndex     = "index"
	whosePipeline  = "pipeline"
)

// panickedIn counts a panic of ours that was contained. It is a bug, and says where it is.
func (r *telemetry) panickedIn(whose string, p any) {
	r.panicked(whose)
	defer func() { _ = recover() }() // it may be the embedder's logger that panics
	r.log.Error("panic while an event was taken in", "in", whose, keyErr, fmt.Sprint(p), keyStack, string(debug.Stack()))
}

// contain runs what belongs to a connection. A panic is a bug of ours or of the Transport's, but
// whatever a relay did to provoke it must cost no more than this connection: it becomes an
// error.
func (r *telemetry) contain(u graspsync.RelayURL, f func()) (err error) {
	defer func() {
		if p := recover(); p != nil {
			r.panicked("connection")
			r.log.Error("panic in relay connection", keyRelay, u.String(),
				keyErr, fmt.Sprint(p), keyStack, string(debug.Stack()))
			err = fmt.Errorf("internal error: %v", p)
		}
	}()
	f()
	return nil
}

// drop counts what a bound took, and tells of it.
func (r *telemetry) drop(reason string, n int) {
	if n > 0 {
		r.observe(Dropped{Reason: reason, Count: n})
	}
	r.counters.drop(reason, n)
}

// mayLog reports whether a line with a stranger's words may be logged now.
func (r *telemetry) mayLog(u graspsync.RelayURL, c logClass) bool {
	return r.says.May(logKey{u.HostPort().Host, c}, time.Now())
}

// counters are the totals over all relays. The zero value is ready.
type counters struct {
	received, duplicates, verified, failed, held, forged atomic.Uint64

	sources [graspsync.Daily + 1]atomic.Uint64  // newly stored, by source
	results [graspsync.Failed + 1]atomic.Uint64 // by what the Store did

	mu sync.Mutex
	// guarded by mu
	rejected map[string]uint64 // by reason; a policy's reasons are constants
	dropped  map[string]uint64 // by bound
	panics   map[string]uint64 // by whose code it was
	learned  map[string]uint64 // by name of the fact

	failing outage.Table
}

func (c *counters) outcome(k graspsync.SourceKind, r graspsync.Result) {
	c.results[r].Add(1)
	if r == graspsync.Stored && int(k) < len(c.sources) {
		c.sources[k].Add(1)
	}
}

// maxReasons bounds the reasons told apart, should a policy make them up.
const maxReasons = 100

func (c *counters) reject(reason string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, ok := c.rejected[reason]; !ok && len(c.rejected) >= maxReasons {
		reason = "other"
	}
	increase(&c.rejected, reason, 1)
}

func (c *counters) drop(reason string, n int) {
	if n == 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	increase(&c.dropped, reason, n)
}

// learnedFact counts what relays teach; the names are few and ours.
func (c *counters) learnedFact(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	increase(&c.learned, name, 1)
}

// recovered, deferred, turns a panic of the embedder's code into an error, and counts it. It notes
// whether the call failed. whose is the dependency, and after a space the operation, if that may
// fail while others work.
func (c *counters) recovered(err *error, whose string) {
	if p := recover(); p != nil {
		part, _, _ := strings.Cut(whose, " ")
		*err = fmt.Errorf("%s panicked: %s", part, graspsync.Printable(fmt.Sprint(p)))
		c.panicked(part)
	}
	c.depends(whose, *err)
}

// depends notes whether a call to a dependency failed. That a call was canceled, and what an error says
// of one request only, is no failure.
func (c *counters) depends(whose string, err error) {
	switch {
	case c == nil, errors.Is(err, context.Canceled):
	case errors.Is(err, ErrIncomplete), errors.Is(err, ErrCannotRemove), errors.Is(err, errSetTooLarge):
		c.failing.Note(whose, nil)
	default:
		c.failing.Note(whose, err)
	}
}

// panicked counts a panic that was contained, by whose code it was.
func (c *counters) panicked(whose string) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	increase(&c.panics, whose, 1)
}

func increase(m *map[string]uint64, key string, n int) {
	if *m == nil {
		*m = make(map[string]uint64)
	}
	(*m)[key] += uint64(n)
}

// bySource counts what was newly stored by the way it came.
func (c *counters) bySource() map[string]uint64 {
	out := make(map[string]uint64, len(c.sources))
	for k := range c.sources {
		out[graspsync.SourceKind(k).String()] = c.sources[k].Load()
	}
	return out
}

// reasons fills in what is counted by name.
func (c *counters) reasons(s *EventStatus) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, m := range []struct {
		to   *map[string]uint64
		from map[string]uint64
	}{{&s.Rejected, c.rejected}, {&s.Dropped, c.dropped}, {&s.Panics, c.panics}, {&s.Learned, c.learned}} {
		*m.to = make(map[string]uint64, len(m.from))
		maps.Copy(*m.to, m.from)
	}
}

// class says what a line of the log is about that holds a stranger's words. There
// is at most one a minute of each class and host, however many relays a host has.
type logClass uint8

const (
	classNotice logClass = iota
	classRefusal
	classRateLimit
	classHostile
	classFailed // attempts
	classLost
	classBatch
	classLearned
	classAside
	classGap
	classLastingGap
	classIncomplete
)

// says remembers when what was logged.
type says struct{ seldom.Lines[logKey] }

type logKey struct {
	host  string
	class logClass
}
