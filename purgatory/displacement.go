package purgatory

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/graspsync/graspsync"
)

// displaced is what has given way in a repository, or waits there.
type displaced struct {
	bytes int64
	since time.Time // that is still there
	// fetched is what of that came for pull requests, and no ref was found to need yet.
	fetched int64
	// waits is what came of that for pull requests that had no room by then, and what was kept
	// when it was looked for what nothing names: each is to have a ref as soon as there is room.
	waits map[graspsync.EventID]int64
}

// displacement is what strangers' pull requests need that have no ref, but may be on the
// disk, and when it is looked for.
type displacement struct {
	// set by newDisplacement, read-only
	cfg      *Config
	git      containedGit
	schedule *schedule

	mu sync.Mutex
	// guarded by mu
	//
	// displaced is at most Limits.MaxPullBytes of each repository, or all that had refs
	// besides. After a restart what had one and has none any more is forgotten, and goes when
	// its time has come.
	displaced map[graspsync.RepoRef]displaced
	prunes    map[graspsync.RepoRef]pruning // of those where something has given way
}

func newDisplacement(cfg *Config, git containedGit, schedule *schedule) *displacement {
	return &displacement{cfg: cfg, git: git, schedule: schedule, displaced: make(map[graspsync.RepoRef]displaced), prunes: make(map[graspsync.RepoRef]pruning)}
}

// pruning is when it was looked for what nothing names, and how long that took.
type pruning struct {
	began time.Time
	took  time.Duration
}

// makeDue notes that so much has given way in a repository that it is its turn at once,
// or when it may be looked for it again.
func (x *displacement) makeDue(ref graspsync.RepoRef) {
	if _, may := x.mayPrune(ref, x.at(ref), time.Now()); may {
		x.schedule.add(ref)
		x.schedule.rouse()
	}
}

// mayPrune returns the grace of what nothing names, if it is to be looked for what has given
// way in a repository: as soon as it can go where that is much, else once in a period.
func (x *displacement) mayPrune(ref graspsync.RepoRef, d displaced, now time.Time) (grace time.Duration, may bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	last := x.prunes[ref]
	rest, grace := max(upkeepShare*last.took, upkeepPeriod), displacedGrace
	if d.bytes >= x.much() {
		rest, grace = upkeepShare*last.took, min(crowdedGrace, x.cfg.Times.Grace)
		if !last.began.IsZero() && now.Sub(d.since) < grace { // nothing more can have gone
			return 0, false
		}
	}
	if d.bytes <= x.little() || now.Sub(last.began) < rest {
		return 0, false
	}
	return grace, true
}

// pruneEnded notes that it was looked for what has given way, of which some may be left.
func (x *displacement) pruneEnded(ref graspsync.RepoRef, began time.Time, left int64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if left == 0 {
		delete(x.prunes, ref)
		return
	}
	x.prunes[ref] = pruning{began, time.Since(began)}
}

// forget is for a repository that is not here any more: nobody looks for what gave way
// there, which would count for its owner for good.
func (x *displacement) forget(ref graspsync.RepoRef) {
	x.mu.Lock()
	defer x.mu.Unlock()
	delete(x.displaced, ref)
	delete(x.prunes, ref)
}

// much is of how many bytes that have given way a repository is rid at once.
func (x *displacement) much() int64 { return max(x.cfg.Limits.MaxPullBytes/2, 1) }

// little is what is worth no look at all objects of a repository: packs have headers, and
// servers send a little more than they are asked for. It goes in its turn.
func (x *displacement) little() int64 { return x.cfg.Limits.MaxPullBytes / 64 }

// at returns what has given way in a repository and may be there still.
func (x *displacement) at(ref graspsync.RepoRef) displaced {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.displaced[ref]
}

// besides returns how much of that there is besides what pull requests wait with, or
// has just come for them, that are to have a ref now.
func (x *displacement) besides(a asked, weights map[graspsync.EventID]int64, over []graspsync.EventID) int64 {
	x.mu.Lock()
	defer x.mu.Unlock()
	d := x.displaced[a.Ref]
	bytes, need := d.bytes, int64(0)
	for _, pr := range a.pulls {
		if slices.Contains(over, pr.ID) {
			continue
		}
		if waits, is := d.waits[pr.ID]; is {
			bytes -= waits
		} else {
			need += weights[pr.ID]
		}
	}
	return max(bytes-min(need, d.fetched), 0)
}

// fetched notes what has come to a repository for pull requests, before it is known what of
// that they need. The rest nobody needs, or not yet.
func (x *displacement) fetched(ref graspsync.RepoRef, bytes int64) {
	if bytes <= 0 || x.cfg.NoMaintenance {
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	d := x.displaced[ref]
	if d.bytes == 0 {
		d.since = time.Now()
	}
	d.bytes += bytes
	d.fetched += bytes
	x.put(ref, d)
}

// unneeded has it be a repository's turn if much of what was fetched is needed by nobody.
func (x *displacement) unneeded(ref graspsync.RepoRef) {
	if x.at(ref).bytes >= x.much() {
		x.makeDue(ref)
	}
}

// placed notes that a pull request has a ref, which takes up weight, and waits for none any
// more.
func (x *displacement) placed(ref graspsync.RepoRef, id graspsync.EventID, weight int64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	d, known := x.displaced[ref]
	if !known {
		return
	}
	bytes, waits := d.waits[id]
	if !waits {
		bytes = min(weight, d.fetched)
		d.fetched -= bytes
	}
	delete(d.waits, id)
	if d.bytes = max(0, d.bytes-bytes); d.bytes == 0 {
		delete(x.displaced, ref)
		return
	}
	x.displaced[ref] = d
}

// displace notes that bytes have given way in a repository.
func (x *displacement) displace(ref graspsync.RepoRef, bytes int64) {
	if bytes <= 0 || x.cfg.NoMaintenance {
		return // nobody would ever say that they are gone
	}
	x.mu.Lock()
	d, known := x.displaced[ref]
	if !known {
		d.since = time.Now()
	}
	d.bytes += bytes
	x.put(ref, d)
	x.mu.Unlock()
	if d.bytes >= x.much() {
		x.makeDue(ref)
	}
}

// came notes what has come to a repository for pull requests that have no room for a ref.
func (x *displacement) came(ref graspsync.RepoRef, waits map[graspsync.EventID]int64) {
	if len(waits) == 0 || x.cfg.NoMaintenance {
		return
	}
	more := int64(0)
	x.mu.Lock()
	d := x.displaced[ref]
	d.waits = maps.Clone(d.waits)
	if d.waits == nil {
		d.waits = make(map[graspsync.EventID]int64)
	}
	for id, bytes := range waits {
		if _, again := d.waits[id]; !again && bytes > 0 {
			d.waits[id] = bytes
			more += bytes
		}
	}
	if more > 0 {
		if d.bytes == 0 {
			d.since = time.Now()
		}
		more = min(more, 2*x.cfg.Limits.MaxPullBytes) // what takes long to be weighed counts for much
		counted := min(more, d.fetched)
		d.fetched -= counted
		d.bytes += more - counted
		x.put(ref, d)
	}
	x.mu.Unlock()
	if more > 0 && d.bytes >= x.much() {
		x.makeDue(ref)
	}
}

// put is called with mu held.
func (x *displacement) put(ref graspsync.RepoRef, d displaced) {
	if _, known := x.displaced[ref]; !known && len(x.displaced) >= maxUpkeep {
		for other := range x.displaced { // any: it goes all the same, later
			delete(x.displaced, other)
			break
		}
	}
	x.displaced[ref] = d
}

// pruned notes that it was looked for what had given way, was bytes, that so many of what
// nothing names are left, and what was kept of what waits; it returns what is on the disk of
// all that.
func (x *displacement) pruned(ref graspsync.RepoRef, began time.Time, was, unnamed int64, waits map[graspsync.EventID]int64) (left int64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	d, known := x.displaced[ref]
	if !known && was > 0 {
		return 0 // it has left meanwhile
	}
	left = max(0, d.bytes-was) + min(was, unnamed)
	for _, bytes := range waits {
		left += bytes
	}
	if left == 0 {
		delete(x.displaced, ref)
		return 0
	}
	x.put(ref, displaced{bytes: left, since: began, waits: waits})
	return left
}

// crowded returns the repositories in which much has given way.
func (x *displacement) crowded() (refs []graspsync.RepoRef) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for ref, d := range x.displaced {
		if d.bytes >= x.much() {
			refs = append(refs, ref)
		}
	}
	return refs
}

// ofOwner is [Purgatory.Displaced].
func (x *displacement) ofOwner(owner graspsync.PubKey) (bytes int64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for ref, d := range x.displaced {
		if ref.Owner == owner {
			bytes += d.bytes
		}
	}
	return bytes
}
