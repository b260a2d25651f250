package session

import (
	"slices"
	"strings"
	"time"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync/filters"
	"github.com/graspsync/graspsync/sync/internal/learned"
	"github.com/graspsync/graspsync/sync/wire"
)

// maxProbes bounds the requests made to find out why one was refused.
const maxProbes = 64

// trial finds out which part of a request makes the relay refuse it, by asking for
// parts of it, one at a time: one value that a relay dislikes must not hide the 99
// others. First it is asked for the whole again, since the refusal may have been
// about something else; then for one filter alone with a harmless value in place
// of its own, which tells whether it is the form, or only limit 0; then for halves.
type trial struct {
	origin *sub // the first of those held
	text   string
	probes int
	stack  []*piece // to be asked for, the last first
	now    *piece   // being asked for
	poison []Value
	bad    []nostr.Filter // refused whatever their values
	// learned says that it is known by now in which form the relay takes it, as it was
	// not when it was refused.
	learned bool
}

// piece is a part of a request.
type piece struct {
	kind    pieceKind
	filters []nostr.Filter
	parent  *piece
	taken   int  // halves that were
	formOK  bool // it is not the form
	hinted  bool // without what was set aside elsewhere it was refused as well
}

type pieceKind uint8

const (
	pieceFilters pieceKind = iota
	pieceForm              // the parent with a harmless value
	pieceKinds             // that with kinds
	pieceNotes             // that without kind 1
	pieceSince             // that, or the former, without limit 0
	pieceClean             // the parent without what was set aside under other tags
)

// asks returns what a request asks for, without bounds in time.
func (x *sub) asks() []nostr.Filter {
	if x.q != nil {
		return []nostr.Filter{x.q.filter}
	}
	return x.filters
}

// triable reports whether it makes sense to look for the reason of a refusal: of
// what was taken before it is not the filters.
func (x *sub) triable() bool {
	return x.kind == subLive && x.openAt == 0 || x.kind == subPage && x.q.unbegun() && x.events == 0
}

// nextTrial has the first of the requests that are held tried, unless its form was
// found out meanwhile.
func (s *Session) nextTrial() {
	for s.tried == nil && len(s.held) > 0 {
		x := s.held[0]
		if s.outdated(x) {
			s.readapt(x)
			continue
		}
		s.tried = x
		s.trial = &trial{origin: x, text: x.refusal, stack: []*piece{{filters: x.asks()}}}
		s.nextProbe()
	}
}

func (s *Session) probes() (out []*sub) {
	for _, x := range s.subs {
		if x.kind == subProbe {
			out = append(out, x)
		}
	}
	for _, x := range s.waiting {
		if x.kind == subProbe {
			out = append(out, x)
		}
	}
	return out
}

// nextProbe asks for the next piece, or passes judgement.
func (s *Session) nextProbe() {
	t := s.trial
	if len(t.stack) == 0 {
		s.judge(false)
		return
	}
	if t.probes == maxProbes {
		s.judge(true)
		return
	}
	t.probes++
	t.now = t.stack[len(t.stack)-1]
	t.stack = t.stack[:len(t.stack)-1]
	fs := make([]nostr.Filter, len(t.now.filters))
	for i, f := range t.now.filters {
		if t.origin.kind == subLive {
			fs[i] = filters.Live(f)
		} else {
			// Some relays look at filters only if they ask for something.
			fs[i] = filters.Between(f, f.Since, nil, 1)
		}
	}
	s.enqueueFirst(&sub{kind: subProbe, filters: fs, since: t.now.kind == pieceSince})
}

// probed takes in what became of a probe.
func (s *Session) probed(x *sub, taken, tell bool) {
	s.drop(x, tell)
	t := s.trial
	p := t.now
	switch {
	case !taken:
		s.split(p)
	case p.kind == pieceForm:
		p.parent.formOK = true
		s.split(p.parent)
	case p.kind == pieceKinds:
		t.learned = s.learn(learned.NeedsKinds, 1, t.text)
		t.stack = nil
	case p.kind == pieceNotes:
		t.learned = s.withoutNotes(t.origin, t.text)
		t.stack = nil
	case p.kind == pieceSince:
		t.learned = s.learn(learned.NoLimitZero, 1, t.text)
		t.stack = nil
	case p.kind == pieceClean:
		t.poison = append(t.poison, s.asideElsewhere(p.parent.filters[0])...)
	case p.parent == nil:
		s.innocent()
		return
	default:
		if p.parent.taken++; p.parent.taken == 2 {
			s.tooMuch(p.parent)
		}
	}
	s.nextProbe()
}

// split goes on with the parts of a piece that was refused.
func (s *Session) split(p *piece) {
	t := s.trial
	f := p.filters[0]
	push := func(kind pieceKind, fs ...nostr.Filter) {
		t.stack = append(t.stack, &piece{kind: kind, filters: fs, parent: p, formOK: p.formOK})
	}
	list, n := filters.Longest(f, false)
	switch {
	case p.kind == pieceForm && kindless(f) && !s.terms.NeedsKinds:
		t.stack = append(t.stack, &piece{kind: pieceKinds, filters: []nostr.Filter{filters.WithKinds(f)}, parent: p.parent})
	case (p.kind == pieceForm || p.kind == pieceKinds) && asksForNotes(f):
		t.stack = append(t.stack, &piece{kind: pieceNotes, filters: []nostr.Filter{filters.WithoutNotes(f)}, parent: p.parent})
	case p.kind >= pieceForm && p.kind <= pieceNotes && t.origin.kind == subLive && !s.terms.NoLimitZero:
		t.stack = append(t.stack, &piece{kind: pieceSince, filters: p.filters, parent: p.parent})
	case p.kind >= pieceForm && p.kind <= pieceSince:
		t.bad = append(t.bad, p.parent.filters[0])
	case p.kind == pieceClean:
		p.parent.hinted = true
		s.split(p.parent)
	case len(p.filters) > 1:
		half := (len(p.filters) + 1) / 2
		push(pieceFilters, p.filters[half:]...)
		push(pieceFilters, p.filters[:half]...)
	case n == 0:
		t.bad = append(t.bad, f)
	case !p.formOK:
		push(pieceForm, harmless(f))
	case n == 1:
		t.poison = append(t.poison, Value{list, valueOf(f, list)})
	case !p.hinted && s.knownElsewhere(f):
		push(pieceClean, without(f, s.asideElsewhere(f)))
	default:
		push(pieceFilters, filters.Part(f, list, (n+1)/2, n))
		push(pieceFilters, filters.Part(f, list, 0, (n+1)/2))
	}
}

// tooMuch takes in that both halves of a refused piece were taken.
func (s *Session) tooMuch(p *piece) {
	t := s.trial
	if n := len(p.filters); n > 1 {
		s.learn(learned.MaxFilters, (n+1)/2, t.text)
	} else {
		_, n := filters.Longest(p.filters[0], false)
		s.fewerValues(t.origin, (n+1)/2, t.text)
	}
	t.stack = nil
}

// innocent repeats a request that as such is taken; once.
func (s *Session) innocent() {
	x, text := s.trial.origin, s.trial.text
	if x.passed || x.missed {
		s.final(x, wire.RefusalOther, text, false)
		return
	}
	x.passed = true
	s.release()
	s.repeat(x)
}

// release ends the trial and no longer holds its request.
func (s *Session) release() {
	x := s.trial.origin
	s.tried, s.trial = nil, nil
	s.held = slices.DeleteFunc(s.held, func(y *sub) bool { return y == x })
}

// judge ends a trial with what was found out. Without an end to it, the request
// fails, and what is wrong with it beyond that is for the next time.
func (s *Session) judge(unfinished bool) {
	t := s.trial
	for _, v := range t.poison {
		s.setAside(v)
	}
	x := t.origin
	if x.kind == subLive && len(t.bad) > 0 {
		// The rest can be followed.
		x.filters = slices.DeleteFunc(slices.Clone(x.filters), func(f nostr.Filter) bool {
			return slices.ContainsFunc(t.bad, func(g nostr.Filter) bool { return nostr.FilterEqual(f, g) })
		})
	}
	changed := x.kind == subLive && len(t.bad) > 0 && len(x.filters) > 0 || t.learned || s.outdated(x)
	switch {
	case unfinished, changed && x.missed:
		s.final(x, wire.RefusalOther, t.text, false)
	case !changed:
		s.final(x, wire.RefusalBadRequest, t.text, false)
	default:
		s.release()
		s.relearned(x, false)
	}
}

func (s *Session) setAside(v Value) {
	if _, known := s.aside[v]; known || len(s.aside) >= maxAside {
		return
	}
	s.aside[v] = struct{}{}
	s.out.do(SetAside{v})
}

// probeRefused tells a refusal that is about what was asked for from others.
func (s *Session) probeRefused(now time.Time, x *sub, why wire.Refusal, text string, tell bool) {
	switch why {
	case wire.RefusalRateLimited:
		s.cool(now, text)
		if s.limitedAgain(x) {
			s.probeFailed(x, text, tell)
			return
		}
		s.again(x, tell)
	case wire.RefusalOther, wire.RefusalTooManySubs, wire.RefusalAuthRequired:
		s.probeFailed(x, text, tell)
	default:
		s.trial.text = text
		s.probed(x, false, tell)
	}
}

// probeFailed ends a trial that can't go on.
func (s *Session) probeFailed(x *sub, why string, tell bool) {
	s.drop(x, tell)
	s.final(s.trial.origin, wire.RefusalOther, why, false)
}

// asideElsewhere returns the values of f that were set aside under another tag: it
// is quicker to leave them out than to find them again.
func (s *Session) asideElsewhere(f nostr.Filter) (out []Value) {
	for tag, values := range f.Tags {
		for _, v := range values {
			for known := range s.aside {
				if known.Value == v && known.Tag != tag {
					out = append(out, Value{tag, v})
					break
				}
			}
		}
	}
	return out
}

// knownElsewhere reports whether that is worth trying.
func (s *Session) knownElsewhere(f nostr.Filter) bool {
	n := len(s.asideElsewhere(f))
	_, all := filters.Longest(f, false)
	return n > 0 && n < all
}

// without returns f without some values of its tags.
func without(f nostr.Filter, values []Value) nostr.Filter {
	for tag := range f.Tags {
		f.Tags = filters.WithList(f.Tags, tag, slices.DeleteFunc(slices.Clone(f.Tags[tag]), func(v string) bool {
			return slices.Contains(values, Value{tag, v})
		}))
	}
	return f
}

// harmless returns f with one value in each list that no relay has a reason to
// refuse.
func harmless(f nostr.Filter) nostr.Filter {
	zeros := strings.Repeat("0", 64)
	if f.IDs != nil {
		f.IDs = []string{zeros}
	}
	if f.Authors != nil {
		f.Authors = []string{zeros}
	}
	for tag, values := range f.Tags {
		v := zeros
		if strings.Contains(values[0], ":") {
			v = "30617:" + zeros + ":x"
		} else if len(values[0]) != len(zeros) {
			v = "x"
		}
		f.Tags = filters.WithList(f.Tags, tag, []string{v})
	}
	return f
}

// valueOf returns the only value of a list.
func valueOf(f nostr.Filter, list string) string {
	switch list {
	case filters.ListIDs:
		return f.IDs[0]
	case filters.ListAuthors:
		return f.Authors[0]
	}
	return f.Tags[list][0]
}
