package session

import (
	"strings"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync/filters"
	"github.com/graspsync/graspsync/sync/internal/relaylimits"
)

// maxProbes bounds the requests made to find out why one was refused.
const maxProbes = 64

// bisection finds out which part of a request makes the relay refuse it, by asking for
// parts of it, one at a time: one value that a relay dislikes must not hide the 99
// others. First it is asked for the whole again, since the refusal may have been
// about something else; then for one filter alone with a placeholder in place of its
// values, which tells whether it is the form, or only limit 0; then for halves.
type bisection struct {
	terms *terms

	origin     *request // what was refused
	text       string
	probes     int
	stack      []*piece // to be asked for, the last first
	now        *piece   // being asked for
	badValues  []relaylimits.Value
	badFilters []nostr.Filter // refused whatever their values
	// learned says that it is known by now in which form the relay takes it, as it was
	// not when it was refused.
	learned bool
}

func newBisection(t *terms, x *request) *bisection {
	return &bisection{terms: t, origin: x, text: x.refusal, stack: []*piece{{filters: x.asks()}}}
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
	pieceForm              // the parent with a placeholder
	pieceKinds             // that with kinds
	pieceNotes             // that without kind 1
	pieceSince             // that, or the former, without limit 0
	pieceClean             // the parent without what was set aside under other tags
)

// next returns the next piece that is to be asked for, nil if there is none or it would be one
// too many.
func (b *bisection) next() *piece {
	if b.over() || b.probes == maxProbes {
		return nil
	}
	b.probes++
	b.now = b.stack[len(b.stack)-1]
	b.stack = b.stack[:len(b.stack)-1]
	return b.now
}

// over reports whether nothing is left to be asked for.
func (b *bisection) over() bool { return len(b.stack) == 0 }

// probe returns the request for a piece.
func (b *bisection) probe(p *piece) *request {
	fs := make([]nostr.Filter, len(p.filters))
	for i, f := range p.filters {
		if b.origin.kind == reqLive {
			fs[i] = filters.Live(f)
		} else {
			// Some relays look at filters only if they ask for something.
			fs[i] = filters.Between(f, f.Since, nil, 1)
		}
	}
	return &request{kind: reqProbe, filters: fs, since: p.kind == pieceSince}
}

// probed takes in whether the relay took the piece that it was asked for. It reports whether
// that was the whole request, and it took it.
func (b *bisection) probed(taken bool) (whole bool) {
	switch p := b.now; {
	case !taken:
		b.split(p)
	case p.kind == pieceForm:
		p.parent.formOK = true
		b.split(p.parent)
	case p.kind == pieceKinds:
		b.learned = b.terms.learn(relaylimits.NeedsKinds, 1, b.text)
		b.stack = nil
	case p.kind == pieceNotes:
		b.learned = b.terms.withoutNotes(b.origin, b.text)
		b.stack = nil
	case p.kind == pieceSince:
		b.learned = b.terms.learn(relaylimits.NoLimitZero, 1, b.text)
		b.stack = nil
	case p.kind == pieceClean:
		b.badValues = append(b.badValues, b.terms.asideElsewhere(p.parent.filters[0])...)
	case p.parent == nil:
		return true
	default:
		if p.parent.taken++; p.parent.taken == 2 {
			b.tooMuch(p.parent)
		}
	}
	return false
}

// split goes on with the parts of a piece that was refused.
func (b *bisection) split(p *piece) {
	f := p.filters[0]
	push := func(kind pieceKind, fs ...nostr.Filter) {
		b.stack = append(b.stack, &piece{kind: kind, filters: fs, parent: p, formOK: p.formOK})
	}
	list, n := filters.Longest(f, false)
	switch {
	case p.kind == pieceForm && kindless(f) && !b.terms.NeedsKinds:
		b.stack = append(b.stack, &piece{kind: pieceKinds, filters: []nostr.Filter{filters.WithKinds(f)}, parent: p.parent})
	case (p.kind == pieceForm || p.kind == pieceKinds) && asksForNotes(f):
		b.stack = append(b.stack, &piece{kind: pieceNotes, filters: []nostr.Filter{filters.WithoutNotes(f)}, parent: p.parent})
	case p.kind >= pieceForm && p.kind <= pieceNotes && b.origin.kind == reqLive && !b.terms.NoLimitZero:
		b.stack = append(b.stack, &piece{kind: pieceSince, filters: p.filters, parent: p.parent})
	case p.kind >= pieceForm && p.kind <= pieceSince:
		b.badFilters = append(b.badFilters, p.parent.filters[0])
	case p.kind == pieceClean:
		p.parent.hinted = true
		b.split(p.parent)
	case len(p.filters) > 1:
		half := (len(p.filters) + 1) / 2
		push(pieceFilters, p.filters[half:]...)
		push(pieceFilters, p.filters[:half]...)
	case n == 0:
		b.badFilters = append(b.badFilters, f)
	case !p.formOK:
		push(pieceForm, placeholder(f))
	case n == 1:
		b.badValues = append(b.badValues, relaylimits.Value{Tag: list, Value: valueOf(f, list)})
	case !p.hinted && b.terms.knownElsewhere(f):
		push(pieceClean, without(f, b.terms.asideElsewhere(f)))
	default:
		push(pieceFilters, filters.Part(f, list, (n+1)/2, n))
		push(pieceFilters, filters.Part(f, list, 0, (n+1)/2))
	}
}

// tooMuch takes in that both halves of a refused piece were taken.
func (b *bisection) tooMuch(p *piece) {
	if n := len(p.filters); n > 1 {
		b.terms.learn(relaylimits.MaxFilters, (n+1)/2, b.text)
	} else {
		_, n := filters.Longest(p.filters[0], false)
		b.terms.fewerValues(b.origin, (n+1)/2, b.text)
	}
	b.stack = nil
}

// placeholder returns f with one value in each list that no relay has a reason to
// refuse.
func placeholder(f nostr.Filter) nostr.Filter {
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
