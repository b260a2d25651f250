package session

import (
	"strings"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync/filters"
	"github.com/graspsync/graspsync/sync/internal/relaylimits"
)

const maxProbes = 64

// bisection finds the refused part of a request. The first probe repeats the whole request, because
// the refusal may have had another cause. The second has placeholders as values. Later probes are
// halves.
type bisection struct {
	caps *relayCaps

	origin     *request
	text       string
	missed     bool // the plan fetches missed events if it opens the subscription again
	probes     int
	stack      []*piece
	now        *piece
	badValues  []relaylimits.Value
	badFilters []nostr.Filter // refused with any values
	learned    bool
}

type piece struct {
	kind    pieceKind
	filters []nostr.Filter
	parent  *piece
	taken   int
	formOK  bool
}

type pieceKind uint8

const (
	pieceFilters pieceKind = iota
	pieceForm              // the parent with placeholders
	pieceKinds             // pieceForm with kinds
)

func (b *bisection) next() *piece {
	if b.over() || b.probes == maxProbes {
		return nil
	}
	b.probes++
	b.now = b.stack[len(b.stack)-1]
	b.stack = b.stack[:len(b.stack)-1]
	return b.now
}

func (b *bisection) over() bool { return len(b.stack) == 0 }

func (b *bisection) probe(p *piece) *request {
	fs := make([]nostr.Filter, len(p.filters))
	for i, f := range p.filters {
		if b.origin.kind == reqLive {
			fs[i] = filters.Live(f)
		} else {
			// Some relays check only filters that ask for stored events.
			fs[i] = filters.Between(f, f.Since, nil, 1)
		}
	}
	return &request{kind: reqProbe, filters: fs}
}

// probed records an answer to the current piece. whole: the whole request was accepted.
func (b *bisection) probed(taken bool) (whole bool) {
	switch p := b.now; {
	case !taken:
		b.split(p)
	case p.kind == pieceForm:
		p.parent.formOK = true
		b.split(p.parent)
	case p.kind == pieceKinds:
		b.learned = b.caps.learn(relaylimits.NeedsKinds, 1, b.text)
		b.stack = nil
	case p.parent == nil:
		return true
	default:
		if p.parent.taken++; p.parent.taken == 2 {
			b.tooMuch(p.parent)
		}
	}
	return false
}

func (b *bisection) split(p *piece) {
	f := p.filters[0]
	push := func(kind pieceKind, fs ...nostr.Filter) {
		b.stack = append(b.stack, &piece{kind: kind, filters: fs, parent: p, formOK: p.formOK})
	}
	list, n := filters.Longest(f, false)
	switch {
	case p.kind == pieceForm && kindless(f) && !b.caps.NeedsKinds:
		b.stack = append(b.stack, &piece{kind: pieceKinds, filters: []nostr.Filter{filters.WithKinds(f)}, parent: p.parent})
	case p.kind != pieceFilters:
		b.badFilters = append(b.badFilters, p.parent.filters[0])
	case len(p.filters) > 1:
		half := (len(p.filters) + 1) / 2
		push(pieceFilters, p.filters[half:]...)
		push(pieceFilters, p.filters[:half]...)
	case n == 0:
		b.badFilters = append(b.badFilters, f)
	case !p.formOK:
		push(pieceForm, placeholder(f))
	case n == 1:
		b.badValues = append(b.badValues, relaylimits.Value{Tag: list, Text: valueOf(f, list)})
	default:
		push(pieceFilters, filters.Part(f, list, (n+1)/2, n))
		push(pieceFilters, filters.Part(f, list, 0, (n+1)/2))
	}
}

// tooMuch learns a limit from a refused piece whose halves were both accepted.
func (b *bisection) tooMuch(p *piece) {
	if n := len(p.filters); n > 1 {
		b.caps.learn(relaylimits.MaxFilters, (n+1)/2, b.text)
	} else {
		_, n := filters.Longest(p.filters[0], false)
		b.caps.learn(relaylimits.MaxValues, (n+1)/2, b.text)
	}
	b.stack = nil
}

// placeholder returns f with one value per list that no relay has a reason to refuse.
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

func valueOf(f nostr.Filter, list string) string {
	switch list {
	case filters.ListIDs:
		return f.IDs[0]
	case filters.ListAuthors:
		return f.Authors[0]
	}
	return f.Tags[list][0]
}
