// Package allowance bounds what a relay costs us. There are two allowances, in the same
// currency, bytes:
//
//   - of what proves a relay hostile or broken, since nothing that we asked can lead to
//     it: what was not asked for, is repeated, malformed or forged. A relay that has used
//     it up is cut.
//   - of events that were asked for, until they turn out to be of use. Layer 1 asks for
//     all announcements of a relay, and what others put on an honest one is not its
//     doing: a relay that has used it up is asked for history as slowly as it comes back,
//     and never cut. What was asked for is looked at when it comes, on credit: what stood
//     still for it would hold up what comes live behind it.
//
// It is pure: it is told the time and does no I/O.
package allowance

import "time"

const (
	// Verifications is how many events with a wrong id or signature use up a full
	// allowance of the first kind, or that turn out to be of no use one of the second.
	Verifications = 2_000
	// refillTime is in how many seconds all of an allowance of the second kind comes
	// back: ten events a second, of which 256 relays that send nothing else take half of
	// one core, and 300,000 are through in eight hours.
	refillTime = Verifications / 10
)

// Forgery is what one event with a wrong id or signature costs a relay whose
// allowance is most bytes: it takes more of our time than of the relay's.
func Forgery(most int64) int64 { return (most + Verifications - 1) / Verifications }

// Work is what an event of that size costs a relay whose allowance is most bytes,
// before it is known whether it is of use: its bytes, or a verification if that is more.
func Work(most, size int64) int64 { return min(most, max(size, Forgery(most))) }

// NewWork returns a full Bucket of the second kind.
func NewWork(most int64) Bucket { return New(most, max(1, most*60/refillTime)) }

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

// Take takes n bytes out if they are there, and returns 0, or else how long it takes
// until they are. More than a full Bucket is never there.
func (b *Bucket) Take(now time.Time, n int64) (wait time.Duration) {
	b.refill(now)
	lack := n - (b.most - b.spent)
	if lack <= 0 {
		b.spent += max(0, n)
		return 0
	}
	seconds := (float64(lack)*60 + float64(b.minute) - 1) / float64(b.minute)
	return b.at.Add(time.Duration(max(1, int64(seconds))) * time.Second).Sub(now)
}

// Owe takes n bytes out whether or not they are there. What is lacking is owed: Left is
// below zero until it has come back.
func (b *Bucket) Owe(now time.Time, n int64) {
	b.refill(now)
	b.spent += max(0, n)
}

// Per returns how long n bytes take to come back.
func (b *Bucket) Per(n int64) time.Duration {
	return time.Duration(float64(n) * float64(time.Minute) / float64(b.minute))
}

// Earn gives back n bytes for what was useful.
func (b *Bucket) Earn(n int64) { b.spent = max(0, b.spent-max(0, n)) }

// Most is what a full allowance is.
func (b *Bucket) Most() int64 { return b.most }

// Left returns what may still be spent, below zero if more is owed.
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
