// Package allowance bounds what a relay may send that leads to nothing. It is pure:
// it is told the time and does no I/O.
package allowance

import "time"

const (
	// Verifications is how many events with a wrong id or signature use up a full
	// allowance.
	Verifications = 2_000
	// foreignShare is the part of an event's size that is charged if it was asked
	// for and is not for us. Layer 1 asks for all announcements of a relay: of a
	// hub's 5 to 10 MB of them most may belong to other servers, and no honest hub
	// may be cut for that.
	foreignShare = 8
)

// Forgery is what one event with a wrong id or signature costs a relay whose
// allowance is most bytes: it takes more of our time than of the relay's.
func Forgery(most int64) int64 { return (most + Verifications - 1) / Verifications }

// Foreign is what an event of that size costs that was asked for and is not for us.
func Foreign(size int64) int64 { return (size + foreignShare - 1) / foreignShare }

// Bucket is the allowance of one relay, over all its connections. Make one with
// [New]; the zero Bucket is exhausted. It is not safe for concurrent use.
type Bucket struct {
	most   int64
	minute int64 // how much comes back in one
	spent  int64
	at     time.Time // up to when that was counted
}

// New returns a full Bucket of most bytes, of which refill come back in a minute.
func New(most, refill int64) Bucket { return Bucket{most: most, minute: refill} }

// Spend takes n bytes out, and reports whether the allowance lasted for them. Once
// it did not, it is empty until time or useful events fill it.
func (b *Bucket) Spend(now time.Time, n int64) bool {
	b.refill(now)
	if n <= 0 {
		return true
	}
	if n > b.most-b.spent {
		b.spent = b.most
		return false
	}
	b.spent += n
	return true
}

// Earn gives back n bytes for what was useful.
func (b *Bucket) Earn(n int64) { b.spent = max(0, b.spent-max(0, n)) }

// Left returns what may still be spent.
func (b *Bucket) Left(now time.Time) int64 {
	b.refill(now)
	return b.most - b.spent
}

func (b *Bucket) refill(now time.Time) {
	passed := now.Sub(b.at)
	if b.at.IsZero() || passed < 0 { // the clock was set back: nothing is given for that
		b.at = now
		return
	}
	whole := int64(passed / time.Second)
	b.at = b.at.Add(time.Duration(whole) * time.Second)
	back := float64(whole) * float64(b.minute) / 60 // which can't overflow
	if back >= float64(b.spent) {
		b.spent = 0
	} else {
		b.spent -= int64(back)
	}
}
