package purgatoryadapter

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory"
	relaysync "github.com/graspsync/graspsync/sync"
)

// ErrNotJoined is returned by a [Policy] before [Policy.Join].
var ErrNotJoined = errors.New("purgatory is not open yet")

var errInnerHolds = errors.New("the inner policy held an event, but only purgatory may hold events")

// Policy is an inner policy, which must hold no events, with a purgatory behind it. It is safe for
// concurrent use.
//
// A held announcement counts as accepted for states, pull requests and their updates. Deletions apply to
// held events too. Clients are asked to submit other events of a held repository again.
type Policy struct {
	// Room, if set, returns why an event cannot be held now. It is set before Join.
	Room func(event graspsync.Event) error

	inner relaysync.Policy
	waits atomic.Pointer[purgatory.Purgatory]
}

var (
	_ relaysync.Policy = (*Policy)(nil)
	_ relaysync.Holder = (*Policy)(nil)
)

// NewPolicy returns a Policy.
func NewPolicy(inner relaysync.Policy) *Policy { return &Policy{inner: inner} }

// Configure returns cfg with p as Policy and Holder.
func (p *Policy) Configure(cfg relaysync.Config) relaysync.Config {
	cfg.Policy, cfg.Holder, cfg.Lacking = p, p, p.lacking
	return cfg
}

func (p *Policy) lacking() map[graspsync.RepoRef]bool {
	where, err := p.joined()
	if err != nil {
		return nil
	}
	return where.Lacking()
}

// Join sets the purgatory.
func (p *Policy) Join(where *purgatory.Purgatory) { p.waits.Store(where) }

func (p *Policy) joined() (*purgatory.Purgatory, error) {
	if where := p.waits.Load(); where != nil {
		return where, nil
	}
	return nil, ErrNotJoined
}

// Lists calls Lists of the inner policy.
func (p *Policy) Lists(a *nip34.Announcement) bool { return p.inner.Lists(a) }

// Judge implements [relaysync.Policy].
func (p *Policy) Judge(ctx context.Context, ev graspsync.Event, src graspsync.Source, view relaysync.View) (graspsync.Verdict, error) {
	where, err := p.joined()
	if err != nil {
		return graspsync.Verdict{}, err
	}
	waiting := waitingView{view, where, p.inner.Lists}
	switch ev.Kind {
	case graspsync.KindState, graspsync.KindPullRequest, graspsync.KindPullRequestUpdate:
		view = &waiting
	case graspsync.KindAnnouncement:
		if a, err := nip34.ParseAnnouncement(ev); err == nil && !p.inner.Lists(a) {
			// If it is accepted only because of held events, it must be held too.
			if v, err := p.ask(ctx, ev, src, view); err != nil || v.Decision == graspsync.Accept {
				return v, err
			}
			view = &waiting
		}
	case graspsync.KindDeletion, graspsync.KindVanish:
		return p.ask(ctx, ev, src, &heldView{waiting})
	default:
		v, err := p.ask(ctx, ev, src, view)
		if err == nil && v.Decision == graspsync.Depend && v.Detail == "" {
			v.Detail = waiting.early(v.DependsOn, src.Kind == graspsync.Direct)
		}
		return v, err
	}
	v, err := p.ask(ctx, ev, src, view)
	if err != nil || v.Decision != graspsync.Accept {
		return v, err
	}
	switch stored, err := view.Event(ctx, ev.ID); {
	case err != nil:
		return graspsync.Verdict{}, err
	case !stored.IsZero():
		return v, nil
	}
	if p.Room != nil {
		if err := p.Room(ev); err != nil {
			return graspsync.Verdict{}, fmt.Errorf("holding an event: %w", err)
		}
	}
	answer, err := where.Submit(ctx, ev, src)
	switch {
	case err != nil:
		return graspsync.Verdict{}, fmt.Errorf("holding an event: %w", err)
	case answer.Decision == purgatory.Pass:
		return v, nil
	case answer.Decision == purgatory.Held:
		return graspsync.Verdict{Decision: graspsync.Hold, Reason: purgatory.Message}, nil
	case answer.Decision == purgatory.Full:
		return graspsync.Verdict{Decision: graspsync.Later, Reason: answer.Reason}, nil
	}
	return graspsync.Verdict{Decision: graspsync.Reject, Reason: answer.Reason, DependsOn: p.again(ev, answer.Reason)}, nil
}

func (p *Policy) ask(ctx context.Context, ev graspsync.Event, src graspsync.Source, view relaysync.View) (graspsync.Verdict, error) {
	v, err := p.inner.Judge(ctx, ev, src, view)
	if err == nil && v.Decision == graspsync.Hold {
		return graspsync.Verdict{}, errInnerHolds
	}
	return v, err
}

// again returns dependencies after which a refused event is judged again. An expired event waits for
// [purgatory.Purgatory.ForgetExpired], so that not each event of its author causes a fetch.
func (p *Policy) again(ev graspsync.Event, reason string) []graspsync.Dependency {
	if a, err := nip34.ParseAnnouncement(ev); err == nil && !p.inner.Lists(a) {
		return []graspsync.Dependency{graspsync.OnBecomesListed(a.Ref.Identifier, a.Ref.Owner)}
	}
	if strings.HasPrefix(reason, "invalid:") {
		return nil
	}
	if strings.HasPrefix(reason, "blocked:") { // [purgatory.Purgatory.ForgetExpired]
		return []graspsync.Dependency{graspsync.OnOperatorRequest(ev.ID)}
	}
	return []graspsync.Dependency{graspsync.OnAuthor(ev.PubKey)}
}

// Held implements [relaysync.Holder].
func (p *Policy) Held(_ context.Context, filter nostr.Filter) ([]graspsync.EventKey, error) {
	where, err := p.joined()
	if err != nil {
		return nil, err
	}
	return where.Held(filter), nil
}

// HeldForUser implements [relaysync.Holder].
func (p *Policy) HeldForUser(id graspsync.EventID) (byUser, held bool) {
	where, err := p.joined()
	if err != nil {
		return false, false
	}
	return where.Submitted(id)
}

// HeldAnnouncements implements [relaysync.Holder].
func (p *Policy) HeldAnnouncements(context.Context) iter.Seq2[*nip34.Announcement, error] {
	return func(yield func(*nip34.Announcement, error) bool) {
		where, err := p.joined()
		if err != nil {
			yield(nil, err)
			return
		}
		for _, a := range where.AllAnnouncements() {
			if !yield(a, nil) {
				return
			}
		}
	}
}

// Authority implements [relaysync.Policy], including held announcements.
func (p *Policy) Authority(ref graspsync.RepoRef, view relaysync.View) *nip34.Authority {
	where, err := p.joined()
	if err != nil {
		return nil
	}
	return p.inner.Authority(ref, &waitingView{view, where, p.inner.Lists})
}

// RecognizedAuthors implements [relaysync.Policy], including held announcements.
func (p *Policy) RecognizedAuthors(identifier string, view relaysync.View) map[graspsync.PubKey]bool {
	where, err := p.joined()
	if err != nil {
		return nil
	}
	return p.inner.RecognizedAuthors(identifier, &waitingView{view, where, p.inner.Lists})
}

type waitingView struct {
	relaysync.View
	where *purgatory.Purgatory
	lists func(*nip34.Announcement) bool
}

func (v *waitingView) Announcements(identifier string) []*nip34.Announcement {
	all, waiting := slices.Clip(v.View.Announcements(identifier)), v.where.Announcements(identifier)
	if len(waiting) == 0 {
		return all
	}
	accepted := make(map[graspsync.RepoRef]bool, len(all))
	for _, a := range all {
		accepted[a.Ref] = true
	}
	for _, a := range waiting {
		if !accepted[a.Ref] {
			all = append(all, a)
		}
	}
	return all
}

func has(all []*nip34.Announcement, ref graspsync.RepoRef) bool {
	return slices.ContainsFunc(all, func(a *nip34.Announcement) bool { return a.Ref == ref })
}

func (v *waitingView) Announced(ref graspsync.RepoRef) bool {
	return v.View.Announced(ref) || has(v.where.Announcements(ref.Identifier), ref)
}

// Family includes expired announcements, so that the next state of their maintainers makes
// purgatory hold them again.
func (v *waitingView) Family(identifier string) []*nip34.Announcement {
	return slices.Concat(v.View.Family(identifier), v.where.Remembered(identifier))
}

// Waiting includes expired announcements, but no repository that is already served.
func (v *waitingView) Waiting(identifier string) (out []*nip34.Announcement) {
	for _, a := range v.where.Remembered(identifier) {
		if v.lists(a) && !v.View.Announced(a.Ref) {
			out = append(out, a)
		}
	}
	return out
}

const maxEarly = 16

// early returns a message if an event depends on a held one, so that its client looks for no mistake.
func (v *waitingView) early(deps []graspsync.Dependency, direct bool) string {
	for _, d := range deps[:min(len(deps), maxEarly)] {
		what := ""
		switch d.Kind { // other dependencies are never held
		case graspsync.AwaitRepo:
			ref := graspsync.RepoRef{Owner: d.Author, Identifier: d.Text}
			if has(v.Waiting(ref.Identifier), ref) {
				what = "repository " + nip34.NPub(ref.Owner) + "/" + ref.Identifier + " is announced"
			}
		case graspsync.AwaitEvent:
			if _, waits := v.where.Submitted(d.ID); waits {
				what = "event " + d.ID.String() + " has come"
			}
		}
		if what == "" {
			continue
		}
		what += ", and waits for its git data"
		if direct {
			what += ": submit this again when the data has arrived"
		}
		return what
	}
	return ""
}

func (v *waitingView) Revision(identifier string) any {
	stored, waiting := v.View.Revision(identifier), v.where.Revision(identifier)
	if stored == nil || waiting == nil {
		return stored
	}
	return [2]any{stored, waiting}
}

type heldView struct{ waitingView }

func (v *heldView) Event(ctx context.Context, id graspsync.EventID) (graspsync.Event, error) {
	if ev := v.where.Event(id); !ev.IsZero() {
		return ev, nil
	}
	return v.View.Event(ctx, id)
}

func (v *heldView) Events(ctx context.Context, ids []graspsync.EventID) (map[graspsync.EventID]graspsync.Event, error) {
	found, err := v.View.Events(ctx, ids)
	if err != nil {
		return nil, err
	}
	for _, id := range ids {
		if ev := v.where.Event(id); !ev.IsZero() {
			found[id] = ev
		}
	}
	return found, nil
}

func (v *heldView) Addressed(ctx context.Context, at []graspsync.Address) (bool, error) {
	authors := make(map[graspsync.PubKey]bool, 1)
	for _, a := range at {
		if !authors[a.Author] && slices.ContainsFunc(v.where.EventsOf(a.Author), func(ev graspsync.Event) bool {
			held, ok := ev.Address()
			return ok && slices.Contains(at, held)
		}) {
			return true, nil
		}
		authors[a.Author] = true
	}
	return v.View.Addressed(ctx, at)
}

func (v *heldView) Wrote(ctx context.Context, author graspsync.PubKey) (bool, error) {
	if len(v.where.EventsOf(author)) > 0 {
		return true, nil
	}
	return v.View.Wrote(ctx, author)
}
