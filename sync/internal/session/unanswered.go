package session

import (
	"fmt"
	"maps"
	"slices"
	"time"
)

// Some relays lose a worker or database behind one connection. They answer pings and refuse or
// ignore all requests. A new connection may work.
//
// Other relays never answer one form of request, or any request for history. Then a new connection
// would only interrupt live events. So a failure counts only if its form was answered on this
// connection, or if no request for history was answered.

const (
	// maxFailures is the number of consecutive failed requests after which a connection is given
	// up. Each must be sent after the previous failure.
	maxFailures = 3
	// silentFor is the minimum silence if requests for history were answered before. Some relays
	// drop requests that are too frequent.
	silentFor = time.Hour
	// failuresFor is the minimum time of failures if the relay still sends messages, because a new
	// connection may not help.
	failuresFor = 3 * time.Hour
	// mostShapes is the maximum number of stored shapes of answered requests.
	mostShapes = 64
)

// unanswered counts consecutive requests without a useful answer. NEG-OPENs do not count, because
// relays without NIP-77 ignore them.
type unanswered struct {
	rounds     int       // failed requests
	silent     int       // consecutive failures without any message since the request was sent
	since      time.Time // time of the first failure
	silence    time.Time // time of the first silent failure
	failedAt   uint64    // requests up to this number were open at the last failure
	heardAfter uint64    // requests up to this number may be answered by the last message

	alive    bool                // a request was answered
	answered map[string]struct{} // shapes of answered requests for history
}

// heard records a message from the relay. last is the number of the newest request.
func (f *unanswered) heard(last uint64) { f.silent, f.heardAfter = 0, last }

func (f *unanswered) answers(x *request) {
	f.rounds, f.alive = 0, true
	if x.kind == reqLive || len(f.answered) >= mostShapes {
		return
	}
	if f.answered == nil {
		f.answered = make(map[string]struct{})
	}
	f.answered[shape(x)] = struct{}{}
}

func (f *unanswered) failed(now time.Time, x *request, last uint64) {
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
	f.failedAt = last
}

func (f *unanswered) hung(now time.Time) bool {
	return f.silent >= maxFailures && (!f.alive || len(f.answered) > 0 && now.Sub(f.silence) >= silentFor)
}

// over reports whether all requests fail and a new connection may help.
func (f *unanswered) over(now time.Time) bool {
	return f.rounds >= maxFailures && now.Sub(f.since) >= failuresFor
}

// shape returns the field names of a request's filters without their values.
func shape(x *request) (s string) {
	for _, f := range x.filters {
		s += fmt.Sprint(len(f.IDs) > 0, len(f.Kinds) > 0, len(f.Authors) > 0, slices.Sorted(maps.Keys(f.Tags)))
	}
	return s
}
