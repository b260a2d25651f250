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

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/outage"
	"github.com/graspsync/graspsync/limit"
)

// telemetry counts, observes and logs events of the manager.
type telemetry struct {
	*counters
	*observer             // nil without Config.Observe
	says      *limit.Rate // log lines with remote text: one per minute, host and class
	log       *slog.Logger
	states    *eventLog
}

func newTelemetry(cfg Config) *telemetry {
	c := &counters{}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	return &telemetry{counters: c, observer: newObserver(cfg, c), says: limit.NewRate(1./60, 1, 10_000), log: cfg.Logger, states: newEventLog()}
}

// say logs a message about an event at debug level.
func (r *telemetry) say(msg string, in graspsync.Incoming, more ...any) {
	if !r.log.Enabled(context.Background(), slog.LevelDebug) {
		return
	}
	r.log.Debug(msg, append([]any{keyEvent, in.Event.ID, "kind", in.Event.Kind, "source", in.Source.Kind.String(),
		keyRelay, in.Source.Relay.String()}, more...)...)
}

// rejected counts, records and logs that the Policy rejected or deferred an event.
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

// Origins of a panic.
const (
	whoseStore     = "store"
	whoseTransport = "transport"
	whosePipeline  = "pipeline"
)

// panickedIn counts and logs a recovered panic in own code.
func (r *telemetry) panickedIn(whose string, p any) {
	r.panicked(whose)
	defer func() { _ = recover() }() // the embedder's logger may panic
	r.log.Error("panic while processing an event", "component", whose, keyErr, fmt.Sprint(p), keyStack, string(debug.Stack()))
}

// contain runs code of a connection. A panic is a bug in own code or in the Transport. It becomes
// an error and ends this connection only.
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

// mayLog reports whether a line that contains remote text may be logged now.
func (r *telemetry) mayLog(u graspsync.RelayURL, c logClass) bool {
	return r.says.Allow(limit.Stranger{ID: u.HostPort().Host + " " + string(c)}, 1)
}

// counters are the totals of all relays. The zero value is ready.
type counters struct {
	received, duplicates, verified, failed, held, forged atomic.Uint64

	sources [graspsync.Daily + 1]atomic.Uint64  // newly stored, by source
	results [graspsync.Failed + 1]atomic.Uint64 // by result of the Store

	mu sync.Mutex
	// guarded by mu
	rejected map[string]uint64 // by reason; a policy's reasons are constants
	dropped  map[string]uint64 // by limit
	panics   map[string]uint64 // by origin
	learned  map[string]uint64 // by name of the fact

	failing outage.Table
}

func (c *counters) outcome(k graspsync.SourceKind, r graspsync.Result) {
	c.results[r].Add(1)
	if r == graspsync.Stored && int(k) < len(c.sources) {
		c.sources[k].Add(1)
	}
}

// maxReasons is the maximum number of distinct reasons of a Policy that are counted.
const maxReasons = 100

func (c *counters) reject(reason string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, ok := c.rejected[reason]; !ok && len(c.rejected) >= maxReasons {
		reason = "other"
	}
	increase(&c.rejected, reason, 1)
}

// drop counts n items dropped by a limit.
func (c *counters) drop(reason string, n int) {
	if n <= 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	increase(&c.dropped, reason, n)
}

func (c *counters) learnedFact(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	increase(&c.learned, name, 1)
}

// recovered is deferred around calls of the embedder's code. It turns a panic into an error, counts
// the panic, and records whether the call failed. whose names the dependency. A space and the
// operation follow if other operations of the dependency may still work.
func (c *counters) recovered(err *error, whose string) {
	if p := recover(); p != nil {
		part, _, _ := strings.Cut(whose, " ")
		*err = fmt.Errorf("%s panicked: %s", part, graspsync.Printable(fmt.Sprint(p)))
		c.panicked(part)
	}
	c.depends(whose, *err)
}

// depends records whether a call of a dependency failed. A canceled call and an error about a
// single request do not count as failures.
func (c *counters) depends(whose string, err error) {
	switch {
	case c == nil, errors.Is(err, context.Canceled):
	case errors.Is(err, ErrIncomplete), errors.Is(err, ErrCannotRemove), errors.Is(err, errSetTooLarge):
		c.failing.Note(whose, nil)
	default:
		c.failing.Note(whose, err)
	}
}

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

func (c *counters) bySource() map[string]uint64 {
	out := make(map[string]uint64, len(c.sources))
	for k := range c.sources {
		out[graspsync.SourceKind(k).String()] = c.sources[k].Load()
	}
	return out
}

// reasons copies the counts by name into a status.
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

// logClass is the subject of log lines that contain remote text. For each class and host at most
// one line per minute is logged.
type logClass string

const (
	classNotice     logClass = "notice"
	classRefusal    logClass = "refusal"
	classRateLimit  logClass = "rate limit"
	classHostile    logClass = "hostile"
	classFailed     logClass = "failed" // attempts
	classLost       logClass = "lost"
	classBatch      logClass = "batch"
	classLearned    logClass = "learned"
	classAside      logClass = "aside"
	classGap        logClass = "gap"
	classLastingGap logClass = "lasting gap"
	classIncomplete logClass = "incomplete"
)
