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
	"github.com/graspsync/graspsync/limit"
)

type telemetry struct {
	logRate *limit.Rate // log lines with remote text: one per minute, host and class
	log     *slog.Logger
	since   time.Time
	tell    func(Observation)
	queue   chan Observation // nil without Config.Observe

	received, verified, failed, held, forged atomic.Uint64

	sources [graspsync.Daily + 1]atomic.Uint64  // newly stored, by source
	results [graspsync.Failed + 1]atomic.Uint64 // by result of the Store

	mu sync.Mutex
	// guarded by mu
	rejected map[string]uint64                           // by reason; a policy's reasons are constants
	dropped  map[string]uint64                           // by limit
	panics   map[string]uint64                           // by origin
	learned  map[string]uint64                           // by name of the fact
	states   *limit.Table[graspsync.EventID, EventState] // the last known states of events that are not stored

	failing outage.Table
}

func newTelemetry(cfg Config) *telemetry {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	t := &telemetry{
		rejected: make(map[string]uint64), dropped: make(map[string]uint64), panics: make(map[string]uint64), learned: make(map[string]uint64),
		logRate: limit.NewRate(1./60, 1, 10_000), log: cfg.Logger, since: time.Now(), tell: cfg.Observe,
		states: limit.NewTable[graspsync.EventID, EventState](maxStates, maxStateBytes),
	}
	if t.tell != nil {
		t.queue = make(chan Observation, cfg.constants.ObserveQueue)
	}
	return t
}

func (t *telemetry) logEvent(msg string, in graspsync.Incoming, more ...any) {
	if !t.log.Enabled(context.Background(), slog.LevelDebug) {
		return
	}
	t.log.Debug(msg, append([]any{keyEvent, in.Event.ID, "kind", in.Event.Kind, "source", in.Source.Kind.String(),
		keyRelay, in.Source.Relay.String()}, more...)...)
}

// refuse counts, records and logs that the Policy rejected or deferred an event.
func (t *telemetry) refuse(in graspsync.Incoming, is StateCode, v graspsync.Verdict) {
	t.reject(v.Reason)
	detail := graspsync.PrintableAtMost(v.Detail, graspsync.MaxDetail)
	t.record(in, EventState{Is: is, Reason: v.Reason, Detail: detail})
	more := []any{keyReason, graspsync.Printable(v.Reason)}
	if detail != "" {
		more = append(more, "detail", detail)
	}
	t.logEvent("event rejected", in, more...)
}

// Origins of a panic.
const (
	whoseStore     = "store"
	whoseTransport = "transport"
	whosePipeline  = "pipeline"
)

func (t *telemetry) panickedIn(whose string, p any) {
	t.panicked(whose)
	defer func() { _ = recover() }() // the embedder's logger may panic
	t.log.Error("panic", "component", whose, keyErr, fmt.Sprint(p), keyStack, string(debug.Stack()))
}

// contain runs own code and turns a panic into an error.
func (t *telemetry) contain(whose string, f func()) (err error) {
	defer func() {
		if p := recover(); p != nil {
			t.panickedIn(whose, p)
			err = fmt.Errorf("internal error: %v", p)
		}
	}()
	f()
	return nil
}

// remote logs a line that contains remote text, at most once a minute per host and message.
func (t *telemetry) remote(level slog.Level, u graspsync.RelayURL, msg string, args ...any) {
	if t.logRate.Allow(limit.Stranger{ID: u.HostPort().Host + " " + msg}, 1) {
		t.log.Log(context.Background(), level, msg, append([]any{keyRelay, u.String()}, args...)...)
	}
}

func (t *telemetry) outcome(k graspsync.SourceKind, result graspsync.Result) {
	t.results[result].Add(1)
	if result == graspsync.Stored && int(k) < len(t.sources) {
		t.sources[k].Add(1)
	}
}

// maxReasons is the maximum number of distinct reasons of a Policy that are counted.
const maxReasons = 100

func (t *telemetry) reject(reason string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, ok := t.rejected[reason]; !ok && len(t.rejected) >= maxReasons {
		reason = "other"
	}
	t.rejected[reason]++
}

func (t *telemetry) drop(reason string, n int) {
	if n > 0 {
		t.count(t.dropped, reason, n)
	}
}

func (t *telemetry) count(in map[string]uint64, key string, n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	in[key] += uint64(n)
}

// recovered is deferred around calls of the embedder's code. It turns a panic into an error, and
// records whether the call failed. whose is the name of the dependency, followed by a space and
// the operation if other operations may still work.
func (t *telemetry) recovered(err *error, whose string) {
	if p := recover(); p != nil {
		part, _, _ := strings.Cut(whose, " ")
		*err = fmt.Errorf("%s panicked: %s", part, graspsync.Printable(fmt.Sprint(p)))
		t.panicked(part)
	}
	t.depends(whose, *err)
}

// depends records whether a call of a dependency failed. An error about a single request does not
// count.
func (t *telemetry) depends(whose string, err error) {
	switch {
	case t == nil, errors.Is(err, context.Canceled):
	case errors.Is(err, ErrIncomplete), errors.Is(err, errSetTooLarge):
		t.failing.Record(whose, nil)
	default:
		t.failing.Record(whose, err)
	}
}

func (t *telemetry) panicked(whose string) {
	if t != nil {
		t.count(t.panics, whose, 1)
	}
}

func (t *telemetry) bySource() map[string]uint64 {
	out := make(map[string]uint64, len(t.sources))
	for k := range t.sources {
		out[graspsync.SourceKind(k).String()] = t.sources[k].Load()
	}
	return out
}

func (t *telemetry) reasons(s *EventStatus) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s.Rejected, s.Dropped = maps.Clone(t.rejected), maps.Clone(t.dropped)
	s.Panics, s.Learned = maps.Clone(t.panics), maps.Clone(t.learned)
}

// Codes of an [Observation], in addition to IsStored for a new event and IsRejected for an event that the
// Policy rejected or postponed.
const (
	BatchConfirmed StateCode = "confirmed" // a batch of requests has fetched all events of a relay, or has gaps
	RelayHostile   StateCode = "hostile"   // a connection was closed because the relay was hostile
)

// Observation is an occurrence reported to [Config.Observe].
type Observation struct {
	Is StateCode
	// Source is the source of the event, or the relay.
	Source graspsync.Source
	// Event is the event, which must not be changed. Of an event that the Store refused after it was
	// held, only the ID is set.
	Event  graspsync.Event
	Reason string // of the verdict, if the event was rejected
}

// dropObservations is the reason under which observations are counted that found no room in the
// queue.
const dropObservations = "observations"

func (t *telemetry) observe(what Observation) {
	if t.queue == nil {
		return
	}
	select {
	case t.queue <- what:
	default:
		t.drop(dropObservations, 1)
	}
}

func (t *telemetry) run(ctx context.Context) {
	for ctx.Err() == nil {
		select {
		case what := <-t.queue:
			if ctx.Err() != nil {
				t.drop(dropObservations, 1)
			} else if err := t.call(what); err != nil {
				t.log.Error("observer failed", keyErr, err)
			}
		case <-ctx.Done():
		}
	}
	t.drop(dropObservations, len(t.queue))
}

func (t *telemetry) call(what Observation) (err error) {
	defer t.recovered(&err, "observer")
	t.tell(what)
	return nil
}
