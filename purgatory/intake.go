package purgatory

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"unicode/utf8"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory/internal/refplan"
)

// Submit holds an event that the relay would accept, which is authorized, verified and not deleted.
// After an error the event may or may not be held, and may be submitted again.
//
// A held event is on the disk. For events of clients, Submit waits for git, because a push follows:
// it creates the repository of an announcement, and gives an empty repository the object format of a
// state. Data for an event of a client is fetched after 3 min, for an event of sync after 500 ms.
func (p *Purgatory) Submit(ctx context.Context, ev graspsync.Event, src graspsync.Source) (Answer, error) {
	if ev.IsZero() {
		return Answer{}, fmt.Errorf("submitting an event: %w: none", graspsync.ErrEvent)
	}
	e, err := entryOf(ev, src.Kind == graspsync.Direct)
	e.From = src.Relay.HostPort().Host
	answer, err := p.decide(ctx, e, err)
	if err == nil && (answer.Decision == Refused || answer.Decision == Full) {
		e.ID = ev.ID // a malformed event has no id yet
		p.report.refused(e, answer.Reason)
	}
	return answer, err
}

// entryOf returns an error if events of this kind are never held.
func entryOf(ev graspsync.Event, byUser bool) (refplan.Entry, error) {
	e := refplan.Entry{Event: ev.Event, ByUser: byUser, Size: int64(sizeOf(ev.Event))}
	if isHeldKind(ev.Kind) && !isText(ev.Event) {
		return e, errNotText
	}
	switch ev.Kind {
	case graspsync.KindAnnouncement:
		a, err := nip34.ParseAnnouncement(ev)
		if err != nil {
			return e, err
		}
		e.Class, e.ID, e.Author, e.Version = refplan.Announcement, a.ID, a.Ref.Owner, a.Key()
		e.Repos, e.Announces = []graspsync.RepoRef{a.Ref}, a
		e.Size += int64(a.Size()) // the parsed announcements stay in memory
	case graspsync.KindState:
		s, err := nip34.ParseState(ev)
		if err != nil {
			return e, err
		}
		e.Class, e.ID, e.Author, e.Version = refplan.State, s.ID, s.Ref.Owner, s.Key()
		e.Repos, e.State = []graspsync.RepoRef{s.Ref}, s
		e.Size += int64(s.Size())
	case graspsync.KindPullRequest, graspsync.KindPullRequestUpdate:
		p, err := nip34.ParsePullRequest(ev)
		if err != nil {
			return e, err
		}
		e.Class, e.ID, e.Author, e.Repos = refplan.PullRequest, p.ID, p.Author, p.Repos
		e.Version, e.Pull = graspsync.EventKey{CreatedAt: p.CreatedAt, ID: p.ID}, p
		e.Size += int64(p.Size())
	default:
		return e, fmt.Errorf("%w: kind %d", errNotOurs, ev.Kind)
	}
	if at, expires := nip34.Expiration(ev.Event); expires {
		e.Expires = max(1, int64(at))
	}
	return e, nil
}

// sizeOf returns the approximate size of an event in memory, in bytes.
func sizeOf(ev *nostr.Event) int {
	n := 512 + len(ev.Content) + 24*len(ev.Tags)
	for _, t := range ev.Tags {
		for _, v := range t {
			n += len(v) + 16
		}
	}
	return n
}

func isHeldKind(kind int) bool {
	switch kind {
	case graspsync.KindAnnouncement, graspsync.KindState, graspsync.KindPullRequest, graspsync.KindPullRequestUpdate:
		return true
	}
	return false
}

var errNotOurs = errors.New("events of this kind do not wait for git data")

// errNotText is returned for invalid UTF-8, because JSON would change it at a restart.
var errNotText = errors.New("not all of the event is UTF-8")

func isText(ev *nostr.Event) bool {
	for _, t := range ev.Tags {
		if slices.ContainsFunc(t, func(v string) bool { return !utf8.ValidString(v) }) {
			return false
		}
	}
	return utf8.ValidString(ev.Content)
}

func (p *Purgatory) decide(ctx context.Context, e refplan.Entry, err error) (Answer, error) {
	switch {
	case errors.Is(err, errNotOurs):
		return Answer{Decision: Pass}, nil
	case err != nil:
		return Answer{Refused, nip34.Reason(err)}, nil
	}
	if e.Class == refplan.Announcement {
		lists, err := p.relay.Lists(e.Announces)
		if err != nil {
			return Answer{}, fmt.Errorf("asking whether a repository is ours: %w", err)
		}
		if !lists {
			if answer, err := p.judgeMaintainerAnnouncement(ctx, &e); err != nil || answer.Decision != Held {
				return answer, err
			}
		}
	}
	if e.Class == refplan.Announcement {
		active, err := p.announcementStored(ctx, e.Repos[0])
		if err != nil || active {
			return Answer{Decision: Pass}, err
		}
	}
	older, err := p.older(ctx, e)
	switch {
	case err != nil:
		return Answer{}, err
	case older:
		return Answer{Refused, reasonOlder}, nil
	}
	answer, err := p.hold(ctx, e)
	if err != nil || answer.Decision != Held || e.Class != refplan.Announcement || !e.ByUser {
		return answer, err
	}
	p.revive(ctx, e.Repos[0])
	if held, ok := p.pending.announcement(e.Repos[0]); !ok || held.Soft {
		return answer, nil
	}
	ctx, cancel := context.WithTimeout(ctx, p.cfg.fixed.Timeout)
	defer cancel()
	if err := p.repos.Create(ctx, e.Repos[0], nip34.SHA1); err != nil {
		return Answer{}, fmt.Errorf("creating repository: %w", err)
	}
	p.step("created")
	return answer, nil
}

// older reports whether a newer version is stored. The data of held versions may never arrive.
func (p *Purgatory) older(ctx context.Context, e refplan.Entry) (bool, error) {
	switch e.Class {
	case refplan.State:
		stored, err := p.relay.states(ctx, e.Repos[0].Identifier)
		if err != nil {
			return false, fmt.Errorf("reading states: %w", err)
		}
		return slices.ContainsFunc(stored, func(s *nip34.State) bool {
			return s.Ref == e.Repos[0] && s.Key().Newer(e.Version)
		}), nil
	case refplan.Announcement:
		_, others, err := p.relay.announcements(ctx, e.Repos[0].Identifier)
		return slices.ContainsFunc(others, func(a *nip34.Announcement) bool {
			return a.Ref == e.Repos[0] && a.Key().Newer(e.Version)
		}), err
	}
	return false, nil
}

// judgeMaintainerAnnouncement decides about an announcement that does not list this service. It
// passes if a served announcement lists its author, and is held if only held ones do, or if it
// replaces one.
func (p *Purgatory) judgeMaintainerAnnouncement(ctx context.Context, e *refplan.Entry) (Answer, error) {
	a := e.Announces
	w, err := p.listings(ctx, a.Ref.Identifier)
	if err != nil {
		return Answer{}, err
	}
	if _, is := w.served[e.Author]; is {
		return Answer{Decision: Pass}, nil
	}
	e.Class = refplan.MaintainerAnnouncement
	if _, listed := w.held[e.Author]; !listed {
		if _, e.Replaces = p.pending.announcement(a.Ref); !e.Replaces {
			p.report.drop("listed")
			return Answer{Refused, reasonListed}, nil
		}
	}
	return Answer{Decision: Held}, nil
}

func (p *Purgatory) hold(ctx context.Context, e refplan.Entry) (Answer, error) {
	e, answer, replaced, evicted, err := p.pending.admit(ctx, e) // a held event is on the disk
	for _, old := range evicted {
		p.pending.removeEvicted(ctx, old)
	}
	if answer.Decision == Full {
		p.report.drop("full")
	}
	if err != nil || answer.Decision != Held || e.Seen.IsZero() {
		return answer, err
	}
	p.step("held")
	for _, old := range replaced {
		p.pending.deleteRecord(ctx, old)
		p.report.ended(old, Replaced)
		if old.Class == refplan.Announcement && e.Class == refplan.MaintainerAnnouncement { // the owner no longer lists this service
			p.pending.warn(&old, "remembering a replaced announcement failed", p.pending.remember(ctx, old, Replaced))
			p.jobs.AddRelease(old.Repos[0], refplan.Reasons{Left: map[graspsync.RepoRef]bool{old.Repos[0]: true}})
		}
	}
	p.report.began(e)
	p.countClones(e)
	if e.Class == refplan.State {
		p.extendAnnouncements(ctx, e)
	}
	p.addJobs(e)
	if e.Class == refplan.State && e.ByUser {
		p.awaitFormat(ctx, e.State)
	}
	return answer, nil
}

// addJobs queues the survey or releases that a held event needs.
func (p *Purgatory) addJobs(e refplan.Entry) {
	why := refplan.Reasons{Authors: map[graspsync.PubKey]bool{e.Author: e.ByUser}}
	switch {
	case e.Soft:
		return
	case e.Class == refplan.PullRequest:
		for _, ref := range e.Repos {
			p.jobs.AddRelease(ref, why)
		}
		return
	case e.Class == refplan.Announcement: // it may name servers for events that are held already
		p.jobs.AddRelease(e.Repos[0], why)
	case e.Replaces: // the process may have been killed before the release
		why.Left = map[graspsync.RepoRef]bool{e.Repos[0]: true}
	}
	p.jobs.AddSurvey(e.Repos[0].Identifier, why) // runJob surveys
}

// awaitFormat waits until a release has given an empty repository the object format of a state,
// because git starts the following push in that format.
func (p *Purgatory) awaitFormat(ctx context.Context, s *nip34.State) {
	for _, id := range s.Refs {
		if id.Format() == nip34.SHA1 {
			continue
		}
		p.jobs.AddRelease(s.Ref, refplan.Reasons{})
		ctx, cancel := context.WithTimeout(ctx, p.cfg.fixed.Timeout/lockShare)
		defer cancel()
		_ = p.jobs.Wait(ctx, s.Ref) // else the push fails, and may be repeated
		return
	}
}

func (p *Purgatory) countClones(e refplan.Entry) {
	switch e.Class {
	case refplan.Announcement:
		p.countListed(e.Announces)
	case refplan.PullRequest:
		p.report.dropSome("clones", p.cfg.beyond(e.Pull.Clones, e.Pull.DroppedClones))
		p.report.dropSome("clones_unusable", e.Pull.UnusableClones)
	}
}

func (p *Purgatory) countListed(a *nip34.Announcement) {
	p.report.dropSome("clones", p.cfg.beyond(a.Clones, a.DroppedClones))
	p.report.dropSome("clones_unusable", a.UnusableClones)
}

// Staged reports that a push has staged data for events.
func (p *Purgatory) Staged(ref graspsync.RepoRef, ids []graspsync.EventID) {
	held := slices.ContainsFunc(ids, func(id graspsync.EventID) bool {
		e, ok := p.pending.get(id)
		return ok && e.Class == refplan.PullRequest
	})
	if held {
		p.jobs.AddRelease(ref, refplan.Reasons{})
	}
}

func (p *Purgatory) extendAnnouncements(ctx context.Context, state refplan.Entry) {
	identifier := state.Repos[0].Identifier
	entries := p.pending.named(identifier, ofClass(refplan.Announcement))
	if len(entries) == 0 {
		return
	}
	w, err := p.listings(ctx, identifier)
	if err != nil {
		p.cfg.Logger.Warn("extending the holds of announcements failed", keyError, graspsync.Printable(err.Error()))
		return
	}
	for _, e := range entries {
		if w.family.Authority(e.Repos[0]).Has(state.Author) {
			p.pending.extendAnnouncement(ctx, e.Repos[0], true)
		}
	}
}

func (p *Purgatory) revive(ctx context.Context, ref graspsync.RepoRef) {
	if held, ok := p.pending.announcement(ref); ok && held.Soft {
		p.pending.extendAnnouncement(ctx, ref, true)
	}
}

// Pushed reports that a push has brought data to a repository and moved refs. It is called after
// the push has released the lock. The hourly check finds pushes that were not reported.
func (p *Purgatory) Pushed(ctx context.Context, ref graspsync.RepoRef, refs []nip34.RefName) {
	p.Pushing(ref, refs)
	p.maintenance.brought(ref)
	// Anyone may push for a pull request, so its refs are no sign of life.
	if len(refs) == 0 || slices.ContainsFunc(refs, refplan.IsState) {
		p.pending.extendAnnouncement(ctx, ref, false)
	}
	p.jobs.AddRelease(ref, refplan.Reasons{Receivers: map[graspsync.RepoRef]bool{ref: true}})
}

// NotifyStored reports that the relay has stored an event. Of the events that a deletion or a request
// to vanish removes, it concerns only the held ones. Report the stored ones to
// [Purgatory.NotifySuperseded].
func (p *Purgatory) NotifyStored(ev graspsync.Event) {
	if ev.IsZero() {
		return
	}
	_, held := p.pending.get(ev.ID)
	switch ev.Kind {
	case graspsync.KindDeletion, graspsync.KindVanish:
		why := refplan.Reasons{Deleters: map[graspsync.PubKey]bool{ev.PubKey: true}}
		for _, e := range p.pending.ofAuthor(ev.PubKey) {
			for _, ref := range e.Repos {
				if p.jobs.AddSurvey(ref.Identifier, why); e.Class == refplan.PullRequest {
					p.jobs.AddRelease(ref, why)
				}
			}
		}
	case graspsync.KindAnnouncement:
		if a, err := nip34.ParseAnnouncement(ev); err == nil && !held { // else it was counted by Submit
			p.countListed(a)
		}
		p.NotifySuperseded(ev)
	case graspsync.KindPullRequest, graspsync.KindPullRequestUpdate:
		if pr, err := nip34.ParsePullRequest(ev); err == nil && !held {
			p.holdStored(ev, pr)
		}
	}
}

// holdStored holds a stored pull request whose data was staged, because it has no ref yet.
func (p *Purgatory) holdStored(ev graspsync.Event, pr *nip34.PullRequest) {
	if !slices.ContainsFunc(pr.Repos, func(ref graspsync.RepoRef) bool { return len(p.repos.Staged(ref, pr.ID)) > 0 }) {
		return
	}
	if _, err := p.Submit(context.Background(), ev, graspsync.Source{Kind: graspsync.CatchUp}); err != nil {
		p.cfg.Logger.Warn("importing staged data failed", keyEvent, pr.ID.String(), keyError, graspsync.Printable(err.Error()))
	}
}

// NotifySuperseded reports that the relay has replaced, deleted or removed a stored event. The hourly
// check finds events that were not reported.
func (p *Purgatory) NotifySuperseded(ev graspsync.Event) {
	if ev.IsZero() {
		return
	}
	switch ev.Kind {
	case graspsync.KindAnnouncement:
		if a, err := nip34.ParseAnnouncement(ev); err == nil {
			why := refplan.Reasons{Authors: map[graspsync.PubKey]bool{a.Ref.Owner: false}, Left: map[graspsync.RepoRef]bool{a.Ref: true}}
			p.jobs.AddSurvey(a.Ref.Identifier, why)
			p.jobs.AddRelease(a.Ref, why) // it may not list this service
		}
	case graspsync.KindState:
		if st, err := nip34.ParseState(ev); err == nil {
			p.jobs.AddSurvey(st.Ref.Identifier, refplan.Reasons{Deleters: map[graspsync.PubKey]bool{st.Ref.Owner: true}})
		}
	case graspsync.KindPullRequest, graspsync.KindPullRequestUpdate:
		if pr, err := nip34.ParsePullRequest(ev); err == nil {
			for _, ref := range pr.Repos {
				p.jobs.AddRelease(ref, refplan.Reasons{Check: true})
			}
		}
	}
}

// Decision is the result of [Purgatory.Submit].
type Decision uint8

const (
	// Pass: the event needs no hold. It may be stored now.
	Pass Decision = iota + 1
	// Held: the event is held, and on the disk.
	Held
	// Refused: the event can not be held. Answer.Reason has the reason.
	Refused
	// Full: too many events are held. The event may be submitted again later.
	Full
)

// Answer is the answer of [Purgatory.Submit].
type Answer struct {
	Decision Decision
	Reason   string // for a client, in the words of an OK message (NIP-01)
}

const (
	reasonSuperseded = "duplicate: a newer version waits"
	reasonOlder      = "duplicate: a newer version is served"
	reasonExpired    = "blocked: its git data never came"
	reasonFull       = "error: too many events wait for git data"
	reasonListed     = "rate-limited: too many are listed by announcements of this name that wait for git data"
	reasonPulls      = "rate-limited: the refs of pull requests take up all the room in this repository. Try again later"
)
