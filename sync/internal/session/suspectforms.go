package session

import (
	"fmt"
	"hash/fnv"
	"slices"
	"time"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync/sync/internal/relaylimits"
)

// A relay may refuse a request by disconnecting. A suspected form is then sent alone. A form that
// is believed to be the cause counts as refused without being sent. So a bisection continues on the
// next connection.

type suspectForms struct {
	out    *outbox
	caps   *relayCaps
	forms  map[relaylimits.Form]bool // true: believed to be refused
	spoken bool                      // the relay answered a request
}

func (s *suspectForms) heard(x *request) {
	s.spoken = true
	if x.heard {
		return
	}
	x.heard = true
	s.any(x, func(f relaylimits.Form) bool {
		delete(s.forms, f)
		s.out.do(Taken{f})
		return false
	})
}

func (s *suspectForms) suspected(x *request) bool {
	return s.any(x, func(relaylimits.Form) bool { return true })
}

func (s *suspectForms) refused(waiting []*request) *request {
	for _, x := range waiting {
		if !x.sure && s.any(x, func(f relaylimits.Form) bool { return s.forms[f] }) {
			return x
		}
	}
	return nil
}

// any reports whether is returns true for a suspected form of a request.
func (s *suspectForms) any(x *request, is func(f relaylimits.Form) bool) bool {
	if len(s.forms) == 0 {
		return false
	}
	known := func(f relaylimits.Form) bool {
		_, known := s.forms[f]
		return known && is(f)
	}
	of := s.of(x)
	return slices.ContainsFunc(of.Own, known) || slices.ContainsFunc(of.Filters, known)
}

func (s *suspectForms) unanswered(subs subscriptions, since time.Time) (out []relaylimits.Forms) {
	for _, x := range subs.where(func(x *request) bool { return !x.heard && x.sentAt.After(since) }) {
		of := s.of(x)
		if !slices.ContainsFunc(out, func(o relaylimits.Forms) bool { return o.Own[0] == of.Own[0] }) {
			out = append(out, *of)
		}
	}
	return out
}

func (s *suspectForms) of(x *request) *relaylimits.Forms {
	if x.forms != nil && x.formed == s.caps.NoLimitZero {
		return x.forms
	}
	x.forms, x.formed = &relaylimits.Forms{}, s.caps.NoLimitZero
	own := func(of relaylimits.FormOf, sum uint64) {
		x.forms.Own = append(x.forms.Own, relaylimits.Form{Of: of, Sum: sum})
	}
	switch x.kind {
	case reqNeg:
		own(relaylimits.FormOfNegOpen, 0)
		return x.forms
	case reqIDs: // the ids differ each time, so only their number counts
		f := x.filters[0]
		own(relaylimits.FormOfReq, s.sum(x, nostr.Filter{Kinds: f.Kinds, Authors: f.Authors})+uint64(len(f.IDs)))
		return x.forms
	}
	shape, fs := uint64(0), x.filters
	for _, f := range fs {
		one := s.sum(x, placeholder(f))
		x.forms.Filters = append(x.forms.Filters, relaylimits.Form{Of: relaylimits.FormOfProbe, Sum: one})
		shape += one
	}
	if x.kind == reqProbe {
		own(relaylimits.FormOfProbe, s.sum(x, fs...))
		return x.forms
	}
	own(relaylimits.FormOfReq, s.sum(x, fs...))
	own(relaylimits.FormOfShape, shape)
	return x.forms
}

// sum returns a hash that does not depend on the order of the filters.
func (s *suspectForms) sum(x *request, fs ...nostr.Filter) (sum uint64) {
	for _, f := range fs {
		zero := f.LimitZero && !s.caps.NoLimitZero && !x.since
		h := fnv.New64a()
		_, _ = fmt.Fprint(h, f.IDs, f.Kinds, f.Authors, f.Tags, zero) // never fails, and sorts the tags
		sum += h.Sum64()
	}
	return sum
}
