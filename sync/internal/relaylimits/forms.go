package relaylimits

import (
	"slices"
	"time"
)

// Form stands for what a request asks for, whatever its bounds in time and number: what a relay
// may refuse by hanging up, which says no more than that.
type Form struct {
	Of  FormOf
	Sum uint64 // of the filters
}

// FormOf is what a [Form] is of.
type FormOf uint8

// What forms are of.
const (
	FormOfReq     FormOf = iota
	FormOfShape          // of a request, whatever its values
	FormOfProbe          // it was asked for to find out whether the relay takes it, and nothing beside it
	FormOfNegOpen        // whatever the filter: pages tell whether it is that
)

// Forms are those of one request.
type Forms struct {
	Own []Form // in each of which it was asked for
	// Filters are those of its filters, whatever their values, as they are asked for alone: it is
	// refused if one of them is.
	Filters []Form
}

// believedForm is how long a relay is believed to refuse a form: until it was tried once more that
// is tried once a day.
const believedForm = 2 * Believed

// maxForms bounds the forms that are remembered of one relay: more than are tried to find out
// what is wrong with several requests.
const maxForms = 256

// forms are those over which a relay hung up.
type forms map[Form]*hangUps

// hangUps are the connections that a relay ended rather than answer a form of request.
type hangUps struct {
	count  int       // in a row, none answered in between
	at     time.Time // of the last
	until  time.Time // the relay is believed to refuse the form, zero if it is not yet
	tookAt time.Time // it was answered, after it had been here
}

// suspect reports whether the form may be why.
func (h *hangUps) suspect() bool { return h.at.After(h.tookAt) }

// needs is how many hang-ups in a row are taken to be about the form.
func (h *hangUps) needs(f Form, now time.Time) int {
	switch {
	case !h.tookAt.IsZero() && now.Sub(h.tookAt) < Believed:
		return cutsDoubted
	case f.Of == FormOfProbe: // the whole was there as often as it needs
		return 1
	}
	return cutsBelieved
}

// HungUp takes in that the relay ended the connection rather than answer these requests. If there
// are several it may have been any of them: next time they are asked for one by one. noNegentropy
// is how long it is believed that a relay has no NIP-77.
func (o *Observed) HungUp(unanswered []Forms, now time.Time, noNegentropy time.Duration) {
	believe := func(f Form, h *hangUps) {
		h.until = now.Add(believedForm)
		if f.Of == FormOfNegOpen {
			h.until = now.Add(noNegentropy)
		}
	}
	for _, x := range unanswered {
		known := false // it was believed once: what was found out about it holds again
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

// Took takes in that the relay answered a form over which it once hung up.
func (o *Observed) Took(f Form, now time.Time) {
	if h := o.forms[f]; h != nil {
		h.count, h.until, h.tookAt = 0, time.Time{}, now
	}
}

// Suspects returns the forms over which the relay hung up and that it has not answered since. Those
// that are true it is believed to refuse.
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
