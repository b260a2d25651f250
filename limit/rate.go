package limit

import (
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// Rate gives each stranger a number of units per second, and a group [GroupParts] times as many. It
// is safe for concurrent use.
type Rate struct {
	perSecond rate.Limit
	burst     int

	mu sync.Mutex
	// guarded by mu
	buckets *Table[ownerKey, *rate.Limiter]
}

// NewRate returns a Rate of perSecond units per stranger, with bursts of up to burst units, for at
// most maxStrangers.
func NewRate(perSecond float64, burst, maxStrangers int) *Rate {
	return &Rate{perSecond: rate.Limit(perSecond), burst: burst, buckets: NewTable[ownerKey, *rate.Limiter](maxStrangers, 0)}
}

// Allow takes n units if a stranger has them now. The zero Stranger has unlimited units.
func (r *Rate) Allow(who Stranger, n int) bool {
	now := time.Now()
	buckets, ok := r.bucketsOf(who, now)
	if !ok {
		return false
	}
	for i, b := range buckets {
		if b.AllowN(now, n) {
			continue
		}
		for _, taken := range buckets[:i] {
			taken.AllowN(now, -n)
		}
		return false
	}
	return true
}

func (r *Rate) bucketsOf(who Stranger, now time.Time) (buckets []*rate.Limiter, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for k, parts := range who.keys() {
		b, found := r.buckets.Get(k)
		if !found {
			b = rate.NewLimiter(r.perSecond*rate.Limit(parts), r.burst*int(parts))
			r.makeRoom(now)
			if _, ok := r.buckets.Put(k, Stranger{ID: who.queueName()}, 0, b); !ok {
				return nil, false
			}
		}
		r.buckets.Touch(k)
		buckets = append(buckets, b)
	}
	return buckets, true
}

func (r *Rate) makeRoom(now time.Time) {
	if r.buckets.Len() < r.buckets.maxEntries {
		return
	}
	var idle []ownerKey
	for k, b := range r.buckets.All() {
		if b.TokensAt(now) < float64(b.Burst()) {
			break
		}
		idle = append(idle, k)
	}
	for _, k := range idle {
		r.buckets.Delete(k)
	}
}
