package sync

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/sync/internal/absent"
)

// explainer answers people who ask why something is here, or is not. It reads what others know,
// and changes nothing.
type explainer struct {
	cfg        *Config // read-only, as all of it
	store      Store
	index      *index
	ingest     *ingest
	report     *report
	readable   *readable
	targeting  *targeting
	status     func() Status
	repoStatus func(context.Context, graspsync.RepoRef) (RepoStatus, error)
	ask        func(context.Context, func(l *loop)) error
}

// EventExplanation says what became of one event, and why. String has it in sentences.
type EventExplanation struct {
	Now time.Time         `json:"now"` // when this was so
	ID  graspsync.EventID `json:"id"`
	Is  Whereabouts       `json:"is"`
	// Why it is not stored: a reason in the words of an OK message, or of an error.
	Why string `json:"why,omitempty"`
	// Detail is what is particular of it: what was wanted and found, what it waits for.
	Detail string `json:"detail,omitempty"`
	// Rule is what the one of [Config].Rules is about that blocks it, or did when it was rejected or
	// removed, as [graspsync.OnLifted] has it; "" if none, or if that is not remembered any more.
	Rule string `json:"rule,omitempty"`
	// At is when that was found, zero if it is not remembered any more.
	At time.Time `json:"at,omitzero"`
	// Event is nil while nothing of the event is known.
	Event *EventHead `json:"event,omitempty"`
	// Source is the way by which it came last, as in [EventStatus].Sources, "" if that is not
	// known; Relay is who had it.
	Source string             `json:"source,omitempty"`
	Relay  graspsync.RelayURL `json:"relay,omitzero"`
	// Once: it was accepted, and is not here any more.
	Once bool `json:"once,omitempty"`
	// DeletedBy is a deletion (NIP-09) by its author that is here and names it, NamedBy one that
	// names it while the author is not known: anybody may name anything.
	DeletedBy graspsync.EventID `json:"deleted_by,omitzero"`
	NamedBy   graspsync.EventID `json:"named_by,omitzero"`
	// Tries is how often there was no room for it.
	Tries int `json:"tries,omitempty"`
	// Again: it is judged again when what it depends on comes, or there is room.
	Again bool `json:"again,omitempty"`
	// Since when all that came is remembered, of an event of which nothing is known; zero: more came
	// since the start than is remembered.
	Since time.Time `json:"since,omitzero"`
	// Relays are followed; of an event that is not here StillToAsk names up to 20 of these of which
	// not all is known yet, and why.
	Relays     int         `json:"relays"`
	StillToAsk []ToBeAsked `json:"still_to_ask,omitempty"`
	// Unread, of an event of which nothing is known: what is stored was not read yet, and no relay is followed before that.
	Unread bool `json:"unread,omitempty"`

	awaits []absent.Key
}

// Awaits reports whether the event, which is not here, is remembered to be judged again when d is fulfilled:
// with [graspsync.OnLifted], whether it was a rule about that which kept it out, over restarts too.
func (x EventExplanation) Awaits(d graspsync.Dependency) bool {
	return slices.Contains(x.awaits, absent.KeyOf(d))
}

// EventHead is what is known of an event.
type EventHead struct {
	Kind      int              `json:"kind"`
	Author    graspsync.PubKey `json:"author,omitzero"`
	CreatedAt time.Time        `json:"created_at,omitzero"`
	// Identifier is that of an announcement or state, "" if it is not known.
	Identifier string `json:"identifier,omitempty"`
}

// ToBeAsked is a relay of which not all is known yet.
type ToBeAsked struct {
	URL   graspsync.RelayURL `json:"url"`
	Phase string             `json:"phase"` // as in [RelayStatus]
	Why   string             `json:"why,omitempty"`
	Next  time.Time          `json:"next,omitzero"` // when it is tried again
}

// most is how many of what there may be very many an explanation names.
const (
	mostToAsk   = 20
	mostRefused = 20
	mostOmitted = 64
)

// event is [SyncManager.ExplainEvent].
func (q *explainer) event(ctx context.Context, id graspsync.EventID) (EventExplanation, error) {
	x := EventExplanation{Now: time.Now(), ID: id}
	if why := q.unreadable(); why != "" {
		x.Is, x.Why, x.Unread = IsUnknown, why, true
		return x, nil
	}
	_, held := q.ingest.policy.heldForUser(id) // first: what is released meanwhile is in both
	ev, err := q.readOne(ctx, nostr.Filter{IDs: []string{id.String()}})
	if err != nil {
		return EventExplanation{}, fmt.Errorf("explaining event %s: %w", id, err)
	}
	if !ev.IsZero() {
		x.Is, x.Event = IsStored, headOf(ev)
		return x, nil
	}
	said, known := q.report.verdicts.last(id)
	if known {
		x.said(said)
	}
	e, remembered := q.ingest.absences.absent.Look(id)
	if known && q.outlived(said) {
		x.Is, x.Why, x.Detail, x.At = IsGone, "", "", time.Time{}
	}
	if remembered {
		x.remembered(e)
		x.awaits = q.ingest.absences.absent.Keys(id)
	}
	switch failing, coming := q.ingest.flights.of(id); {
	case held:
		x.Is, x.Why, x.Detail, x.Again = IsHeld, "", "", false
		if h, is := q.ingest.holds.get(id, false); is {
			x.Source, x.Relay = h.source.Kind.String(), h.source.Relay
		}
	case failing:
		x.Is = IsFailing
	case coming:
		x.Is = IsInFlight
	case !known && !remembered && q.ingest.absences.known.Has(id):
		x.Is = IsGone
	case !known && !remembered:
		x.Is = IsUnknown
	}
	if x.Is == IsHeld || x.Is == IsInFlight {
		return x, nil
	}
	x.Once = x.Is == IsGone
	about, is := said.event()
	if !is && e.Whole != nil {
		about = e.Whole.Incoming.Event
	}
	if err := q.fate(ctx, &x, about); err != nil {
		return EventExplanation{}, fmt.Errorf("explaining event %s: %w", id, err)
	}
	if x.Is == IsUnknown {
		x.Since = q.report.verdicts.complete()
		x.Relays, x.StillToAsk = q.stillToAsk()
		x.Unread = !q.readable.is()
	}
	return x, nil
}

// waiting is [SyncManager.Waiting].
func (q *explainer) waiting(most int) (out []EventExplanation) {
	var all []verdict
	q.report.verdicts.Each(func(of verdictOf, n verdict) {
		if of.is == IsWaiting {
			all = append(all, n)
		}
	})
	now := time.Now()
	for _, n := range newest(all, len(all)) {
		if len(out) == most {
			break
		}
		if e, remembered := q.ingest.absences.absent.Look(n.id); remembered && e.Waits {
			x := EventExplanation{Now: now, ID: n.id, Again: true}
			x.said(n)
			out = append(out, x)
		}
	}
	return out
}

// outlived reports whether an event was accepted after what was said of it.
func (q *explainer) outlived(said verdict) bool {
	if !said.passes() {
		return false
	}
	e, remembered := q.ingest.absences.absent.Look(said.id)
	if !remembered {
		return q.ingest.absences.known.Has(said.id)
	}
	return e.Accepted && !e.Waits && !e.Later && e.Seen.UnixNano() > said.at
}

// said takes in what is remembered of the last verdict.
func (x *EventExplanation) said(v verdict) {
	x.Is, x.Why, x.Detail, x.Rule, x.At = v.is, v.reason, v.detail, v.rule, time.Unix(0, v.at)
	x.Event = &EventHead{Kind: v.kind, Author: v.author, CreatedAt: v.createdAt.Time(), Identifier: v.identifier}
	x.Source, x.Relay = v.source.Kind.String(), v.source.Relay
}

// remembered takes in what is remembered besides: where the reason is not, or is an old one.
func (x *EventExplanation) remembered(e absent.State) {
	x.Tries, x.Again = e.Tries, e.Awaits > 0 || e.Later || e.Judged || e.Asked
	if x.Event == nil && e.CreatedAt >= 0 {
		x.Event = &EventHead{Kind: e.Kind, CreatedAt: e.CreatedAt.Time()}
		x.Relay = e.Relay
		if e.Whole != nil {
			x.Event.Author, x.Event.Identifier = e.Whole.Incoming.Event.PubKey, identifierOf(e.Whole.Incoming.Event)
		}
	}
	switch {
	case x.Is != "":
	case e.Waits:
		x.Is = IsWaiting
	case e.Later || e.Tries > 0:
		x.Is = IsPostponed
	case e.Accepted:
		x.Is = IsGone
	default:
		x.Is = IsRejected
	}
	if x.At.IsZero() {
		x.At = e.Seen
	}
}

// fate finds out whether what is stored deletes or supersedes an event that is not. about is zero
// if not enough of it is known.
func (q *explainer) fate(ctx context.Context, x *EventExplanation, about graspsync.Event) error {
	by := nostr.Filter{Kinds: []int{graspsync.KindDeletion}, Tags: nostr.TagMap{"e": {x.ID.String()}}}
	authorKnown := x.Event != nil && x.Event.Author != (graspsync.PubKey{})
	if authorKnown {
		by.Authors = []string{x.Event.Author.String()}
	}
	ev, err := q.readOne(ctx, by)
	if err != nil {
		return err
	}
	switch {
	case !ev.IsZero() && !authorKnown:
		x.NamedBy = ev.ID
	case !ev.IsZero():
		x.Is, x.DeletedBy = IsDeleted, ev.ID
	case !about.IsZero():
		deleted, err := q.deleted(ctx, about)
		if err != nil {
			return err
		}
		if deleted {
			x.Is = IsDeleted
		}
	}
	if x.Is != IsGone || about.IsZero() {
		return nil
	}
	newer, err := q.superseded(ctx, about)
	if newer {
		x.Is = IsSuperseded
	}
	return err
}

// superseded reports whether a newer version of an event is stored.
func (q *explainer) superseded(ctx context.Context, ev graspsync.Event) (bool, error) {
	at, ok := ev.Address()
	if !ok {
		return false, nil
	}
	f := nostr.Filter{Kinds: []int{at.Kind}, Authors: []string{at.Author.String()}}
	if nostr.IsAddressableKind(at.Kind) {
		f.Tags = nostr.TagMap{"d": {at.Identifier}}
	}
	newest, err := q.readOne(ctx, f)
	return !newest.IsZero() && newest.Stamp().Newer(ev.Stamp()), err
}

// deleted asks the Store.
func (q *explainer) deleted(ctx context.Context, ev graspsync.Event) (deleted bool, err error) {
	defer q.report.recovered(&err, whoseStore)
	ctx, cancel := context.WithTimeout(ctx, q.cfg.fixed.StoreTimeout)
	defer cancel()
	return q.store.Deleted(ctx, ev)
}

// readOne returns the newest stored event that matches, the zero Event if there is none.
func (q *explainer) readOne(ctx context.Context, f nostr.Filter) (found graspsync.Event, err error) {
	defer q.report.recovered(&err, whoseStore)
	ctx, cancel := context.WithTimeout(ctx, q.cfg.fixed.StoreTimeout)
	defer cancel()
	for ev, err := range q.store.Events(ctx, f) {
		if errors.Is(err, ErrIncomplete) {
			break
		}
		if err != nil {
			return graspsync.Event{}, err
		}
		if found.IsZero() || ev.Stamp().Newer(found.Stamp()) {
			found = ev
		}
	}
	return found, nil
}

func headOf(ev graspsync.Event) *EventHead {
	return &EventHead{Kind: ev.Kind, Author: ev.PubKey, CreatedAt: ev.CreatedAt.Time(), Identifier: identifierOf(ev)}
}

// identifierOf is that of an announcement or state.
func identifierOf(ev graspsync.Event) string {
	if ev.Kind != graspsync.KindAnnouncement && ev.Kind != graspsync.KindState {
		return ""
	}
	return graspsync.Clip(ev.Tags.GetD(), graspsync.MaxIdentifier+1)
}

// stillToAsk returns how many relays are followed, and of which of them not all is known.
func (q *explainer) stillToAsk() (relays int, out []ToBeAsked) {
	s := q.status()
	for _, r := range s.Relays {
		if !r.Synced && len(out) < mostToAsk {
			out = append(out, ToBeAsked{URL: r.URL, Phase: r.Phase, Why: r.LastError, Next: r.NextAttempt})
		}
	}
	return len(s.Relays), out
}
