package sync

import (
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
	// that concerns this event: an error, the expected and the found URLs, or the dependencies.
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
	// Since is set for an unknown event. It is the time since which the states of all events are
	// known, zero if some were evicted.
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

// Awaits reports whether an event that is not stored is judged again when d is fulfilled. With
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

// event returns an event with the same address, for comparisons. It returns false if the address is
// unknown.
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

// waitedFor describes up to maxNamed dependencies of an event. Dependencies of the event itself
// precede those of events that mention it.
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
