// Package relaylimits says what a relay takes. It declares limits in its NIP-11 document
// ([Declared]), which are often wrong; what happened is not ([Observed]), but relays
// change, so each fact is believed for a while only. What both come to is effective: the
// [Limits] that requests keep to.
package relaylimits

import (
	"time"

	"github.com/graspsync/graspsync/sync/wire"
)

// Requests are what a connection may be asked for: standing subscriptions are planned
// with them.
type Requests struct {
	MaxMessage       int // bytes of one request
	MaxFilters       int // filters of one request
	MaxSubscriptions int // live and historic together, 0 if unknown
	// MaxRetained bounds the bytes of all requests that are open, live and historic
	// together; 0 if there is no such bound, as far as is known.
	MaxRetained int
	// MaxValues is how long a list of a filter may be, 0 if unknown. NeedsKinds says that
	// no filter goes without kinds.
	MaxValues  int
	NeedsKinds bool
}

// Limits are all that a relay takes.
type Limits struct {
	Requests
	NoNegentropy  bool          // it does not offer NIP-77
	NoNotes       bool          // it refuses filters for kind 1, or for no kinds, without authors
	NoLimitZero   bool          // it refuses filters with limit 0
	NegentropyMax int           // events reconciled at once, 0 if unknown
	Pace          time.Duration // between two historic requests, 0: as their turns come
}

const (
	maxHistoric  = 8 // historic requests open at once where there is room
	keptHistoric = 2 // subscriptions that live ones leave to history
)

// LiveSubscriptions is how many of the relay's subscriptions may be standing ones.
func (r Requests) LiveSubscriptions() int {
	return max(1, r.MaxSubscriptions-min(keptHistoric, r.MaxSubscriptions/2))
}

// Lent is how many more there may be for a moment: history lends one of its places where
// it has two.
func (r Requests) Lent() int {
	if r.MaxSubscriptions-r.LiveSubscriptions() >= keptHistoric {
		return 1
	}
	return 0
}

// LiveBytes is how many bytes the requests of standing subscriptions may have together, 0
// for any number: room for a request of the largest size is left to history.
func (r Requests) LiveBytes() int { return r.MaxRetained - min(r.MaxMessage, r.MaxRetained/2) }

// Retains reports whether the relay takes so many bytes in standing subscriptions.
func (r Requests) Retains(size int) bool { return r.MaxRetained == 0 || size <= r.LiveBytes() }

// Historic is how many historic requests may be open at once, as far as the standing
// subscriptions leave room for them.
func (r Requests) Historic() int { return max(1, min(maxHistoric, r.MaxSubscriptions/2)) }

// What a relay says of itself is believed between these: bytes of a message, filters of a
// request, subscriptions.
const (
	LeastSaid = 4 << 10
	MostSaid  = 128 << 10

	MostFilters = 100

	LeastSubscriptions = 2
	MostSubscriptions  = 200
)

// LeastMessage is what every relay is trusted to take, in bytes.
const LeastMessage = 1 << 10

// SinceSize is how many bytes longer a live filter is without limit 0.
const SinceSize = len(`"since":1234567890,`) - len(`"limit":0,`)

// Declared returns what a relay says that it takes, and where it says nothing what is
// usual.
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

// Effective returns what was declared, narrowed by what was learned: never below what
// every relay takes.
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
		// Of one request, that there is room for several.
		l.MaxMessage = min(l.MaxMessage, max(LeastMessage, l.MaxRetained/4))
	}
	l.MaxValues, l.NeedsKinds = f.Value(MaxValues, now), f.Value(NeedsKinds, now) > 0
	return l
}

// shorten leaves room in a message for the longer filters of a relay that refuses limit 0.
func (l *Limits) shorten() { l.MaxMessage = max(LeastMessage, l.MaxMessage-SinceSize*l.MaxFilters) }

// Narrow takes in at once what was found out, and reports whether it is news. What was
// known as narrow or narrower stays.
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
