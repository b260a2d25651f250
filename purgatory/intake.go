package purgatory

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory/internal/refplan"
)

// intake takes in events, and what is told of pushes: it finds out whether something has to
// wait, and has it do so.
type intake struct {
	cfg      *Config
	report   *report
	repos    containedRepositories
	step     func(name string)
	inbox    *inbox
	findings *findings
	sessions *fetchSessions
	pending  *pendingEvents
	reader   *reader
	schedule *schedule
}

// submit is [Purgatory.Submit].
func (in *intake) submit(ctx context.Context, ev graspsync.Event, src graspsync.Source) (Answer, error) {
	if ev.IsZero() {
		return Answer{}, fmt.Errorf("submitting an event: %w: none", graspsync.ErrEvent)
	}
	e, err := entryOf(ev, src.Kind == graspsync.Direct)
	e.From = src.Relay.HostPort().Host
	answer, err := in.take(ctx, e, err)
	if err == nil && (answer.Decision == Refused || answer.Decision == Full) {
		e.ID = ev.ID // what is malformed has none yet
		in.report.refused(e, answer.Reason)
	}
	return answer, err
}

// take takes in an entry, if its event could be read.
func (in *intake) take(ctx context.Context, e refplan.Entry, err error) (Answer, error) {
	switch {
	case errors.Is(err, errNotOurs):
		return Answer{Decision: Pass}, nil
	case err != nil:
		return Answer{Refused, nip34.Reason(err)}, nil
	}
	var payers []graspsync.PubKey
	if e.Class == refplan.Announcement {
		lists, err := in.reader.stored.relay.Lists(e.Announces)
		if err != nil {
			return Answer{}, fmt.Errorf("asking whether a repository is ours: %w", err)
		}
		if !lists {
			var answer Answer
			if answer, payers, err = in.holdRelative(ctx, &e); err != nil || len(payers) == 0 {
				return answer, err
			}
		}
	}
	if e.Class == refplan.Announcement {
		active, err := in.reader.accepted(ctx, e.Repos[0])
		if err != nil || active {
			return Answer{Decision: Pass}, err
		}
	}
	older, err := in.reader.older(ctx, e)
	switch {
	case err != nil:
		return Answer{}, err
	case older:
		return Answer{Refused, reasonOlder}, nil
	}
	answer, err := in.hold(ctx, e, payers...)
	if err != nil || answer.Decision != Held || e.Class != refplan.Announcement || !e.ByUser {
		return answer, err
	}
	in.revive(ctx, e.Repos[0])
	if waiting, ok := in.pending.announcement(e.Repos[0]); !ok || waiting.Soft {
		return answer, nil
	}
	ctx, cancel := context.WithTimeout(ctx, in.cfg.fixed.Timeout)
	defer cancel()
	if err := in.repos.Create(ctx, e.Repos[0], nip34.SHA1); err != nil {
		return Answer{}, fmt.Errorf("creating repository: %w", err)
	}
	in.step("created")
	return answer, nil
}

// hold makes an entry one that waits: on the disk first. payers are those for whom a relative
// may count.
func (in *intake) hold(ctx context.Context, e refplan.Entry, payers ...graspsync.PubKey) (Answer, error) {
	e, refusal, replaced, evicted, err := in.pending.admit(ctx, e, payers)
	for _, old := range evicted {
		in.pending.gaveWay(ctx, old)
	}
	if err != nil {
		return Answer{}, err
	}
	switch refusal.Reason {
	case "":
	case reasonAuthor:
		in.report.drop("author")
		return refusal, nil
	case reasonFull:
		in.report.drop("full")
		return refusal, nil
	default:
		return refusal, nil
	}
	in.step("held")
	for _, old := range replaced {
		in.pending.strike(ctx, old)
		if old.ID == e.ID {
			return Answer{Refused, reasonSuperseded}, nil
		}
		in.report.ended(old, Replaced)
		if old.Class == refplan.Announcement && e.Class == refplan.Relative { // its owner takes it from us
			in.findings.touch(old.Repos[0])
			in.inbox.tell(news{identifier: old.Repos[0].Identifier, why: refplan.Reasons{Left: map[graspsync.RepoRef]bool{old.Repos[0]: true}}})
		}
	}
	in.report.began(e)
	in.countClones(e)
	if e.Class == refplan.State {
		in.alive(ctx, e)
		if e.ByUser {
			in.makeAnew(ctx, e)
		}
	}
	in.inbox.tell(wanted{entry: e})
	return Answer{Held, Message}, nil
}

// makeAnew has repositories that are empty hash as a state says that a user submitted: a push is
// next, and git begins it by what it finds. They were made for SHA-1. What can't be made anew now
// is by the look that follows.
func (in *intake) makeAnew(ctx context.Context, state refplan.Entry) {
	st, err := nip34.ParseState(state.Signed())
	if err != nil || !slices.ContainsFunc(slices.Collect(maps.Values(st.Refs)), func(id nip34.ObjectID) bool { return id.Format() != nip34.SHA1 }) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, in.cfg.fixed.Timeout/lockShare)
	defer cancel()
	g, err := in.reader.gatherAll(ctx, st.Ref.Identifier, false)
	if err != nil {
		in.cfg.Logger.Debug("repositories are made anew later", keyEvent, state.ID.String(), keyError, graspsync.Printable(err.Error()))
		return
	}
	refs := g.Sources(g.Repository(st.Ref), maxSources, shuffled)
	for _, ref := range append([]graspsync.RepoRef{st.Ref}, refs...) {
		r := g.Repository(ref)
		format, known := g.FormatOf(r)
		if !known || !g.IsOurs(ref) || !r.IsMember(st.Ref.Owner) {
			continue
		}
		if err := in.remake(ctx, ref, format); err != nil {
			in.cfg.Logger.Debug("a repository is made anew later", keyRepo, graspsync.Printable(ref.String()), keyError, graspsync.Printable(err.Error()))
		}
	}
}

// remake makes an empty repository anew, unless something is being fetched for it.
func (in *intake) remake(ctx context.Context, ref graspsync.RepoRef, format nip34.ObjectFormat) error {
	leave, free := in.sessions.take(ref)
	if !free {
		return ErrInUse
	}
	defer leave()
	return in.repos.Create(ctx, ref, format)
}

// countClones counts the clone URLs of an event that are not hunted.
func (in *intake) countClones(e refplan.Entry) {
	switch e.Class {
	case refplan.Announcement:
		in.countListed(e.Announces)
	case refplan.PullRequest:
		in.report.dropSome("clones", in.cfg.beyond(e.Pull.Clones, e.Pull.DroppedClones))
		in.report.unusable(e.Event, e.Pull.UnusableClones)
	}
}

// countListed is countClones for an announcement, whether it waits or not.
func (in *intake) countListed(a *nip34.Announcement) {
	in.report.dropSome("clones", in.cfg.beyond(a.Clones, a.DroppedClones))
	in.report.unusable(a.Event, a.UnusableClones)
}

// holdRelative takes in an announcement that makes no repository ours. What somebody wants
// whose repository is served may be stored. What is wanted by those only who wait themselves
// waits with them, at the cost of one of them, and so does for a while, at the cost of its
// author, what takes the place of one that waits. e is to be held if there are payers.
func (in *intake) holdRelative(ctx context.Context, e *refplan.Entry) (_ Answer, payers []graspsync.PubKey, err error) {
	a := e.Announces
	served, err := in.reader.stored.announcements(ctx, a.Ref.Identifier)
	if err != nil {
		return Answer{}, nil, fmt.Errorf("reading announcements: %w", err)
	}
	w, err := in.reader.wanting(ctx, a.Ref.Identifier, served, in.pending.relatives(a.Ref.Identifier))
	if err != nil {
		return Answer{}, nil, err
	}
	if _, is := w.served[e.Author]; is {
		return Answer{Decision: Pass}, nil, nil
	}
	e.Class = refplan.Relative
	payers = w.payers(a)
	if _, leaves := in.pending.announcement(a.Ref); leaves {
		payers = append(payers, e.Author)
	}
	if len(payers) == 0 {
		in.report.drop("listed")
		return Answer{Refused, reasonListed}, nil, nil
	}
	return Answer{}, payers, nil
}

// staged is [Purgatory.Staged].
func (in *intake) staged(ref graspsync.RepoRef, ids []graspsync.EventID) {
	waits := slices.ContainsFunc(ids, func(id graspsync.EventID) bool {
		e, ok := in.pending.get(id)
		return ok && e.Class == refplan.PullRequest
	})
	if waits {
		in.findings.touch(ref)
		in.inbox.tell(news{identifier: ref.Identifier})
	}
}

// alive takes a new state event for a sign of life of the announcements that wait and
// whose maintainers its author is one of, and revives those that expired softly.
func (in *intake) alive(ctx context.Context, state refplan.Entry) {
	identifier := state.Repos[0].Identifier
	entries := in.pending.announcementsUnder(identifier)
	if len(entries) == 0 {
		return
	}
	served, err := in.reader.stored.announcements(ctx, identifier)
	if err != nil {
		in.cfg.Logger.Warn("reading announcements failed", keyError, graspsync.Printable(err.Error()))
		served = nil // those that wait may do
	}
	var waiting []*nip34.Announcement
	for _, e := range entries {
		waiting = append(waiting, e.Announces)
	}
	family, err := in.reader.family(ctx, identifier, served, waiting, in.pending.relatives(identifier))
	if err != nil {
		in.cfg.Logger.Warn("reading announcements failed", keyError, graspsync.Printable(err.Error()))
		family = in.cfg.Membership.Family(identifier, slices.Concat(served, waiting))
	}
	for _, e := range entries {
		if family.Authority(e.Repos[0]).Has(state.Author) {
			in.pending.sign(ctx, e.Repos[0], true)
		}
	}
}

// revive has an announcement wait again that has expired softly: the user who submits it
// again is about to push.
func (in *intake) revive(ctx context.Context, ref graspsync.RepoRef) {
	if waiting, ok := in.pending.announcement(ref); ok && waiting.Soft {
		in.pending.sign(ctx, ref, true)
		in.inbox.tell(news{identifier: ref.Identifier})
	}
}

// pushed is [Purgatory.Pushed].
func (in *intake) pushed(ctx context.Context, ref graspsync.RepoRef, refs []nip34.RefName) {
	in.pending.pushing(ref, refs) // who did not say so before says it now
	in.schedule.brought(ref)
	// Anybody may push for an event: only what a state authorises is a sign of life.
	if len(refs) == 0 || slices.ContainsFunc(refs, refplan.IsState) {
		in.pending.sign(ctx, ref, false)
	}
	in.findings.touch(ref)
	in.inbox.tell(news{identifier: ref.Identifier, why: refplan.Reasons{Gained: map[graspsync.RepoRef]bool{ref: true}}})
}

// arrived is [Purgatory.Arrived].
func (in *intake) arrived(ev graspsync.Event) {
	if ev.IsZero() {
		return
	}
	if ev.Kind == graspsync.KindAnnouncement {
		if _, waits := in.pending.get(ev.ID); !waits { // else it was counted when it was let in
			if a, err := nip34.ParseAnnouncement(ev); err == nil {
				in.countListed(a)
			}
		}
	}
	switch ev.Kind {
	case graspsync.KindDeletion, kindVanish:
		in.pending.askAgain(ev.PubKey) // at once: who looks meanwhile asks
		in.inbox.tell(arrived{ev})
	case graspsync.KindAnnouncement, graspsync.KindPullRequest, graspsync.KindPullRequestUpdate:
		in.inbox.tell(arrived{ev})
	}
}

// departed is [Purgatory.Departed].
func (in *intake) departed(ev graspsync.Event) {
	switch {
	case ev.IsZero():
	case ev.Kind == graspsync.KindAnnouncement:
		in.inbox.tell(arrived{ev}) // that has its repository looked at
	case ev.Kind == graspsync.KindState:
		if st, err := nip34.ParseState(ev); err == nil {
			in.inbox.tell(news{identifier: st.Ref.Identifier, why: refplan.Reasons{Unsaid: map[graspsync.PubKey]bool{st.Ref.Owner: true}}})
		}
	}
}

const kindVanish = 62
