package sync

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/limit"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/sync/internal/pending"
)

// StateCode classifies an event, a repository, a relay or an [Observation].
type StateCode string

// Codes of an [EventState].
const (
	IsStored     StateCode = "stored"
	IsHeld       StateCode = "held"       // by the Policy
	IsInFlight   StateCode = "in flight"  // being judged or saved
	IsFailing    StateCode = "failing"    // judging or saving failed and is retried
	IsWaiting    StateCode = "waiting"    // for its dependencies, see Detail
	IsPostponed  StateCode = "postponed"  // judged again later
	IsRejected   StateCode = "rejected"   // by the Policy
	IsRefused    StateCode = "refused"    // by the Store, or by the relay of the manager
	IsSuperseded StateCode = "superseded" // a newer version is stored
	IsDeleted    StateCode = "deleted"    // deleted by its author
	IsRemoved    StateCode = "removed"    // by moderation or expiry
	IsGone       StateCode = "gone"       // accepted once and no longer stored
	IsUnknown    StateCode = "unknown"    // never arrived, or no record is left
)

// Codes of a [RepoFollowState].
const (
	RepoFollowed StateCode = "followed" // hosted
	RepoHeld     StateCode = "held"     // the Policy holds its announcement; its states are followed
	RepoLeft     StateCode = "left"     // its stored announcement does not list this server
	RepoRejected StateCode = "rejected" // its announcement arrived and was not stored
	RepoDeleted  StateCode = "deleted"  // its owner deleted it
	RepoStarting StateCode = "not read" // the Store has not been read
	RepoUnknown  StateCode = "unknown"  // none of its announcements arrived
	RepoBlocked  StateCode = "blocked"  // by [Config].Rules
)

// Codes of a [RelayFollowState].
const (
	RelayFollowed    StateCode = "followed"
	RelayOurs        StateCode = "ours"         // this server
	RelayNotFollowed StateCode = "not followed" // not listed by any repository
	RelayBlocked     StateCode = "blocked"      // by [Config].Rules
	RelayUnread      StateCode = "not read"     // the Store has not been read
	// Reasons why a listed relay is not followed.
	RelayUnresolvable StateCode = "unresolvable" // not a name in public DNS
	RelayPlaintext    StateCode = "plaintext"    // not encrypted
	RelayNoRoom       StateCode = "no room"      // too many relays are followed
	RelayWindow       StateCode = "batch window" // followed when the batch window closes
)

// EventState is the known state of one event.
type EventState struct {
	ID graspsync.EventID `json:"id"`
	Is StateCode         `json:"is"`
	// Reason is the reason why the event is not stored, as in an OK message, Detail the part about
	// this event.
	Reason string `json:"reason,omitempty"`
	Detail string `json:"detail,omitempty"`
	// At is the time of the change to Is, zero if unknown.
	At time.Time `json:"at,omitzero"`
	// Event is nil if only the id is known.
	Event *EventHead `json:"event,omitempty"`
	// Source is the way of arrival, as in [EventStatus].Sources, and Relay the relay.
	Source string             `json:"source,omitempty"`
	Relay  graspsync.RelayURL `json:"relay,omitzero"`
	// Again reports whether the event is judged again.
	Again bool `json:"again,omitempty"`
	// Since is set for an unknown event: the time since which all states are known, zero if some
	// were evicted.
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

// Awaits reports whether an event is judged again when d is fulfilled. It is known also after a
// restart.
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

// record records the state of an event that is not stored. The texts of s must be printable.
func (t *telemetry) record(in graspsync.Incoming, s EventState) {
	s.ID, s.Event, s.At = in.Event.ID, headOf(in.Event), time.Now()
	s.Source, s.Relay = in.Source.Kind.String(), in.Source.Relay
	t.mu.Lock()
	defer t.mu.Unlock()
	t.putState(s)
}

func (t *telemetry) putState(s EventState) {
	who := limit.Stranger{} // all clients count as one stranger, because keys cost nothing
	if !s.Relay.IsZero() {
		who.ID = s.Relay.HostPort().Host
	}
	t.states.Put(s.ID, who, stateBytes+int64(len(s.Reason)+len(s.Detail)+len(s.Event.Identifier)), s)
}

// stored removes an older state of an event, because the event is now stored.
func (t *telemetry) stored(ev graspsync.Event) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if s, ok := t.states.Get(ev.ID); ok && s.Is != IsGone {
		t.putState(EventState{ID: ev.ID, Is: IsGone, Event: s.Event})
	}
}

// lastState returns the recorded state of an event, and the time since which all states are known,
// zero if some were evicted.
func (t *telemetry) lastState(id graspsync.EventID) (s EventState, known bool, since time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.states.Evicted() == 0 {
		since = t.since
	}
	s, known = t.states.Get(id)
	return s, known, since
}

// announcement returns the state of the last announcement of a repository that was not stored, or
// nil.
func (t *telemetry) announcement(ref graspsync.RepoRef) (last *EventState) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, s := range t.states.All() {
		if s.Is != IsGone && s.Event.Kind == graspsync.KindAnnouncement && s.Event.Author == ref.Owner && s.Event.Identifier == ref.Identifier &&
			(last == nil || s.At.After(last.At)) {
			last = &s
		}
	}
	return last
}

func unsaved(o graspsync.Outcome) (s EventState) {
	s.Is = IsRefused
	switch o.Result { //nolint:exhaustive // other results are not recorded
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

func waitedFor(deps []graspsync.Dependency) string {
	var texts []string
	for _, d := range deps[:min(len(deps), maxNamed)] {
		text := d.String()
		if d.Kind == graspsync.AwaitBecomesMaintainer {
			text = "an announcement of " + d.Text + " by " + nip34.NPub(d.Author) + ", or one that lists them as a maintainer"
		}
		texts = append(texts, graspsync.Printable(text))
	}
	if len(deps) > maxNamed {
		texts = append(texts, "another")
	}
	return strings.Join(texts, ", or ")
}

// EventState returns the state of an event, also before and after Run. Reasons are kept for the last
// 20,000 events that were not stored, ids for a week. The error is that of ctx or the Store.
func (m *SyncManager) EventState(ctx context.Context, id graspsync.EventID) (EventState, error) {
	x := EventState{ID: id}
	if why := m.unreadable(); why != "" {
		x.Is, x.Reason = IsUnknown, why
		return x, nil
	}
	_, held := m.ingest.heldForUser(id) // before the Store, because a released event is briefly in both
	ev, err := m.readOne(ctx, nostr.Filter{IDs: []string{id.String()}})
	if err != nil {
		return EventState{}, fmt.Errorf("explaining event %s: %w", id, err)
	}
	if !ev.IsZero() {
		x.Is, x.Event = IsStored, headOf(ev)
		return x, nil
	}
	last, known, since := m.telemetry.lastState(id)
	if known {
		x = last
	}
	if e, remembered := m.ingest.rejected.Look(id); remembered {
		x.remembered(e)
	}
	switch {
	case held:
		// The record may be of an earlier state, or of a later state if the hold has just ended.
		x = EventState{ID: id, Is: IsHeld, Event: x.Event}
		if n, is := m.ingest.inflight.heldNote(id, false); is {
			x.Source, x.Relay = n.Incoming.Source.Kind.String(), n.Incoming.Source.Relay
		}
		return x, nil
	case m.ingest.inflight.has(id):
		x.Is = IsInFlight
		return x, nil
	case x.Is == "" && m.ingest.known.Has(id):
		x.Is = IsGone
	case x.Is == "":
		x.Is, x.Since = IsUnknown, since
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

// replaced sets the state if the event was deleted, or if a newer version is stored.
func (m *SyncManager) replaced(ctx context.Context, x *EventState) error {
	about, known := x.Event.event(x.ID)
	if !known {
		return nil
	}
	deleted, err := m.isDeleted(ctx, about)
	at, versions := about.Address()
	switch {
	case err != nil:
		return err
	case deleted:
		x.Is = IsDeleted
		return nil
	case x.Is != IsGone || !versions:
		return nil
	}
	newest, err := m.newestAt(ctx, at)
	if !newest.IsZero() && newest.Key().Newer(about.Key()) {
		x.Is = IsSuperseded
	}
	return err
}

func (m *SyncManager) newestAt(ctx context.Context, at graspsync.Address) (graspsync.Event, error) {
	f := nostr.Filter{Kinds: []int{at.Kind}, Authors: []string{at.Author.String()}}
	if nostr.IsAddressableKind(at.Kind) {
		f.Tags = nostr.TagMap{"d": {at.Identifier}}
	}
	return m.readOne(ctx, f)
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

// RepoFollowState explains why a repository is followed or not.
type RepoFollowState struct {
	Ref graspsync.RepoRef `json:"ref"`
	Is  StateCode         `json:"is"`
	// Reason is the cause of RepoLeft or RepoRejected, in the words of an OK message, or the error
	// of reading the Store.
	Reason string `json:"reason,omitempty"`
	// DeletedBy is the deletion of a deleted repository.
	DeletedBy graspsync.EventID `json:"deleted_by,omitzero"`
	// Want contains the relay URL and the clone URL that the announcement must list.
	Want [2]string `json:"want"`
	// Announcement is the newest known announcement, or nil.
	Announcement *EventState `json:"announcement,omitempty"`
	// Status is nil if the repository is not followed.
	Status *RepoStatus `json:"status,omitempty"`
	// Waiting is the number of events that wait for the announcement.
	Waiting int `json:"waiting"`
}

// RelayFollowState explains why a relay is followed or not.
type RelayFollowState struct {
	URL graspsync.RelayURL `json:"url"`
	Is  StateCode          `json:"is"`
	// Status is nil if the relay is not followed.
	Status *RelayStatus `json:"status,omitempty"`
	// Listed is the number of hosted repositories that list the relay. Examples are up to 3.
	Listed   int                 `json:"listed"`
	Examples []graspsync.RepoRef `json:"examples,omitempty"`
}

// RepoFollowState blocks like RepoStatus. The error is that of ctx or the Store, or
// [ErrNotRunning].
func (m *SyncManager) RepoFollowState(ctx context.Context, ref graspsync.RepoRef) (RepoFollowState, error) {
	x := RepoFollowState{Ref: ref, Want: [2]string{m.identity.RelayURL(), m.identity.CloneURL(ref)}}
	if why := m.unreadable(); why != "" {
		x.Is, x.Reason = RepoStarting, why
		return x, nil
	}
	if err := m.explainRepo(ctx, &x); err != nil {
		return RepoFollowState{}, fmt.Errorf("explaining %s: %w", ref, err)
	}
	return x, nil
}

func (m *SyncManager) explainRepo(ctx context.Context, x *RepoFollowState) error {
	all, err := m.RepoStatus(ctx, x.Ref)
	if err != nil {
		return err
	}
	if !m.isReady() {
		x.Is, x.Reason = RepoStarting, m.Status().StoreError
		return nil
	}
	m.apply() // the announcement may have been stored just before
	stored, err := m.newestAt(ctx, graspsync.Address{Kind: graspsync.KindAnnouncement, Author: x.Ref.Owner, Identifier: x.Ref.Identifier})
	if err != nil {
		return err
	}
	if len(all) > 0 {
		x.Status = &all[0]
	}
	held := m.self.heldAnnouncement(x.Ref)
	switch {
	case x.Status != nil && x.Status.Level == levelFull:
		x.Is = RepoFollowed
	case m.cfg.Rules != nil && m.cfg.Rules.BlocksRepository(x.Ref):
		x.Is = RepoBlocked
	case m.index.Announced(x.Ref): // it is followed when the batch window closes
		x.Is = RepoFollowed
	case held != nil:
		x.Is = RepoHeld
	case !stored.IsZero():
		x.Is = RepoLeft
		if a, err := nip34.ParseAnnouncement(stored); err == nil {
			x.Reason = unlisted(m.identity, a).Message()
		}
	}
	switch {
	case !stored.IsZero():
		x.Announcement = &EventState{ID: stored.ID, Is: IsStored, Event: headOf(stored)}
	case held != nil:
		x.Announcement = &EventState{ID: held.ID, Is: IsHeld, Event: &EventHead{
			Kind: graspsync.KindAnnouncement, Author: x.Ref.Owner, CreatedAt: held.CreatedAt.Time(), Identifier: x.Ref.Identifier,
		}}
	default:
		err = m.unstoredAnnouncement(ctx, x)
	}
	if err != nil || x.Is != "" {
		return err
	}
	deletion, err := m.readOne(ctx, nostr.Filter{
		Kinds: []int{graspsync.KindDeletion}, Authors: []string{x.Ref.Owner.String()}, Tags: nostr.TagMap{"a": {x.Ref.String()}},
	})
	a := x.Announcement
	switch {
	case err != nil:
		return err
	case !deletion.IsZero() && (a == nil || a.Event == nil || !a.Event.CreatedAt.After(deletion.CreatedAt.Time())):
		x.Is, x.DeletedBy = RepoDeleted, deletion.ID
	case a != nil:
		x.Is, x.Reason = RepoRejected, graspsync.Verdict{Reason: a.Reason, Detail: a.Detail}.Message()
	default:
		x.Is = RepoUnknown
	}
	return nil
}

// unstoredAnnouncement finds an announcement that is neither stored nor held, and counts the events
// that wait for it.
func (m *SyncManager) unstoredAnnouncement(ctx context.Context, x *RepoFollowState) error {
	for _, w := range m.ingest.rejected.Awaiting(pending.KeyOf(graspsync.OnRepo(x.Ref))) {
		switch {
		case w.Kind != graspsync.KindAnnouncement:
			x.Waiting++
		case x.Announcement == nil:
			a, err := m.EventState(ctx, w.ID)
			if err != nil {
				return err
			}
			x.Announcement = &a
		}
	}
	if x.Announcement == nil {
		x.Announcement = m.telemetry.announcement(x.Ref)
	}
	return nil
}

// RelayFollowState explains why a relay is followed or not. It is as old as [SyncManager.Status],
// and does not read the Store.
func (m *SyncManager) RelayFollowState(u graspsync.RelayURL) RelayFollowState {
	x := RelayFollowState{URL: u}
	relays := m.snapshot.Load().Relays
	if i := slices.IndexFunc(relays, func(r RelayStatus) bool { return r.URL == u }); i >= 0 {
		s := relays[i]
		x.Status = &s
	}
	x.Listed, x.Examples = m.index.Listing(u)
	switch {
	case m.isOurs(u):
		x.Is = RelayOurs
	case x.Status != nil:
		x.Is = RelayFollowed
	case m.blockedRelay(u):
		x.Is = RelayBlocked
	case !m.isReady():
		x.Is = RelayUnread
	case !u.HostPort().Resolvable():
		x.Is = RelayUnresolvable
	case m.forbidsPlaintext(u):
		x.Is = RelayPlaintext
	case x.Listed == 0:
		x.Is = RelayNotFollowed
	case len(relays) >= m.cfg.constants.MaxRelays:
		x.Is = RelayNoRoom
	default:
		x.Is = RelayWindow
	}
	return x
}
