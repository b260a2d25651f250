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
	"github.com/graspsync/graspsync/sync/internal/absent"
)

// RepoExplanation says why a repository is here, or is not, and what of it is followed. String has
// it in sentences.
type RepoExplanation struct {
	Now time.Time         `json:"now"`
	Ref graspsync.RepoRef `json:"ref"`
	Is  RepoStanding      `json:"is"`
	Why string            `json:"why,omitempty"` // it is not ours
	// Kept: its announcement does not list us, and is kept since one that does lists its author as a
	// maintainer.
	Kept bool `json:"kept,omitempty"`
	// Want is what its announcement would have to list, as relay and as clone URL.
	Want [2]string `json:"want"`
	// Announcement is what is known of the newest one that we have met; nil: none.
	Announcement *EventExplanation `json:"announcement,omitempty"`
	// Status is nil for one that is not followed.
	Status *RepoStatus `json:"status,omitempty"`
	// LeftOut are relays that its announcement lists and that are not followed for it, and what it
	// lists that is no URL of a relay, or none to fetch git data from.
	LeftOut []LeftOut `json:"left_out,omitempty"`
	// Refused are announcements and states of its owner that were not stored, the newest first,
	// as far as that is remembered: up to 20.
	Refused []EventExplanation `json:"refused,omitempty"`
	// Waiting is how many events wait for its announcement.
	Waiting    int         `json:"waiting"`
	Relays     int         `json:"relays"` // are followed, by whatever reason
	StillToAsk []ToBeAsked `json:"still_to_ask,omitempty"`
}

// RepoStanding is what a repository is to us.
type RepoStanding string

// What a repository is.
const (
	RepoFollowed RepoStanding = "followed" // it is ours
	RepoHeld     RepoStanding = "held"     // its announcement is held by the Policy; its states are followed
	RepoLeft     RepoStanding = "left"     // an announcement of it is here that does not list us
	RepoRejected RepoStanding = "rejected" // its announcement came and was not stored
	RepoDeleted  RepoStanding = "deleted"  // its owner has deleted it
	RepoStarting RepoStanding = "not read" // the Store has not been read yet
	RepoUnknown  RepoStanding = "unknown"  // no announcement of it has come
	RepoBlocked  RepoStanding = "blocked"  // by [Config].Rules, whatever its announcement lists
)

// LeftOut is something that is not followed, and why.
type LeftOut struct {
	What string `json:"what"` // made safe to show
	Why  string `json:"why"`
}

// repo is [SyncManager.ExplainRepo].
func (q *explainer) repo(ctx context.Context, ref graspsync.RepoRef) (RepoExplanation, error) {
	x := RepoExplanation{Now: time.Now(), Ref: ref, Want: [2]string{q.index.us.RelayURL(), q.index.us.CloneURL(ref)}}
	wrap := func(err error) (RepoExplanation, error) {
		return RepoExplanation{}, fmt.Errorf("explaining %s: %w", ref, err)
	}
	if why := q.unreadable(); why != "" {
		x.Is, x.Why = RepoStarting, why
		return x, nil
	}
	s, err := q.repoStatus(ctx, ref)
	switch {
	case err == nil:
		x.Status, x.Is = &s, RepoFollowed
		if s.Level != levelFull {
			x.Is = RepoHeld
		}
	case !errors.Is(err, ErrUnknownRepo):
		return wrap(err)
	}
	if x.Refused, err = q.refused(ctx, ref); err != nil {
		return wrap(err)
	}
	ev, err := q.readOne(ctx, announcementsOf(ref))
	if err != nil {
		return wrap(err)
	}
	if err := q.announcementOf(ctx, &x, ev); err != nil {
		return wrap(err)
	}
	x.Refused = slices.DeleteFunc(x.Refused, func(r EventExplanation) bool { // versions that would have given way
		return !ev.IsZero() && r.Event.Kind == ev.Kind && r.Event.CreatedAt.Before(ev.CreatedAt.Time())
	})
	x.Relays, x.StillToAsk = q.stillToAsk()
	if x.Is == "" {
		if err := q.notOurs(ctx, &x, ev); err != nil {
			return wrap(err)
		}
	}
	return x, nil
}

// unreadable is why the Store, which was not read yet, can't be read; "" if it can.
func (q *explainer) unreadable() string {
	if q.readable.is() {
		return ""
	}
	return q.status().StoreError
}

// refused returns what was said of announcements and states of a repository's owner that are not
// stored, and were not since.
func (q *explainer) refused(ctx context.Context, ref graspsync.RepoRef) (out []EventExplanation, err error) {
	all := slices.DeleteFunc(q.report.verdicts.of(ref, 2*mostRefused), func(v verdict) bool {
		return v.is == IsGone || q.outlived(v)
	})
	ids := make([]graspsync.EventID, len(all))
	for i, v := range all {
		ids[i] = v.id
	}
	has, err := q.ingest.store.has(ctx, ids)
	if err != nil {
		return nil, err
	}
	for i, v := range all {
		if has[i] || len(out) >= mostRefused {
			continue
		}
		r := EventExplanation{Now: time.Now(), ID: v.id}
		r.said(v)
		out = append(out, r)
	}
	return out, nil
}

// levelFull is that of [RepoStatus].
const levelFull = "full"

// announcementOf finds the newest announcement of a repository, and what of it is left out.
func (q *explainer) announcementOf(ctx context.Context, x *RepoExplanation, stored graspsync.Event) error {
	if !stored.IsZero() {
		x.Announcement = &EventExplanation{Now: x.Now, ID: stored.ID, Is: IsStored, Event: headOf(stored)}
		if a, err := nip34.ParseAnnouncement(stored); err == nil {
			if ours, _ := q.index.listed(a); ours && x.Is == RepoHeld {
				x.Is = RepoFollowed // it was released, and all of it is asked for once the batch window is over
			}
			x.LeftOut = q.targeting.leftOut(a, q.cfg.Limits.MaxRelaysPerRepo)
		}
		return nil
	}
	held, waits, err := q.held(ctx, announcementsOf(x.Ref))
	if err != nil {
		return err
	}
	if !waits {
		return q.rejectedAnnouncement(ctx, x)
	}
	x.Is = RepoHeld // it may not be followed before the batch window is over
	x.Announcement = &EventExplanation{
		Now: x.Now, ID: held.ID, Is: IsHeld,
		Event: &EventHead{Kind: graspsync.KindAnnouncement, Author: x.Ref.Owner, CreatedAt: held.CreatedAt.Time()},
	}
	if a := q.ingest.policy.heldAnnouncement(ctx, x.Ref); a != nil {
		x.LeftOut = q.targeting.leftOut(a, q.cfg.Limits.MaxRelaysPerRepo)
	}
	return nil
}

func announcementsOf(ref graspsync.RepoRef) nostr.Filter {
	return nostr.Filter{
		Kinds: []int{graspsync.KindAnnouncement}, Authors: []string{ref.Owner.String()}, Tags: nostr.TagMap{"d": {ref.Identifier}},
	}
}

// held asks the Holder for the newest event that matches.
func (q *explainer) held(ctx context.Context, f nostr.Filter) (newest graspsync.Stamp, found bool, err error) {
	if q.cfg.Holder == nil {
		return newest, false, nil
	}
	defer q.report.recovered(&err, "policy")
	stamps, err := q.cfg.Holder.Held(ctx, f)
	for _, s := range stamps {
		if !found || s.Newer(newest) {
			newest, found = s, true
		}
	}
	return newest, found, err
}

// rejectedAnnouncement finds one that came and was not stored.
func (q *explainer) rejectedAnnouncement(ctx context.Context, x *RepoExplanation) error {
	waits, n := q.ingest.absences.absent.Awaiting(absent.KeyOf(graspsync.OnRepo(x.Ref)), mostRefused)
	for _, w := range waits {
		if w.Kind != graspsync.KindAnnouncement {
			continue
		}
		n--
		if x.Announcement != nil {
			continue
		}
		e, err := q.event(ctx, w.ID)
		if err != nil {
			return err
		}
		x.Announcement = &e
	}
	x.Waiting = n
	for i := range x.Refused {
		if x.Announcement == nil && x.Refused[i].Event.Kind == graspsync.KindAnnouncement {
			x.Announcement = &x.Refused[i]
		}
	}
	return nil
}

// notOurs says why a repository is not followed.
func (q *explainer) notOurs(ctx context.Context, x *RepoExplanation, stored graspsync.Event) error {
	switch {
	case !q.readable.is():
		x.Is, x.Why = RepoStarting, q.status().StoreError
		return nil
	case q.cfg.Rules != nil && q.cfg.Rules.BlocksRepository(x.Ref):
		x.Is = RepoBlocked
		return nil
	case !stored.IsZero():
		x.Is = RepoLeft
		a, err := nip34.ParseAnnouncement(stored)
		if err != nil {
			return nil //nolint:nilerr // then it makes no repository ours
		}
		if ours, _ := q.index.listed(a); ours {
			x.Is = RepoFollowed // once the batch window is over
			return nil
		}
		policy := NewGRASPPolicy(q.index.us)
		x.Why = unlisted(policy.identity, a).Message()
		listed, _ := policy.kinOf(x.Ref.Identifier, storeView{q.index, q.store}).wanted()
		_, x.Kept = listed[x.Ref.Owner]
		return nil
	}
	ev, err := q.readOne(ctx, nostr.Filter{
		Kinds: []int{graspsync.KindDeletion}, Authors: []string{x.Ref.Owner.String()}, Tags: nostr.TagMap{"a": {x.Ref.String()}},
	})
	if err != nil {
		return err
	}
	switch {
	case !ev.IsZero() && !x.announcedAfter(ev):
		x.Is, x.Why = RepoDeleted, "deletion "+ev.ID.String()+" of "+ev.CreatedAt.Time().UTC().Format(time.DateTime)
	case x.Announcement != nil:
		x.Is, x.Why = RepoRejected, x.Announcement.reason()
	default:
		x.Is = RepoUnknown
	}
	return nil
}

// announcedAfter reports whether a newer announcement than a deletion is known.
func (x *RepoExplanation) announcedAfter(deletion graspsync.Event) bool {
	return x.Announcement != nil && x.Announcement.Event != nil && x.Announcement.Event.CreatedAt.After(deletion.CreatedAt.Time())
}

// leftOut returns which relays of an announcement are not followed, and why.
func (t *targeting) leftOut(a *nip34.Announcement, most int) (out []LeftOut) {
	more := 0
	add := func(what, why string) {
		if len(out) == mostOmitted {
			more++
			return
		}
		out = append(out, LeftOut{graspsync.Printable(what), why})
	}
	places := 0
	for _, u := range a.Relays {
		if u.HostPort().Resolvable() {
			places++
		}
		switch why := t.unreachable(u); {
		case t.ours(u): // not left out: it is we
		case why != "":
			add(u.String(), why)
		case places > most:
			add(u.String(), fmt.Sprintf("the first %d relays of an announcement count", most))
		}
	}
	unusable := a.UnusableRelays + a.UnusableClones
	if a.Event != nil {
		unusable = 0
		for u := range nip34.UnusableURLs(a.Event) {
			add(u.List+" "+u.Value, graspsync.Printable(u.Err.Error()))
		}
	}
	if more > 0 {
		out = append(out, LeftOut{fmt.Sprintf("%d more", more), "these are the first"})
	}
	if unusable > 0 {
		out = append(out, LeftOut{fmt.Sprintf("%d more", unusable), "they can't be used"})
	}
	if n := a.DroppedRelays + a.DroppedClones; n > 0 {
		out = append(out, LeftOut{fmt.Sprintf("%d more", n), fmt.Sprintf("the first %d relays and clone URLs count", nip34.MaxListed)})
	}
	return out
}
