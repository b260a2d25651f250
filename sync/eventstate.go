package sync

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/limit"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/sync/internal/pending"
)

// EventCode classifies an event.
type EventCode string

// Codes of an [EventState].
const (
	IsStored     EventCode = "stored"
	IsHeld       EventCode = "held"       // by the Policy
	IsInFlight   EventCode = "in flight"  // being judged or saved
	IsFailing    EventCode = "failing"    // judging or saving failed and is retried
	IsWaiting    EventCode = "waiting"    // for its dependencies, see Detail
	IsPostponed  EventCode = "postponed"  // judged again later
	IsRejected   EventCode = "rejected"   // by the Policy
	IsRefused    EventCode = "refused"    // by the Store, or by the relay of the manager
	IsSuperseded EventCode = "superseded" // a newer version is stored
	IsDeleted    EventCode = "deleted"    // deleted by its author
	IsRemoved    EventCode = "removed"    // by moderation or expiry
	IsGone       EventCode = "gone"       // accepted once and no longer stored
	IsUnknown    EventCode = "unknown"    // never arrived, or no record is left
)

// EventState is the known state of one event.
type EventState struct {
	Now time.Time         `json:"now,omitzero"` // time of the answer
	ID  graspsync.EventID `json:"id"`
	Is  EventCode         `json:"is"`
	// Reason is the reason why the event is not stored, as in an OK message. Detail is the part
	// that concerns this event.
	Reason string `json:"reason,omitempty"`
	Detail string `json:"detail,omitempty"`
	// Rule is the subject of the [Config].Rules rule that blocks the event, see
	// [graspsync.OnRuleRemoved].
	Rule string `json:"rule,omitempty"`
	// At is the time of the change to Is, zero if unknown.
	At time.Time `json:"at,omitzero"`
	// Event is nil if only the id is known.
	Event *EventHead `json:"event,omitempty"`
	// Source is the way of arrival, as in [EventStatus].Sources, and Relay the relay.
	Source string             `json:"source,omitempty"`
	Relay  graspsync.RelayURL `json:"relay,omitzero"`
	// DeletedBy is a stored deletion (NIP-09) by the author.
	DeletedBy graspsync.EventID `json:"deleted_by,omitzero"`
	// Again reports whether the event is judged again later or after a change of a dependency.
	Again bool `json:"again,omitempty"`
	// Since is set for an unknown event: the time since which the states of all events are known,
	// zero if some were evicted.
	Since time.Time `json:"since,omitzero"`

	awaits []pending.Key
}

// EventHead contains the known fields of an event, without its id.
type EventHead struct {
	Kind       int              `json:"kind"`
	Author     graspsync.PubKey `json:"author,omitzero"`
	CreatedAt  time.Time        `json:"created_at,omitzero"`
	Identifier string           `json:"identifier,omitempty"` // of an addressable event
}

// Awaits reports whether an event is judged again when d is fulfilled. With
// [graspsync.OnRuleRemoved] it reports whether a rule blocks the event, also after a restart.
func (s EventState) Awaits(d graspsync.Dependency) bool {
	return slices.Contains(s.awaits, pending.KeyOf(d))
}

func headOf(ev graspsync.Event) *EventHead {
	h := &EventHead{Kind: ev.Kind, Author: ev.PubKey, CreatedAt: ev.CreatedAt.Time()}
	if nostr.IsAddressableKind(ev.Kind) {
		// A copy, because a part of the text would keep all of it in memory.
		h.Identifier = strings.Clone(graspsync.Clip(ev.Tags.GetD(), graspsync.MaxIdentifier+1))
	}
	return h
}

// event returns an event with the same address, for comparisons.
func (h *EventHead) event(id graspsync.EventID) (graspsync.Event, bool) {
	if h == nil || h.Author == (graspsync.PubKey{}) || len(h.Identifier) > graspsync.MaxIdentifier {
		return graspsync.Event{}, false
	}
	ev := &nostr.Event{ID: id.String(), PubKey: h.Author.String(), Kind: h.Kind, CreatedAt: nostr.Timestamp(h.CreatedAt.Unix())}
	if nostr.IsAddressableKind(h.Kind) {
		ev.Tags = nostr.Tags{{"d", h.Identifier}}
	}
	return graspsync.Event{Event: ev, ID: id, PubKey: h.Author}, true
}

const (
	maxStates     = 20_000
	maxStateBytes = 16 << 20
	stateBytes    = 512 // of a state without its texts
)

// eventLog contains the last known states of events that are not stored. It is safe for concurrent
// use.
type eventLog struct {
	since time.Time
	mu    sync.Mutex
	last  *limit.Table[graspsync.EventID, EventState] // guarded by mu
}

func newEventLog() *eventLog {
	return &eventLog{since: time.Now(), last: limit.NewTable[graspsync.EventID, EventState](maxStates, maxStateBytes)}
}

// note records the state of an event. The texts of s must be printable.
func (l *eventLog) note(in graspsync.Incoming, s EventState) {
	s.ID, s.Event, s.At = in.Event.ID, headOf(in.Event), time.Now()
	s.Source, s.Relay = in.Source.Kind.String(), in.Source.Relay
	l.put(s)
}

func (l *eventLog) put(s EventState) {
	who := limit.Stranger{} // all clients count as one stranger, because keys cost nothing
	if !s.Relay.IsZero() {
		who.ID = s.Relay.HostPort().Host
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last.Put(s.ID, who, stateBytes+int64(len(s.Reason)+len(s.Detail)+len(s.Event.Identifier)), s)
}

// stored removes an older state of an event, because the event is now stored.
func (l *eventLog) stored(ev graspsync.Event) {
	if s, ok := l.get(ev.ID); ok && s.Is != IsGone {
		l.put(EventState{ID: ev.ID, Is: IsGone, Event: s.Event})
	}
}

func (l *eventLog) get(id graspsync.EventID) (EventState, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.last.Get(id)
}

// complete returns the time since which all states are known, zero if some were evicted.
func (l *eventLog) complete() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.last.Evicted() > 0 {
		return time.Time{}
	}
	return l.since
}

// announcement returns the state of the last announcement of a repository that was not stored, or
// nil.
func (l *eventLog) announcement(ref graspsync.RepoRef) (last *EventState) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range l.last.All() {
		if s.Is != IsGone && s.Event.Kind == graspsync.KindAnnouncement && s.Event.Author == ref.Owner && s.Event.Identifier == ref.Identifier &&
			(last == nil || s.At.After(last.At)) {
			last = &s
		}
	}
	return last
}

// ruleOf returns the subject of the blocking rule in deps, or "".
func ruleOf(deps []graspsync.Dependency) string {
	for _, d := range deps {
		if d.Await == graspsync.AwaitRuleRemoved {
			return d.Text
		}
	}
	return ""
}

// unsaved returns the state of an event that the Store did not save.
func unsaved(o graspsync.Outcome) (s EventState) {
	s.Is = IsRefused
	switch o.Result { //nolint:exhaustive // others are not recorded
	case graspsync.Superseded:
		s.Is = IsSuperseded
	case graspsync.Deleted:
		s.Is = IsDeleted
	}
	if o.Err != nil {
		s.Detail = graspsync.Printable(o.Err.Error())
	}
	return s
}

const maxNamed = 3

// waitedFor describes up to maxNamed dependencies of an event.
func waitedFor(deps []graspsync.Dependency) string {
	named := slices.Clone(deps)
	slices.SortStableFunc(named, func(a, b graspsync.Dependency) int { return mention(a) - mention(b) })
	var texts []string
	for _, d := range named[:min(len(named), maxNamed)] {
		text := d.String()
		if d.Await == graspsync.AwaitBecomesMaintainer {
			text = "an announcement of " + d.Text + " by " + nip34.NPub(d.Author) + ", or one that lists them as a maintainer"
		}
		texts = append(texts, graspsync.Printable(text))
	}
	if len(deps) > maxNamed {
		texts = append(texts, "another")
	}
	return strings.Join(texts, ", or ")
}

func mention(d graspsync.Dependency) int {
	if d.Await == graspsync.AwaitMention || d.Await == graspsync.AwaitVersionMention {
		return 1
	}
	return 0
}

// EventState returns the state of an event with reasons. It reads the Store and the Holder and
// works before and after Run. Reasons are kept for the last 20,000 events since the start that were
// not stored, ids for a week. The error is that of ctx or the Store.
func (m *SyncManager) EventState(ctx context.Context, id graspsync.EventID) (EventState, error) {
	x := EventState{Now: time.Now(), ID: id}
	if why := m.unreadable(); why != "" {
		x.Is, x.Reason = IsUnknown, why
		return x, nil
	}
	_, held := m.ingest.policy.heldForUser(id) // before the Store, because a released event is briefly in both
	ev, err := m.readOne(ctx, nostr.Filter{IDs: []string{id.String()}})
	if err != nil {
		return EventState{}, fmt.Errorf("explaining event %s: %w", id, err)
	}
	if !ev.IsZero() {
		x.Is, x.Event = IsStored, headOf(ev)
		return x, nil
	}
	if last, known := m.telemetry.states.get(id); known {
		last.Now = x.Now
		x = last
	}
	if e, remembered := m.ingest.rejected.Look(id); remembered {
		x.remembered(e)
	}
	switch {
	case held:
		// The record may be of an earlier state, or of a later state if the hold has just ended.
		x = EventState{Now: x.Now, ID: id, Is: IsHeld, Event: x.Event}
		if h, is := m.ingest.sources.get(id, false); is {
			x.Source, x.Relay = h.source.Kind.String(), h.source.Relay
		}
		return x, nil
	case m.ingest.inflight.has(id):
		x.Is = IsInFlight
		return x, nil
	case x.Is == "" && m.ingest.known.Has(id):
		x.Is = IsGone
	case x.Is == "":
		x.Is, x.Since = IsUnknown, m.telemetry.states.complete()
	}
	if err := m.replaced(ctx, &x); err != nil {
		return EventState{}, fmt.Errorf("explaining event %s: %w", id, err)
	}
	return x, nil
}

// remembered adds the record of a pending or rejected event, which survives a restart.
func (s *EventState) remembered(e pending.State) {
	s.Again, s.awaits = len(e.Deps) > 0 || e.Tries > 0 || e.Wanted, e.Deps
	if s.Event == nil && e.CreatedAt >= 0 {
		s.Event, s.Relay = &EventHead{Kind: e.Kind, CreatedAt: e.CreatedAt.Time()}, e.Relay
		if e.Whole != nil {
			s.Event = headOf(e.Whole.Incoming.Event)
		}
	}
	switch {
	case e.Unsaved:
		s.Is = IsFailing
	case s.Is != "":
		return
	case e.Tries > 0:
		s.Is = IsPostponed
	case e.Accepted:
		s.Is = IsGone
	default:
		s.Is = IsRejected
	}
	s.At = e.Seen
}

// replaced sets the state if a stored event deletes or supersedes the event.
func (m *SyncManager) replaced(ctx context.Context, x *EventState) error {
	about, known := x.Event.event(x.ID)
	if !known {
		return nil
	}
	ev, err := m.readOne(ctx, nostr.Filter{
		Kinds: []int{graspsync.KindDeletion}, Authors: []string{about.PubKey.String()}, Tags: nostr.TagMap{"e": {x.ID.String()}},
	})
	if err != nil {
		return err
	}
	if !ev.IsZero() {
		x.Is, x.DeletedBy = IsDeleted, ev.ID
		return nil
	}
	deleted, err := m.isDeleted(ctx, about)
	if deleted {
		x.Is = IsDeleted
	}
	at, ok := about.Address()
	if err != nil || x.Is != IsGone || !ok {
		return err
	}
	f := nostr.Filter{Kinds: []int{at.Kind}, Authors: []string{at.Author.String()}}
	if nostr.IsAddressableKind(at.Kind) {
		f.Tags = nostr.TagMap{"d": {at.Identifier}}
	}
	newest, err := m.readOne(ctx, f)
	if !newest.IsZero() && newest.Key().Newer(about.Key()) {
		x.Is = IsSuperseded
	}
	return err
}

func (m *SyncManager) isDeleted(ctx context.Context, ev graspsync.Event) (deleted bool, err error) {
	defer m.telemetry.recovered(&err, whoseStore)
	ctx, cancel := context.WithTimeout(ctx, m.cfg.constants.StoreTimeout)
	defer cancel()
	return m.store.Deleted(ctx, ev)
}

func (m *SyncManager) readOne(ctx context.Context, f nostr.Filter) (found graspsync.Event, err error) {
	defer m.telemetry.recovered(&err, whoseStore)
	ctx, cancel := context.WithTimeout(ctx, m.cfg.constants.StoreTimeout)
	defer cancel()
	for ev, err := range m.store.Events(ctx, f) {
		if errors.Is(err, ErrIncomplete) {
			break
		}
		if err != nil {
			return graspsync.Event{}, err
		}
		if found.IsZero() || ev.Key().Newer(found.Key()) {
			found = ev
		}
	}
	return found, nil
}

// unreadable returns the error of reading the Store, or "" if the Store was read once.
func (m *SyncManager) unreadable() string {
	if m.isReady() {
		return ""
	}
	return m.Status().StoreError
}
