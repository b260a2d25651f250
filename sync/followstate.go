package sync

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/sync/internal/pending"
)

// RepoCode classifies a repository.
type RepoCode string

// Codes of a [RepoFollowState].
const (
	RepoFollowed RepoCode = "followed" // hosted
	RepoHeld     RepoCode = "held"     // the Policy holds its announcement; its states are followed
	RepoLeft     RepoCode = "left"     // its stored announcement does not list this server
	RepoRejected RepoCode = "rejected" // its announcement arrived and was not stored
	RepoDeleted  RepoCode = "deleted"  // its owner deleted it
	RepoStarting RepoCode = "not read" // the Store has not been read
	RepoUnknown  RepoCode = "unknown"  // none of its announcements arrived
	RepoBlocked  RepoCode = "blocked"  // by [Config].Rules
)

// RepoFollowState explains why a repository is followed or not.
type RepoFollowState struct {
	Now time.Time         `json:"now,omitzero"`
	Ref graspsync.RepoRef `json:"ref"`
	Is  RepoCode          `json:"is"`
	// Reason is the cause why a repository with code RepoLeft or RepoRejected is not hosted, in the
	// words of an OK message, or the error of reading the Store.
	Reason string `json:"reason,omitempty"`
	// DeletedBy is the deletion of a deleted repository.
	DeletedBy graspsync.EventID `json:"deleted_by,omitzero"`
	// Kept reports whether the announcement of a repository with code RepoLeft stays stored because
	// a hosted repository lists its author as a maintainer.
	Kept bool `json:"kept,omitempty"`
	// Want contains the relay URL and the clone URL that the announcement must list.
	Want [2]string `json:"want"`
	// Announcement is the newest known announcement, or nil.
	Announcement *EventState `json:"announcement,omitempty"`
	// Status is nil if the repository is not followed.
	Status *RepoStatus `json:"status,omitempty"`
	// LeftOut are the unused URLs of the announcement.
	LeftOut []Excluded `json:"left_out,omitempty"`
	// Refused are the states of at most 20 announcements and states of the owner that are not
	// stored, newest first.
	Refused []EventState `json:"refused,omitempty"`
	// Waiting is the number of events that wait for the announcement.
	Waiting int `json:"waiting"`
}

// RelayCode classifies a relay.
type RelayCode string

// Codes of a [RelayFollowState].
const (
	RelayFollowed    RelayCode = "followed"
	RelayOurs        RelayCode = "ours"         // this server
	RelayLeftOut     RelayCode = "left out"     // listed by a repository but not followed
	RelayNotFollowed RelayCode = "not followed" // not listed by any repository
	RelayBlocked     RelayCode = "blocked"      // by [Config].Rules
	RelayUnread      RelayCode = "not read"     // the Store has not been read
)

// RelayFollowState explains why a relay is followed or not.
type RelayFollowState struct {
	Now time.Time          `json:"now,omitzero"`
	URL graspsync.RelayURL `json:"url"`
	Is  RelayCode          `json:"is"`
	// Reason is the cause why the relay could not be followed, or "".
	Reason OmitReason `json:"reason,omitempty"`
	// Status is nil if the relay is not followed.
	Status *RelayStatus `json:"status,omitempty"`
	// LeftOut are the filters and values that are not requested from the relay.
	LeftOut []Excluded `json:"left_out,omitempty"`
	// Listed is the number of hosted repositories that list the relay. Examples are up to 3 of
	// them.
	Listed   int                 `json:"listed"`
	Examples []graspsync.RepoRef `json:"examples,omitempty"`
}

// OmitReason is the reason why a URL, a filter or a relay is not used.
type OmitReason string

// Values of OmitReason.
const (
	OmitUnresolvable OmitReason = "unresolvable" // not a name in public DNS
	OmitPlaintext    OmitReason = "plaintext"    // not encrypted
	OmitBeyond       OmitReason = "beyond limit" // only the first Limit are used
	OmitUnusable     OmitReason = "unusable"     // invalid URL, see Detail
	OmitUnnamed      OmitReason = "unnamed"      // further items; a list has at most 64
	OmitNoRoom       OmitReason = "no room"      // more filters than the relay's subscriptions, or too many followed relays
	OmitTooLarge     OmitReason = "too large"    // filters exceed the message size of the relay
	OmitRefused      OmitReason = "refused"      // the relay refused to follow it; retried at At
	OmitFailing      OmitReason = "failing"      // requests with this value fail; retried at At
	OmitUndialed     OmitReason = "undialed"     // waits since At to be dialed
	OmitWindow       OmitReason = "batch window" // followed when the batch window closes
)

// Excluded is an unused item.
type Excluded struct {
	What   string     `json:"what,omitempty"` // printable; "" if Count items are omitted
	Count  int        `json:"count,omitempty"`
	Reason OmitReason `json:"reason"`
	Detail string     `json:"detail,omitempty"` // printable
	Limit  int        `json:"limit,omitempty"`
	At     time.Time  `json:"at,omitzero"`
}

const (
	maxRefused = 20
	maxOmitted = 64
)

const levelFull = "full"

// RepoFollowState explains why a repository is followed or not. It blocks like RepoStatus. The
// error is that of ctx or the Store, or [ErrNotRunning].
func (m *SyncManager) RepoFollowState(ctx context.Context, ref graspsync.RepoRef) (RepoFollowState, error) {
	x := RepoFollowState{Now: time.Now(), Ref: ref, Want: [2]string{m.identity.RelayURL(), m.identity.CloneURL(ref)}}
	if why := m.unreadable(); why != "" {
		x.Is, x.Reason = RepoStarting, why
		return x, nil
	}
	if err := m.fillRepo(ctx, &x); err != nil {
		return RepoFollowState{}, fmt.Errorf("explaining %s: %w", ref, err)
	}
	return x, nil
}

func (m *SyncManager) fillRepo(ctx context.Context, x *RepoFollowState) error {
	switch s, err := m.RepoStatus(ctx, x.Ref); {
	case err == nil:
		x.Status, x.Is = &s, RepoFollowed
		if s.Level != levelFull {
			x.Is = RepoHeld
		}
	case !errors.Is(err, ErrUnknownRepo):
		return err
	case !m.isReady():
		x.Is, x.Reason = RepoStarting, m.Status().StoreError
		return nil
	}
	announcements := nostr.Filter{
		Kinds: []int{graspsync.KindAnnouncement}, Authors: []string{x.Ref.Owner.String()}, Tags: nostr.TagMap{"d": {x.Ref.Identifier}},
	}
	stored, err := m.readOne(ctx, announcements)
	if err == nil {
		x.Refused, err = m.refused(ctx, x.Ref, stored)
	}
	switch {
	case err != nil:
	case !stored.IsZero():
		m.storedAnnouncement(x, stored)
	default:
		err = m.otherAnnouncement(ctx, x, announcements)
	}
	if err != nil || x.Is != "" {
		return err
	}
	return m.notOurs(ctx, x)
}

// refused returns the states of events of a repository's owner that are not stored: announcements
// and states. It omits announcements that the stored one would supersede.
func (m *SyncManager) refused(ctx context.Context, ref graspsync.RepoRef, stored graspsync.Event) (out []EventState, err error) {
	all := slices.DeleteFunc(m.telemetry.states.of(ref, 2*maxRefused), func(s EventState) bool {
		return s.Is == IsGone || !stored.IsZero() && s.Event.Kind == stored.Kind && s.Event.CreatedAt.Before(stored.CreatedAt.Time())
	})
	ids := make([]graspsync.EventID, len(all))
	for i, s := range all {
		ids[i] = s.ID
	}
	has, err := m.ingest.store.has(ctx, ids)
	for i, s := range all {
		if err == nil && !has[i] && len(out) < maxRefused {
			out = append(out, s)
		}
	}
	return out, err
}

// storedAnnouncement describes a repository by its stored announcement.
func (m *SyncManager) storedAnnouncement(x *RepoFollowState, stored graspsync.Event) {
	x.Announcement = &EventState{ID: stored.ID, Is: IsStored, Event: headOf(stored)}
	a, err := nip34.ParseAnnouncement(stored)
	if err != nil {
		x.Is = RepoLeft
		return
	}
	x.LeftOut = m.relayFilter.leftOut(a, m.cfg.Limits.MaxRelaysPerRepo)
	switch ours, _ := m.index.Listed(a); {
	case x.Is == RepoFollowed:
	case m.cfg.Rules != nil && m.cfg.Rules.BlocksRepository(x.Ref):
		x.Is = RepoBlocked
	case ours: // it is followed when the batch window closes
		x.Is = RepoFollowed
	case x.Is == RepoHeld:
	default:
		policy := NewGRASPPolicy(m.identity)
		x.Is, x.Reason = RepoLeft, unlisted(policy.identity, a).Message()
		listed, _ := policy.kinOf(x.Ref.Identifier, storeView{m.index, m.store}).wanted()
		_, x.Kept = listed[x.Ref.Owner]
	}
}

// otherAnnouncement finds an announcement that is held, waits, or was not stored.
func (m *SyncManager) otherAnnouncement(ctx context.Context, x *RepoFollowState, f nostr.Filter) error {
	held, found, err := m.held(ctx, f)
	if err != nil {
		return err
	}
	if found {
		x.Is = RepoHeld
		x.Announcement = &EventState{ID: held.ID, Is: IsHeld, Event: &EventHead{
			Kind: graspsync.KindAnnouncement, Author: x.Ref.Owner, CreatedAt: held.CreatedAt.Time(), Identifier: x.Ref.Identifier,
		}}
		if a := m.ingest.policy.heldAnnouncement(ctx, x.Ref); a != nil {
			x.LeftOut = m.relayFilter.leftOut(a, m.cfg.Limits.MaxRelaysPerRepo)
		}
		return nil
	}
	waits, n := m.ingest.rejected.Awaiting(pending.KeyOf(graspsync.OnRepo(x.Ref)), maxRefused)
	for _, w := range waits {
		if w.Kind != graspsync.KindAnnouncement {
			continue
		}
		n--
		if x.Announcement == nil {
			e, err := m.EventState(ctx, w.ID)
			if err != nil {
				return err
			}
			x.Announcement = &e
		}
	}
	x.Waiting = n
	for i := range x.Refused {
		if x.Announcement == nil && x.Refused[i].Event.Kind == graspsync.KindAnnouncement {
			x.Announcement = &x.Refused[i]
		}
	}
	return nil
}

// held asks the Holder for the newest event that matches.
func (m *SyncManager) held(ctx context.Context, f nostr.Filter) (newest graspsync.EventKey, found bool, err error) {
	if m.cfg.Holder == nil {
		return newest, false, nil
	}
	defer m.telemetry.recovered(&err, "policy")
	stamps, err := m.cfg.Holder.Held(ctx, f)
	for _, s := range stamps {
		if !found || s.Newer(newest) {
			newest, found = s, true
		}
	}
	return newest, found, err
}

// notOurs explains why a repository without a stored or held announcement is not hosted.
func (m *SyncManager) notOurs(ctx context.Context, x *RepoFollowState) error {
	if m.cfg.Rules != nil && m.cfg.Rules.BlocksRepository(x.Ref) {
		x.Is = RepoBlocked
		return nil
	}
	ev, err := m.readOne(ctx, nostr.Filter{
		Kinds: []int{graspsync.KindDeletion}, Authors: []string{x.Ref.Owner.String()}, Tags: nostr.TagMap{"a": {x.Ref.String()}},
	})
	a := x.Announcement
	switch {
	case err != nil:
		return err
	case !ev.IsZero() && (a == nil || a.Event == nil || !a.Event.CreatedAt.After(ev.CreatedAt.Time())):
		x.Is, x.DeletedBy = RepoDeleted, ev.ID
	case a != nil:
		x.Is, x.Reason = RepoRejected, graspsync.Verdict{Reason: a.Reason, Detail: a.Detail}.Message()
	default:
		x.Is = RepoUnknown
	}
	return nil
}

// leftOut returns the URLs of an announcement that are not used.
func (t *relayFilter) leftOut(a *nip34.Announcement, most int) (out []Excluded) {
	more, places := 0, 0
	add := func(l Excluded) {
		if l.What = graspsync.Printable(l.What); len(out) < maxOmitted {
			out = append(out, l)
		} else {
			more++
		}
	}
	for _, u := range a.Relays {
		if u.HostPort().Resolvable() {
			places++
		}
		switch why := t.unreachable(u); {
		case t.ours(u): // our own URL is not left out
		case why != "":
			add(Excluded{What: u.String(), Reason: why})
		case places > most:
			add(Excluded{What: u.String(), Reason: OmitBeyond, Limit: most})
		}
	}
	unusable := a.UnusableRelays + a.UnusableClones
	if a.Event != nil {
		unusable = 0
		for u := range nip34.UnusableURLs(a.Event) {
			add(Excluded{What: u.List + " " + u.Value, Reason: OmitUnusable, Detail: graspsync.Printable(u.Err.Error())})
		}
	}
	for _, l := range []Excluded{
		{Count: more, Reason: OmitUnnamed}, {Count: unusable, Reason: OmitUnusable},
		{Count: a.DroppedRelays + a.DroppedClones, Reason: OmitBeyond, Limit: nip34.MaxListed},
	} {
		if l.Count > 0 {
			out = append(out, l)
		}
	}
	return out
}

// RelayFollowState explains why a relay is followed or not, and which filters are omitted. It
// blocks like RepoStatus and does not read the Store. The error is that of ctx, or [ErrNotRunning].
func (m *SyncManager) RelayFollowState(ctx context.Context, u graspsync.RelayURL) (RelayFollowState, error) {
	x := RelayFollowState{Now: time.Now(), URL: u}
	if err := m.ask(ctx, relayQuestion{&x}); err != nil {
		return RelayFollowState{}, fmt.Errorf("explaining %s: %w", u, err)
	}
	t := m.relayFilter
	x.Listed, x.Examples = m.index.Listing(u)
	x.Reason = t.unreachable(u)
	switch {
	case t.ours(u):
		x.Is, x.Reason = RelayOurs, ""
	case x.Status != nil:
		x.Is = RelayFollowed
	case t.blocked(u):
		x.Is = RelayBlocked
	case !m.isReady():
		x.Is = RelayUnread
	case x.Listed == 0:
		x.Is = RelayNotFollowed
	default:
		x.Is = RelayLeftOut
		if full := len(m.Status().Relays) >= m.cfg.constants.MaxRelays; x.Reason == "" && full {
			x.Reason = OmitNoRoom
		} else if x.Reason == "" {
			x.Reason = OmitWindow
		}
	}
	return x, nil
}

// relayQuestion asks for the plan's state of a relay.
type relayQuestion struct{ *RelayFollowState }

func (x relayQuestion) handle(_ context.Context, l *loop) {
	p, ok := l.plan.Detail(x.URL)
	if !ok {
		return
	}
	s := l.status.relayStatus(p.RelayStatus)
	if snapshot := l.m.snapshot.Load(); snapshot != nil {
		if i := slices.IndexFunc(snapshot.Relays, func(r RelayStatus) bool { return r.URL == x.URL }); i >= 0 {
			s.Synced, s.SyncTime = snapshot.Relays[i].Synced, snapshot.Relays[i].SyncTime
		}
	}
	x.Status = &s
	for _, of := range []Excluded{{Count: p.NoRoom, Reason: OmitNoRoom}, {Count: p.TooLarge, Reason: OmitTooLarge}} {
		if of.Count > 0 {
			x.LeftOut = append(x.LeftOut, of)
		}
	}
	for _, r := range p.Resting[:min(len(p.Resting), maxOmitted)] {
		x.LeftOut = append(x.LeftOut, Excluded{What: graspsync.Printable(r.Filter), Reason: OmitRefused, At: r.Until})
	}
	if st := l.stats[x.URL]; st != nil {
		aside := st.allAside()
		for _, v := range aside[:min(len(aside), maxOmitted)] {
			x.LeftOut = append(x.LeftOut, Excluded{What: graspsync.Printable(v.Tag + " " + v.Value), Reason: OmitFailing, At: v.Until})
		}
	}
	if !p.WaitsSince.IsZero() {
		x.LeftOut = append(x.LeftOut, Excluded{Reason: OmitUndialed, At: p.WaitsSince})
	}
}
