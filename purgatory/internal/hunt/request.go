package hunt

import (
	"math/bits"
	"time"

	"github.com/graspsync/graspsync"
)

// A server that takes as long as it may has a place all that time, and strangers have
// any number of those. Whoever is slow has a part of the places only, and counts as
// having waited less: those who are not find a place within slowAfter. It is a site that is slow, but for servers that have delivered, since
// another name or port of it costs nothing.
//
// How large a repository is nobody knows. So each has a short time first, and those that need more have longer each time, of fewer
// places: what is small is done soon, and what is large at last.
const (
	slowAfter  = time.Minute      // a request that takes longer is slow, unless it brings much
	longAfter  = 5 * time.Minute  // one that takes longer is, whatever it brings
	quickPace  = 64 << 10         // bytes a second that are much
	slowBehind = 10 * time.Minute // so much later

	largeAfter   = 30 * time.Minute // what a request that brings much has beside others that were stopped
	mostLarge    = 2                // how often that doubles
	mostOver     = 5                // how often slowAfter does for one that brings little, beside these
	mostPatience = 3                // and beside what is new
	manyNew      = 8                // so many that are new for each place are many: each has less then
)

// leastPace is how many bytes a second say anything: below that one drips, or counts what it has before it sends any of that.
const leastPace = 1 << 10

// request is a Fetch that was not answered yet.
type request struct {
	entry   *entry
	url     graspsync.CloneURL
	domain  *domain
	place   place
	version uint64 // of the entry when it began
	at      time.Time
	slow    bool    // it was to be expected that it takes long
	loose   bool    // its repository was forgotten, and its place is still taken
	stopped bool    // it was told to end, for others
	speed   float64 // bytes a second that came so far
	stops   int     // how often one to that server was stopped for others before
	known   bool    // its server had delivered before
	strange bool    // its URL is one that strangers name
	aside   bool    // it was stopped for another server of its repository
}

// place is whose a request takes, besides those that its domain has.
type place uint8

const (
	ofAttempt      place = iota // it is what an attempt asks
	besidesAttempt              // it is made besides that
	leftToDomain                // it is made when its domain has room
)

// half is where it counts at its site.
func (r *request) half() half { return half{r.domain.site, r.known} }

// delivers reports whether its server has delivered for its owner.
func (r *request) delivers() bool { return r.domain.served.has(r.entry.repo.Owner) }

// brings takes note of how many bytes have come.
func (r *request) brings(now time.Time, n int64) {
	r.speed = float64(max(0, n)) / max(1, now.Sub(r.at).Seconds())
}

// pace is how many bytes a second a request brings, as a power of two: less of a difference says nothing.
func (r *request) pace() int { return bits.Len64(uint64(r.speed) / leastPace) }

// isLong reports whether a request is slow by now.
func (r *request) isLong(now time.Time) bool { return r.lasts(now, slowAfter, longAfter) }

// isOver reports whether one has had its time by now, and gives its place to others that were stopped. It has longer each time that it
// was itself.
func (r *request) isOver(now time.Time) bool {
	if r.stops == 0 {
		return r.isLong(now)
	}
	return r.isOverAtSite(now)
}

// isOverAtSite is isOver where the others wait for the same servers: of a hub many are large, and to stop one there gains nobody much.
func (r *request) isOverAtSite(now time.Time) bool {
	stops := max(1, r.stops)
	return r.lasts(now, slowAfter<<min(stops, mostOver), largeAfter<<min(stops-1, mostLarge))
}

// isInTheWay reports whether one gives its place to what is new, of which so much waits for so many places.
func (r *request) isInTheWay(now time.Time, waiting, places int) bool {
	few := time.Duration(manyNew * places)
	much := max(slowAfter, (longAfter * few / max(few, time.Duration(waiting))).Truncate(slowAfter)) // NextWake knows whole minutes
	return r.lasts(now, r.patience(), max(much, r.patience()))
}

// bringsLittle reports whether one has had its time, and does not bring much.
func (r *request) bringsLittle(now time.Time) bool {
	return r.speed < quickPace && now.Sub(r.at) >= r.patience()
}

// patience is how long a request may bring little. A server may have to count what it has before it sends any of that.
func (r *request) patience() time.Duration { return slowAfter << min(r.stops, mostPatience) }

func (r *request) lasts(now time.Time, little, much time.Duration) bool {
	if r.speed < quickPace {
		return now.Sub(r.at) >= little
	}
	return now.Sub(r.at) >= much
}

// longAt returns when a request may take long for somebody for whom it does not by now; false: it does for all.
func (r *request) longAt(now time.Time) (time.Time, bool) {
	if r.isOverAtSite(now) && r.isInTheWay(now, 0, 1) && r.bringsLittle(now) {
		return time.Time{}, false
	}
	return r.at.Add((now.Sub(r.at)/slowAfter + 1) * slowAfter), true
}
