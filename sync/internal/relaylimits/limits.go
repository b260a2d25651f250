// Package relaylimits contains the limits of a relay: those that its NIP-11 document declares
// ([Declared]), often wrongly, and those learned from its answers ([Learned]), which expire.
// [Limits] combines both.
package relaylimits

import (
	"time"

	"github.com/graspsync/graspsync/sync/wire"
)

// Requests are the limits for the requests of one connection.
type Requests struct {
	MaxMessage       int // maximum size of a request in bytes
	MaxFilters       int // maximum filters per request
	MaxSubscriptions int // maximum of live and historic subscriptions, 0 if unknown
	// maximum size of all open requests in bytes, 0 if unknown
	MaxRetained int
	// MaxValues is the maximum length of a list, 0 if unknown. NeedsKinds: each filter needs kinds.
	MaxValues  int
	NeedsKinds bool
}

// Limits are all limits of a relay.
type Limits struct {
	Requests
	NoNegentropy  bool // NIP-77 is not supported
	NoNotes       bool // kind 1 may be requested by author only
	NoLimitZero   bool
	NegentropyMax int           // maximum events of one reconciliation, 0 if unknown
	Pace          time.Duration // minimum time between two historic requests, 0: none
}

const (
	maxHistoric  = 8 // maximum open historic requests
	keptHistoric = 2 // subscriptions reserved for history
)

// LiveSubscriptions returns the maximum number of standing subscriptions.
func (r Requests) LiveSubscriptions() int {
	return max(1, r.MaxSubscriptions-min(keptHistoric, r.MaxSubscriptions/2))
}

// Lent returns the number of additional standing subscriptions for a short time, which history
// lends.
func (r Requests) Lent() int {
	if r.MaxSubscriptions-r.LiveSubscriptions() >= keptHistoric {
		return 1
	}
	return 0
}

// LiveBytes returns the maximum size of all standing subscriptions in bytes, 0 for no maximum.
func (r Requests) LiveBytes() int { return r.MaxRetained - min(r.MaxMessage, r.MaxRetained/2) }

// Retains reports whether the relay accepts standing subscriptions of size bytes.
func (r Requests) Retains(size int) bool { return r.MaxRetained == 0 || size <= r.LiveBytes() }

// Historic returns the maximum number of open historic requests.
func (r Requests) Historic() int { return max(1, min(maxHistoric, r.MaxSubscriptions/2)) }

// Declared limits are clamped to these ranges.
const (
	LeastSaid = 4 << 10
	MostSaid  = 128 << 10

	MostFilters = 100

	LeastSubscriptions = 2
	MostSubscriptions  = 200
)

// LeastMessage is the request size that every relay accepts, in bytes.
const LeastMessage = 1 << 10

// SinceSize is the additional size of a live filter without limit 0, in bytes.
const SinceSize = len(`"since":1234567890,`) - len(`"limit":0,`)

// Declared returns the limits that a relay declares, or else usual.
func Declared(info wire.Info, usual Requests) Requests {
	r := usual
	if n := info.MaxMessageLength; n > 0 {
		r.MaxMessage = min(max(n, LeastSaid), MostSaid)
	}
	if n := info.MaxFilters; n > 0 {
		r.MaxFilters = min(n, MostFilters)
	}
	if n := info.MaxSubscriptions; n > 0 {
		r.MaxSubscriptions = min(max(n, LeastSubscriptions), MostSubscriptions)
	}
	return r
}

// Effective returns the declared limits, narrowed by the facts.
func (f Facts) Effective(declared Requests, now time.Time) Limits {
	l := Limits{
		Requests:      declared,
		NoNegentropy:  f.Value(NoNegentropy, now) > 0,
		NoNotes:       f.Value(NoNotes, now) > 0,
		NoLimitZero:   f.Value(NoLimitZero, now) > 0,
		NegentropyMax: f.Value(NegentropyMax, now),
		Pace:          time.Duration(f.Value(Pace, now)) * time.Millisecond,
	}
	narrow := func(field *int, k Kind, least int) {
		if n := f.Value(k, now); n > 0 {
			*field = min(*field, max(n, least))
		}
	}
	narrow(&l.MaxMessage, MaxMessage, LeastMessage)
	narrow(&l.MaxFilters, MaxFilters, 1)
	narrow(&l.MaxSubscriptions, MaxSubscriptions, LeastSubscriptions)
	if l.NoLimitZero {
		l.shorten()
	}
	if l.MaxRetained = f.Value(MaxRetained, now); l.MaxRetained > 0 {
		// A message uses at most a quarter, so that several requests fit.
		l.MaxMessage = min(l.MaxMessage, max(LeastMessage, l.MaxRetained/4))
	}
	l.MaxValues, l.NeedsKinds = f.Value(MaxValues, now), f.Value(NeedsKinds, now) > 0
	return l
}

// shorten reserves room for the longer filters of a relay that refuses limit 0.
func (l *Limits) shorten() { l.MaxMessage = max(LeastMessage, l.MaxMessage-SinceSize*l.MaxFilters) }

// Narrow applies a fact and reports whether a limit changed.
func (l *Limits) Narrow(k Kind, value int) (news bool) {
	is := map[Kind]*bool{NeedsKinds: &l.NeedsKinds, NoNotes: &l.NoNotes, NoLimitZero: &l.NoLimitZero}[k]
	if is != nil {
		if news = !*is; news && k == NoLimitZero {
			l.shorten()
		}
		*is = true
		return news
	}
	most := map[Kind]*int{
		MaxValues: &l.MaxValues, MaxFilters: &l.MaxFilters, MaxMessage: &l.MaxMessage,
		MaxSubscriptions: &l.MaxSubscriptions, NegentropyMax: &l.NegentropyMax, MaxRetained: &l.MaxRetained,
	}[k]
	if value < 1 || *most > 0 && value >= *most {
		return false
	}
	*most = value
	return true
}
