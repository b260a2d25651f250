package sync

import (
	"context"
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
	// Want contains the relay URL and the clone URL that the announcement must list.
	Want [2]string `json:"want"`
	// Announcement is the newest known announcement, or nil.
	Announcement *EventState `json:"announcement,omitempty"`
	// Status is nil if the repository is not followed.
	Status *RepoStatus `json:"status,omitempty"`
	// Waiting is the number of events that wait for the announcement.
	Waiting int `json:"waiting"`
}

// RelayCode classifies a relay.
type RelayCode string

// Codes of a [RelayFollowState].
const (
	RelayFollowed    RelayCode = "followed"
	RelayOurs        RelayCode = "ours"         // this server
	RelayNotFollowed RelayCode = "not followed" // not listed by any repository
	RelayBlocked     RelayCode = "blocked"      // by [Config].Rules
	RelayUnread      RelayCode = "not read"     // the Store has not been read
	// A listed relay is not followed for one of these reasons.
	RelayUnresolvable RelayCode = "unresolvable" // not a name in public DNS
	RelayPlaintext    RelayCode = "plaintext"    // not encrypted
	RelayNoRoom       RelayCode = "no room"      // too many relays are followed
	RelayWindow       RelayCode = "batch window" // followed when the batch window closes
)

// RelayFollowState explains why a relay is followed or not.
type RelayFollowState struct {
	Now time.Time          `json:"now,omitzero"`
	URL graspsync.RelayURL `json:"url"`
	Is  RelayCode          `json:"is"`
	// Status is nil if the relay is not followed.
	Status *RelayStatus `json:"status,omitempty"`
	// Listed is the number of hosted repositories that list the relay. Examples are up to 3 of
	// them.
	Listed   int                 `json:"listed"`
	Examples []graspsync.RepoRef `json:"examples,omitempty"`
}

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
	switch all, err := m.RepoStatus(ctx, x.Ref); {
	case err != nil:
		return err
	case len(all) > 0:
		x.Status, x.Is = &all[0], RepoFollowed
		if x.Status.Level != levelFull {
			x.Is = RepoHeld
		}
	case !m.isReady():
		x.Is, x.Reason = RepoStarting, m.Status().StoreError
		return nil
	}
	announcements := nostr.Filter{
		Kinds: []int{graspsync.KindAnnouncement}, Authors: []string{x.Ref.Owner.String()}, Tags: nostr.TagMap{"d": {x.Ref.Identifier}},
	}
	stored, err := m.readOne(ctx, announcements)
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

// storedAnnouncement describes a repository by its stored announcement.
func (m *SyncManager) storedAnnouncement(x *RepoFollowState, stored graspsync.Event) {
	x.Announcement = &EventState{ID: stored.ID, Is: IsStored, Event: headOf(stored)}
	a, err := nip34.ParseAnnouncement(stored)
	if err != nil {
		x.Is = RepoLeft
		return
	}
	switch ours, _ := m.index.Listed(a); {
	case x.Is == RepoFollowed:
	case m.cfg.Rules != nil && m.cfg.Rules.BlocksRepository(x.Ref):
		x.Is = RepoBlocked
	case ours: // it is followed when the batch window closes
		x.Is = RepoFollowed
	case x.Is == RepoHeld:
	default:
		x.Is, x.Reason = RepoLeft, unlisted(m.identity, a).Message()
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
		return nil
	}
	waits, n := m.ingest.rejected.Awaiting(pending.KeyOf(graspsync.OnRepo(x.Ref)))
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
	if x.Announcement == nil {
		x.Announcement = m.telemetry.states.announcement(x.Ref)
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

// RelayFollowState explains why a relay is followed or not. It blocks like RepoStatus and does not read the Store. The error is that of ctx, or [ErrNotRunning].
func (m *SyncManager) RelayFollowState(ctx context.Context, u graspsync.RelayURL) (RelayFollowState, error) {
	x := RelayFollowState{Now: time.Now(), URL: u}
	if err := m.ask(ctx, relayQuestion{&x}); err != nil {
		return RelayFollowState{}, fmt.Errorf("explaining %s: %w", u, err)
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
	case m.tooPlain(u):
		x.Is = RelayPlaintext
	case x.Listed == 0:
		x.Is = RelayNotFollowed
	case len(m.snapshot.Load().Relays) >= m.cfg.constants.MaxRelays:
		x.Is = RelayNoRoom
	default:
		x.Is = RelayWindow
	}
	return x, nil
}

// relayQuestion asks for the plan's state of a relay.
type relayQuestion struct{ *RelayFollowState }

func (x relayQuestion) handle(_ context.Context, l *loop) {
	p, ok := l.plan.RelayStatus(x.URL)
	if !ok {
		return
	}
	s := l.status.relayStatus(p)
	snapshot := l.m.snapshot.Load().Relays
	if i := slices.IndexFunc(snapshot, func(r RelayStatus) bool { return r.URL == x.URL }); i >= 0 {
		s.Synced = snapshot[i].Synced
	}
	x.Status = &s
}
