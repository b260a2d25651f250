package relaylimits

import (
	"slices"
	"time"
)

// Form identifies the filters of a request without time bounds and limit.
type Form struct {
	Of  FormOf
	Sum uint64
}

// FormOf is the type of a [Form].
type FormOf uint8

// Values of FormOf. FormOfReq has the values of the filters.
const (
	FormOfReq     FormOf = iota
	FormOfShape          // a request, with placeholders as values
	FormOfProbe          // a probe, sent alone
	FormOfNegOpen        // any NEG-OPEN; pages show whether its filter is refused
)

// Forms are the forms of one request.
type Forms struct {
	Own []Form
	// Filters are the forms of the single filters with placeholders as values. If one is refused,
	// the request is.
	Filters []Form
}

// Numbers of disconnects in a row after which a form counts as refused. A relay that answered it
// within a day more probably closes connections for another reason.
const (
	cutsBelieved = 2
	cutsDoubted  = 6
)

// believedForm is long enough for one more attempt of a daily request.
const believedForm = 2 * Believed

// forms per relay
const maxForms = 256

type forms map[Form]*hangUps

type hangUps struct {
	count  int // in a row, without an answer in between
	at     time.Time
	until  time.Time // the form counts as refused until then; zero: not yet
	tookAt time.Time // time of an answer after a disconnect
}

func (h *hangUps) suspect() bool { return h.at.After(h.tookAt) }

func (h *hangUps) needs(f Form, now time.Time) int {
	switch {
	case !h.tookAt.IsZero() && now.Sub(h.tookAt) < Believed:
		return cutsDoubted
	case f.Of == FormOfProbe: // the whole request was sent often enough
		return 1
	}
	return cutsBelieved
}

// HungUp records that the relay closed the connection instead of answering these requests. If there
// are several, the next connection sends them one at a time.
func (o *Observed) HungUp(unanswered []Forms, now time.Time, noNegentropy time.Duration) {
	believe := func(f Form, h *hangUps) {
		h.until = now.Add(believedForm)
		if f.Of == FormOfNegOpen {
			h.until = now.Add(noNegentropy)
		}
	}
	for _, x := range unanswered {
		known := false // it counted as refused before, so earlier results apply again
		for _, f := range slices.Concat(x.Own, x.Filters) {
			h := o.forms[f]
			known = known || h != nil && !h.until.IsZero()
		}
		for _, f := range x.Own {
			h := o.forms[f]
			if h == nil {
				h = &hangUps{}
				o.forms.add(f, h)
			}
			h.at = now
			if len(unanswered) > 1 {
				continue
			}
			if h.count++; h.count >= h.needs(f, now) {
				believe(f, h)
			}
		}
		for f, h := range o.forms {
			if known && len(unanswered) == 1 && !h.until.IsZero() {
				believe(f, h)
			}
		}
	}
}

func (fs *forms) add(f Form, h *hangUps) {
	if *fs == nil {
		*fs = make(forms)
	}
	if len(*fs) >= maxForms {
		var oldest Form
		for g, other := range *fs {
			if first := (*fs)[oldest]; first == nil || other.at.Before(first.at) {
				oldest = g
			}
		}
		delete(*fs, oldest)
	}
	(*fs)[f] = h
}

// Took records that the relay answered a form.
func (o *Observed) Took(f Form, now time.Time) {
	if h := o.forms[f]; h != nil {
		h.count, h.until, h.tookAt = 0, time.Time{}, now
	}
}

// Suspects returns the forms after which the relay disconnected and that it has not answered since.
// true: the form counts as refused.
func (o *Observed) Suspects(now time.Time) map[Form]bool {
	out := make(map[Form]bool)
	for f, h := range o.forms {
		switch {
		case now.Sub(h.at) >= Longest && now.Sub(h.tookAt) >= Longest:
			delete(o.forms, f)
		case h.suspect():
			out[f] = now.Before(h.until)
		}
	}
	return out
}
