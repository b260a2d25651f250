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

// errInnerHolds: what is held there is none of what a [Policy] says it holds, so that relays
// would be asked for it again and again.
var errInnerHolds = errors.New("the inner policy held an event, which nobody would know: only purgatory may")

// Purgatory is what a [Policy] needs of a [purgatory.Purgatory].
type Purgatory interface {
	Submit(ctx context.Context, event graspsync.Event, src graspsync.Source) (purgatory.Answer, error)
	Held(filter nostr.Filter) []graspsync.Stamp
	Announcements(identifier string) []*nip34.Announcement
	Remembered(identifier string) []*nip34.Announcement
	AllAnnouncements() []*nip34.Announcement
	Lacking() map[graspsync.RepoRef]bool
	Event(id graspsync.EventID) graspsync.Event
	Submitted(id graspsync.EventID) (byUser, waits bool)
	EventsOf(author graspsync.PubKey) []graspsync.Event
	Generation(identifier string) any
	Knows(identifier string, who graspsync.PubKey) bool
	Arrived(event graspsync.Event)
	Departed(event graspsync.Event)
}

var _ Purgatory = (*purgatory.Purgatory)(nil)

// Policy is an inner policy, and purgatory behind it. It is made by [NewPolicy]. All
// methods may be called concurrently. The inner one holds nothing: Judge returns an error for
// what it would hold.
//
// For states, pull requests and updates of these an announcement that waits counts as
// accepted, so that they wait with it. Deletions and requests to vanish concern what
// waits as they do what is stored. All else that belongs to a repository which still
// waits depends on it: what came by sync is taken in when that is served, and who submitted it hears
// to do so again then.
type Policy struct {
	inner relaysync.Policy
	waits atomic.Pointer[Purgatory]
}

var (
	_ relaysync.Policy = (*Policy)(nil)
	_ relaysync.Holder = (*Policy)(nil)
)

// NewPolicy returns a Policy that judges nothing before Join.
func NewPolicy(inner relaysync.Policy) *Policy { return &Policy{inner: inner} }

// Configure returns a configuration with p as its Policy and its Holder: one is of no use
// without the other.
func (p *Policy) Configure(cfg relaysync.Config) relaysync.Config {
	cfg.Policy, cfg.Holder, cfg.Lacking = p, p, p.lacking
	return cfg
}

// lacking is [relaysync.Config].Lacking.
func (p *Policy) lacking() map[graspsync.RepoRef]bool {
	where, err := p.joined()
	if err != nil {
		return nil
	}
	return where.Lacking()
}

// Join says where events wait. It must be called before events come.
func (p *Policy) Join(where Purgatory) { p.waits.Store(&where) }

func (p *Policy) joined() (Purgatory, error) {
	if where := p.waits.Load(); where != nil {
		return *where, nil
	}
	return nil, ErrNotJoined
}

// Lists is that of the inner policy.
func (p *Policy) Lists(a *nip34.Announcement) bool { return p.inner.Lists(a) }

// Judge implements [relaysync.Policy].
func (p *Policy) Judge(ctx context.Context, ev graspsync.Event, src graspsync.Source, view relaysync.View) (graspsync.Verdict, error) {
	where, err := p.joined()
	if err != nil {
		return graspsync.Verdict{}, err
	}
	switch ev.Kind {
	case graspsync.KindState, graspsync.KindPullRequest, graspsync.KindPullRequestUpdate:
		view = &waitingView{view, where, p.inner.Lists}
	case graspsync.KindAnnouncement:
		if p.leaves(ev) {
			// What is wanted, or taken from us, only where something waits, waits with that.
			if v, err := p.ask(ctx, ev, src, view); err != nil || v.Decision == graspsync.Accept {
				return v, err
			}
			view = &waitingView{view, where, p.inner.Lists}
		}
	case graspsync.KindDeletion, graspsync.KindVanish:
		return p.ask(ctx, ev, src, &heldView{waitingView{view, where, p.inner.Lists}})
	default:
		v, err := p.ask(ctx, ev, src, view)
		if err == nil && v.Decision == graspsync.Depend && v.Detail == "" {
			waiting := &waitingView{view, where, p.inner.Lists}
			v.Detail = waiting.early(v.DependsOn, src.Kind == graspsync.Direct)
		}
		return v, err
	}
	v, err := p.ask(ctx, ev, src, view)
	if err != nil || v.Decision != graspsync.Accept {
		return v, err
	}
	switch served, err := isServed(ctx, view, ev); {
	case err != nil:
		return graspsync.Verdict{}, err
	case served:
		return v, nil
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

// ask asks the inner policy.
func (p *Policy) ask(ctx context.Context, ev graspsync.Event, src graspsync.Source, view relaysync.View) (graspsync.Verdict, error) {
	v, err := p.inner.Judge(ctx, ev, src, view)
	if err == nil && v.Decision == graspsync.Hold {
		return graspsync.Verdict{}, errInnerHolds
	}
	return v, err
}

// isServed reports whether the very event is stored: it needs not wait again.
func isServed(ctx context.Context, view relaysync.View, ev graspsync.Event) (bool, error) {
	stored, err := view.Event(ctx, ev.ID)
	return !stored.IsZero(), err
}

// leaves reports whether an event is an announcement by which its owner takes a
// repository from us: no data is needed for that.
func (p *Policy) leaves(ev graspsync.Event) bool {
	if ev.Kind != graspsync.KindAnnouncement {
		return false
	}
	a, err := nip34.ParseAnnouncement(ev)
	return err == nil && !p.inner.Lists(a)
}

// again is what may have an event that was refused count again: that its author is listed, for
// an announcement that makes no repository ours, or that something else of its author is stored. What is malformed stays so, and what has expired was given its time:
// else each event of their author would have them fetched and judged again.
func (p *Policy) again(ev graspsync.Event, reason string) []graspsync.Dependency {
	if a, err := nip34.ParseAnnouncement(ev); err == nil && !p.inner.Lists(a) {
		return []graspsync.Dependency{graspsync.OnWanted(a.Ref.Identifier, a.Ref.Owner)}
	}
	if strings.HasPrefix(reason, "invalid:") {
		return nil
	}
	if strings.HasPrefix(reason, "blocked:") { // [purgatory.Purgatory.Forgive]
		return []graspsync.Dependency{graspsync.OnAsked(ev.ID)}
	}
	return []graspsync.Dependency{graspsync.OnAuthor(ev.PubKey)}
}

// Held implements [relaysync.Holder].
func (p *Policy) Held(_ context.Context, filter nostr.Filter) ([]graspsync.Stamp, error) {
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

// Authority implements [relaysync.Policy]. What waits counts.
func (p *Policy) Authority(ref graspsync.RepoRef, view relaysync.View) *nip34.Authority {
	where, err := p.joined()
	if err != nil {
		return nil
	}
	return p.inner.Authority(ref, &waitingView{view, where, p.inner.Lists})
}

// Heard implements [relaysync.Policy]. What waits counts.
func (p *Policy) Heard(identifier string, view relaysync.View) map[graspsync.PubKey]bool {
	where, err := p.joined()
	if err != nil {
		return nil
	}
	return p.inner.Heard(identifier, &waitingView{view, where, p.inner.Lists})
}

// waitingView has the announcements that wait beside those that are accepted.
type waitingView struct {
	relaysync.View
	where Purgatory
	lists func(*nip34.Announcement) bool
}

// Announcements implements [relaysync.View].
func (v *waitingView) Announcements(identifier string) []*nip34.Announcement {
	accepted := v.View.Announcements(identifier)
	waiting := v.where.Announcements(identifier)
	if len(waiting) == 0 {
		return accepted
	}
	is := make(map[graspsync.RepoRef]struct{}, len(accepted))
	for _, a := range accepted {
		is[a.Ref] = struct{}{}
	}
	all := slices.Clip(accepted)
	for _, a := range waiting {
		if _, known := is[a.Ref]; !known {
			all = append(all, a)
		}
	}
	return all
}

func has(all []*nip34.Announcement, ref graspsync.RepoRef) bool {
	for _, a := range all {
		if a.Ref == ref {
			return true
		}
	}
	return false
}

// Announced implements [relaysync.Standing].
func (v *waitingView) Announced(ref graspsync.RepoRef) bool {
	return v.View.Announced(ref) || has(v.where.Announcements(ref.Identifier), ref)
}

// Family implements [relaysync.Standing]. An announcement that has waited in vain gives
// its maintainers a say for a while: their next state has it wait again.
func (v *waitingView) Family(identifier string) []*nip34.Announcement {
	stored := v.View.Family(identifier)
	return append(stored[:len(stored):len(stored)], v.where.Remembered(identifier)...)
}

// Waiting implements [relaysync.Standing]: also of what has waited in vain, which still may
// be served. What belongs to a repository that is served does not wait.
func (v *waitingView) Waiting(identifier string) (out []*nip34.Announcement) {
	for _, a := range v.where.Remembered(identifier) {
		if v.lists(a) && !v.View.Announced(a.Ref) {
			out = append(out, a)
		}
	}
	return out
}

// mostEarly is of how many things that an event depends on it is looked whether they wait: an
// honest one names few.
const mostEarly = 16

// early says of what depends on something that waits that this is so: whoever submits it would look
// for a mistake in an announcement that has none. It is "" if nothing of that waits.
func (v *waitingView) early(deps []graspsync.Dependency, direct bool) string {
	for _, d := range deps[:min(len(deps), mostEarly)] {
		what := ""
		switch d.Await { //nolint:exhaustive // nothing else waits for git data
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
		switch {
		case what == "":
		case direct:
			return what + ", and waits for its git data: submit this again when that is here"
		default:
			return what + ", and waits for its git data"
		}
	}
	return ""
}

// Generation implements [relaysync.Standing].
func (v *waitingView) Generation(identifier string) relaysync.Generation {
	g := v.View.Generation(identifier)
	g.Waiting = v.where.Generation(identifier)
	return g
}

// Knows implements [relaysync.Standing], as far as what has others wait can tell.
func (v *waitingView) Knows(identifier string, who graspsync.PubKey) bool {
	return v.where.Knows(identifier, who) || v.View.Knows(identifier, who)
}

// heldView has all that waits beside what is stored: what deletes it is for us.
type heldView struct{ waitingView }

// event returns an event that waits.
func (v *heldView) event(id graspsync.EventID) (ev graspsync.Event, waits bool) {
	ev = v.where.Event(id)
	return ev, !ev.IsZero()
}

// Event implements [relaysync.View].
func (v *heldView) Event(ctx context.Context, id graspsync.EventID) (graspsync.Event, error) {
	if ev, waits := v.event(id); waits {
		return ev, nil
	}
	return v.View.Event(ctx, id)
}

// Events implements [relaysync.View].
func (v *heldView) Events(ctx context.Context, ids []graspsync.EventID) (map[graspsync.EventID]graspsync.Event, error) {
	found, err := v.View.Events(ctx, ids)
	if err != nil {
		return nil, err
	}
	for _, id := range ids {
		if ev, waits := v.event(id); waits {
			found[id] = ev
		}
	}
	return found, nil
}

// Addressed implements [relaysync.View].
func (v *heldView) Addressed(ctx context.Context, at []graspsync.Address) (bool, error) {
	authors := make(map[graspsync.PubKey]bool, 1)
	for _, a := range at {
		if authors[a.Author] {
			continue
		}
		authors[a.Author] = true
		if slices.ContainsFunc(v.where.EventsOf(a.Author), func(ev graspsync.Event) bool {
			held, ok := ev.Address()
			return ok && slices.Contains(at, held)
		}) {
			return true, nil
		}
	}
	return v.View.Addressed(ctx, at)
}

// Wrote implements [relaysync.View].
func (v *heldView) Wrote(ctx context.Context, author graspsync.PubKey) (bool, error) {
	if len(v.where.EventsOf(author)) > 0 {
		return true, nil
	}
	return v.View.Wrote(ctx, author)
}
