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
	MinDeclaredMessage = 4 << 10
	MaxDeclaredMessage = 128 << 10

	MaxDeclaredFilters = 100

	MinSubscriptions         = 2
	MaxDeclaredSubscriptions = 200
)

// MinMessage is the request size that every relay accepts, in bytes.
const MinMessage = 1 << 10

// SinceSize is the additional size of a live filter without limit 0, in bytes.
const SinceSize = len(`"since":1234567890,`) - len(`"limit":0,`)

// Declared returns the limits that a relay declares, or else usual.
func Declared(info wire.Info, usual Requests) Requests {
	r := usual
	if n := info.MaxMessageLength; n > 0 {
		r.MaxMessage = min(max(n, MinDeclaredMessage), MaxDeclaredMessage)
	}
	if n := info.MaxFilters; n > 0 {
		r.MaxFilters = min(n, MaxDeclaredFilters)
	}
	if n := info.MaxSubscriptions; n > 0 {
		r.MaxSubscriptions = min(max(n, MinSubscriptions), MaxDeclaredSubscriptions)
	}
	return r
}

// Effective returns the declared limits, narrowed by the facts.
func (f Facts) Effective(declared Requests, now time.Time) Limits {
	l := Limits{Requests: declared}
	for k := range kinds {
		l.Narrow(k, f.Value(k, now))
	}
	if l.MaxRetained > 0 { // a message uses at most a quarter, so that several requests fit
		l.MaxMessage = min(l.MaxMessage, max(MinMessage, l.MaxRetained/4))
	}
	return l
}

// Narrow applies a fact, unless value is 0, and reports whether a limit changed.
func (l *Limits) Narrow(k Kind, value int) (news bool) {
	if value < 1 {
		return false
	}
	before := *l
	narrow := func(limit *int, least int) {
		if n := max(value, least); *limit == 0 || n < *limit {
			*limit = n
		}
	}
	switch k {
	case NoNegentropy:
		l.NoNegentropy = true
	case NeedsKinds:
		l.NeedsKinds = true
	case NoNotes:
		l.NoNotes = true
	case NoLimitZero:
		if !l.NoLimitZero { // live filters are longer
			l.NoLimitZero, l.MaxMessage = true, max(MinMessage, l.MaxMessage-SinceSize*l.MaxFilters)
		}
	case MaxValues:
		narrow(&l.MaxValues, 1)
	case MaxFilters:
		narrow(&l.MaxFilters, 1)
	case MaxSubscriptions:
		narrow(&l.MaxSubscriptions, MinSubscriptions)
	case MaxMessage:
		narrow(&l.MaxMessage, MinMessage)
	case NegentropyMax:
		narrow(&l.NegentropyMax, 1)
	case Pace:
		l.Pace = time.Duration(value) * time.Millisecond
	case MaxRetained:
		narrow(&l.MaxRetained, 1)
	case PageSize, kinds:
	}
	return *l != before
}
