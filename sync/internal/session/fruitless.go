package session

import (
	"maps"
	"slices"
	"strings"
	"time"
)

// Some relays lose what is behind one connection, a worker or a database, and keep the
// connection: pings are answered, and no request is, or each is refused. A new connection may be
// as good as ever, and nobody but us will end this one.
//
// But a relay may have nothing to say to one form of request, or to any for history, as long as it likes: on the
// next connection it would be the same, and what it does send would be lost. So what counts is a form that was
// answered on this connection, or any where no request for history was.

const (
	// mostFruitless is how many requests in a row must have failed, each sent after the one
	// before had, for a connection to be given up. With none of them anything was heard that
	// long, each had as much time as a slow relay may take.
	mostFruitless = 3
	// silentFor is how long nothing must have been heard where there was something before: some drop what is asked too often.
	silentFor = time.Hour
	// fruitlessFor is how long all must have failed where the relay does say something: it may
	// have a reason, and be asked again and again for nothing.
	fruitlessFor = 3 * time.Hour
	// mostShapes bounds the forms of which it is known that they were answered.
	mostShapes = 64
)

// fruitless counts the requests in a row to which there was no answer. NEG-OPENs are not among
// them: to say nothing to those is how some relays say that they don't know NIP-77.
type fruitless struct {
	rounds     int       // that failed
	silent     int       // the last ones of these, with nothing heard since they were sent
	since      time.Time // when the first one failed
	silence    time.Time // when the first of the silent ones did
	wantsAuth  bool      // the last one was refused for want of NIP-42
	failedAt   uint64    // what was sent up to then was under way together with the last one
	heardAfter uint64    // what was sent up to then may be what was heard

	alive    bool                // some request was answered
	answered map[string]struct{} // the shapes of those for history that were
}

// heard takes in that the relay said something. What was sent last has the number last.
func (f *fruitless) heard(last uint64) { f.silent, f.heardAfter = 0, last }

// answers takes in that a request was answered.
func (f *fruitless) answers(x *request) {
	f.rounds, f.alive = 0, true
	if x.kind == reqLive || len(f.answered) >= mostShapes {
		return
	}
	if f.answered == nil {
		f.answered = make(map[string]struct{})
	}
	f.answered[shape(x)] = struct{}{}
}

// failed takes in that a request had no answer, or was refused.
func (f *fruitless) failed(now time.Time, x *request, last uint64, wantsAuth bool) {
	if x.number <= f.failedAt {
		return
	}
	if len(f.answered) > 0 {
		if _, before := f.answered[shape(x)]; !before {
			return
		}
	}
	if f.rounds == 0 {
		f.since = now
	}
	f.rounds++
	if x.number > f.heardAfter {
		if f.silent == 0 {
			f.silence = now
		}
		f.silent++
	}
	f.failedAt, f.wantsAuth = last, wantsAuth
}

// hung reports whether the relay says nothing any more.
func (f *fruitless) hung(now time.Time) bool {
	return f.silent >= mostFruitless && (!f.alive || len(f.answered) > 0 && now.Sub(f.silence) >= silentFor)
}

// over reports whether a new connection may do better than one on which all is refused. again is
// when it may where NIP-42 is what it wants, zero for never.
func (f *fruitless) over(now, again time.Time) bool {
	switch {
	case f.rounds < mostFruitless:
		return false
	case f.wantsAuth && !again.IsZero() && !now.Before(again):
		return true
	}
	return now.Sub(f.since) >= fruitlessFor
}

// shape is what a request names, whatever the values.
func shape(x *request) string {
	var b strings.Builder
	for _, f := range x.spell() {
		b.WriteByte('{')
		for _, list := range []struct {
			name string
			n    int
		}{{"ids ", len(f.IDs)}, {"kinds ", len(f.Kinds)}, {"authors ", len(f.Authors)}} {
			if list.n > 0 {
				b.WriteString(list.name)
			}
		}
		b.WriteString(strings.Join(slices.Sorted(maps.Keys(f.Tags)), " "))
		b.WriteByte('}')
	}
	return b.String()
}
