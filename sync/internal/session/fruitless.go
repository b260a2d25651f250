package session

import "time"

// Some relays lose what is behind one connection, a worker or a database, and keep the
// connection: pings are answered, and no request is, or each is refused. A new connection may be
// as good as ever, and nobody but us will end this one.

const (
	// mostFruitless is how many requests in a row must have failed, each sent after the one
	// before had, for a connection to be given up. With none of them anything was heard that
	// long, each had as much time as a slow relay may take.
	mostFruitless = 3
	// fruitlessFor is how long all must have failed where the relay does say something: it may
	// have a reason, and be asked again and again for nothing.
	fruitlessFor = 3 * time.Hour
)

// fruitless counts the requests in a row to which there was no answer. NEG-OPENs are not among
// them: to say nothing to those is how some relays say that they don't know NIP-77.
type fruitless struct {
	rounds     int       // that failed
	silent     int       // the last ones of these, with nothing heard since they were sent
	since      time.Time // when the first one failed
	wantsAuth  bool      // the last one was refused for want of NIP-42
	failedAt   uint64    // what was sent up to then was under way together with the last one
	heardAfter uint64    // what was sent up to then may be what was heard
}

// heard takes in that the relay said something. What was sent last has the number last.
func (f *fruitless) heard(last uint64) { f.silent, f.heardAfter = 0, last }

// answered takes in that a request was.
func (f *fruitless) answered() { f.rounds = 0 }

// failed takes in that a request had no answer, or was refused.
func (f *fruitless) failed(now time.Time, x *request, last uint64, wantsAuth bool) {
	if x.number <= f.failedAt {
		return
	}
	if f.rounds == 0 {
		f.since = now
	}
	f.rounds++
	if x.number > f.heardAfter {
		f.silent++
	}
	f.failedAt, f.wantsAuth = last, wantsAuth
}

// hung reports whether the relay says nothing any more.
func (f *fruitless) hung() bool { return f.silent >= mostFruitless }

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
