package limit

import (
	"context"
	"errors"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// ErrNoRoom means that a stranger has no bucket and there is no room for one more.
var ErrNoRoom = errors.New("too many strangers")

// Rate gives each stranger so many units per second. A group has [GroupParts] times as much. Rate is safe
// for concurrent use.
type Rate struct {
	perSecond rate.Limit
	burst     int

	mu sync.Mutex
	// guarded by mu
	buckets *Table[ownerKey, *rate.Limiter]
}

// NewRate returns a rate of perSecond units for each stranger, of which burst may come together. It keeps
// at most maxStrangers buckets. A bucket that is full is as good as none, and leaves before others do.
func NewRate(perSecond float64, burst, maxStrangers int) *Rate {
	return &Rate{perSecond: rate.Limit(perSecond), burst: burst, buckets: NewTable[ownerKey, *rate.Limiter](maxStrangers, 0)}
}

// Allow reports whether a stranger may have n units now, and takes them if so. The zero Stranger may have
// any number.
func (r *Rate) Allow(who Stranger, n int) bool {
	now := time.Now()
	buckets, ok := r.of(who, now)
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

// Wait waits until a stranger may have n units, which is at most the burst, and takes them. It returns the
// error of ctx, also if that would end first.
func (r *Rate) Wait(ctx context.Context, who Stranger, n int) error {
	buckets, ok := r.of(who, time.Now())
	if !ok {
		return ErrNoRoom
	}
	for _, b := range buckets {
		if err := b.WaitN(ctx, n); err != nil {
			return err
		}
	}
	return nil
}

// of returns the buckets of a stranger: its own and that of its group.
func (r *Rate) of(who Stranger, now time.Time) (buckets []*rate.Limiter, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for k, parts := range who.keys() {
		b, found := r.buckets.Get(k)
		if !found {
			b = rate.NewLimiter(r.perSecond*rate.Limit(parts), r.burst*int(parts))
			r.makeRoom(now)
			if _, ok := r.buckets.Put(k, Stranger{ID: who.turn()}, 0, b); !ok {
				return nil, false
			}
		}
		r.buckets.Touch(k)
		buckets = append(buckets, b)
	}
	return buckets, true
}

// makeRoom removes buckets that are full from a table that is, the ones first that were not used for longest.
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
