package negentropy

import "cmp"

const (
	// buckets is the number of parts of a split range. A range of fewer than 2*buckets items is
	// listed, as in the reference implementation.
	buckets = 16

	maxBound = maxVarint + 1 + idSize

	// reserve is the room for the end of a frame: a skip and one fingerprint up to infinity.
	reserve = maxBound + 1 + 3 + fingerprintSize

	minFrame     = 4096
	defaultFrame = 30_000
)

// writer builds a message of at most limit bytes from consecutive ranges of the set. A method that
// returns false had no room.
type writer struct {
	set   *Set
	out   []byte
	limit int
	last  uint64 // time of the last written bound

	at      int  // items below this index are written or settled
	skipped bool // a skip up to the bound skip is not written yet
	skip    bound
}

func newWriter(s *Set, frameSize int) *writer {
	return &writer{set: s, limit: max(cmp.Or(frameSize, defaultFrame), minFrame), out: []byte{version}}
}

// settle records that the items up to hi need no message. Adjacent settled ranges become one skip.
func (w *writer) settle(hi int, upper *bound) {
	w.at, w.skip, w.skipped = hi, *upper, true
}

// split writes the ids of [w.at, hi) if they are few, else the fingerprints of its parts.
func (w *writer) split(hi int, upper *bound) bool {
	n := hi - w.at
	if n < 2*buckets {
		return w.list(hi, upper)
	}
	for i := range buckets {
		end, b := hi, *upper
		if i < buckets-1 {
			end = w.at + n/buckets
			if i < n%buckets {
				end++
			}
			b = w.set.boundAt(end)
		}
		if !w.digest(end, &b) {
			return false
		}
	}
	return true
}

func (w *writer) digest(hi int, upper *bound) bool {
	if w.room() < maxBound+1+fingerprintSize {
		return false
	}
	fp := w.set.fingerprint(w.at, hi)
	w.header(upper, modeFingerprint)
	w.out = append(w.out, fp[:]...)
	w.at = hi
	return true
}

// list writes the ids of [w.at, hi), or as many as fit.
func (w *writer) list(hi int, upper *bound) bool {
	free := w.room() - maxBound - 1 - maxVarint
	if free < min(hi-w.at, 1)*idSize {
		return false
	}
	end, b := hi, *upper
	if n := free / idSize; hi-w.at > n {
		end = w.at + n
		b = w.set.boundAt(end)
	}
	w.header(&b, modeIDs)
	w.out = appendVarint(w.out, uint64(end-w.at))
	for i := w.at; i < end; i++ {
		w.out = append(w.out, w.set.ids[i][:]...)
	}
	w.at = end
	return end == hi
}

func (w *writer) room() int {
	n := w.limit - len(w.out) - reserve
	if w.skipped {
		n -= maxBound + 1
	}
	return n
}

// header writes a pending skip and starts a range.
func (w *writer) header(upper *bound, m mode) {
	if w.skipped {
		w.skipped = false
		w.header(&w.skip, modeSkip)
	}
	if upper.time == infinity {
		w.out = append(w.out, 0)
	} else {
		w.out = appendVarint(w.out, upper.time-w.last+1)
		w.last = upper.time
	}
	w.out = append(w.out, byte(upper.size))
	w.out = append(w.out, upper.id[:upper.size]...)
	w.out = append(w.out, byte(m))
}

// rest ends a full message with one fingerprint of all items from w.at on, which the peer compares
// next.
func (w *writer) rest() {
	fp := w.set.fingerprint(w.at, w.set.Len())
	w.header(&bound{time: infinity}, modeFingerprint)
	w.out = append(w.out, fp[:]...)
}
