package purgatory

import (
	"iter"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/backoff"
	"github.com/graspsync/graspsync/limit"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory/internal/keyed"
	"github.com/graspsync/graspsync/purgatory/internal/refplan"
	"github.com/graspsync/graspsync/state"
)

const (
	// restartShare divides Hold. After a start, an overdue event is held for Hold/restartShare
	// before it expires, because its data may be complete.
	restartShare = 30
	// maxDependents is the maximum number of events that are evicted with their announcement. The
	// rest expires.
	maxDependents = 100
)

// pendingEvents are the held events, in memory and on the disk. An event is written to the disk
// before its hold starts, and deleted from the disk before its hold ends.
type pendingEvents struct {
	// set by newPendingEvents, read-only
	cfg      *Config
	report   *report
	inbox    *inbox
	table    *repoTable
	relay    safeRelay
	keep     state.Store
	step     func(name string)
	sessions *fetchSessions

	writing *keyed.Locks[graspsync.EventID] // held while the record of an event is written or deleted
	storing *keyed.Locks[graspsync.EventID] // held while the relay stores an event

	mu sync.Mutex
	// guarded by mu
	events    map[graspsync.EventID]*pendingEvent
	byRepo    map[graspsync.RepoRef]idSet
	byName    map[string]idSet // announcements, relatives and states by identifier
	byAuthor  map[graspsync.PubKey]idSet
	announced map[graspsync.RepoRef]graspsync.EventID
	known     *nip34.AuthorIndex   // authors and maintainers of announcements
	lists     map[string]*nameList // by identifier; absent after a change
	next      time.Time            // earliest time at which an event may be due; zero if unknown
	deletions uint64               // number of calls of askAgain

	// room contains each event. The value is true while the event is being written.
	room     *limit.Table[graspsync.EventID, bool]
	quotas   map[quotaKey]int // number of events in room
	expired  *limit.Table[graspsync.EventID, endedHold]
	departed *limit.Table[graspsync.RepoRef, endedHold] // relatives that are no longer held

	pinned map[graspsync.EventID]int // events that releases use
	ending idSet                     // events whose expiry is under way
}

// pendingEvent is a held event. A returned [refplan.Entry] is a copy.
type pendingEvent struct {
	refplan.Entry
	retry     backoff.Streak                 // failed expiries; Until is the earliest next one
	undeleted bool                           // no deletion is stored, and none of its author was since
	refIn     map[graspsync.RepoRef]struct{} // repositories that have its ref; nil unless it is stored
	slowAt    time.Time                      // last slow walk of its data
}

// nameList holds the announcements with an identifier.
type nameList struct {
	hard []*nip34.Announcement // not expired
	soft []*nip34.Announcement // all, and relatives
}

// endedHold is the record of an event that is no longer held.
type endedHold struct {
	until   time.Time
	version graspsync.EventKey // of a relative
}

type idSet = map[graspsync.EventID]struct{}

// quotaKey is the quota in which an event counts. States and relatives have separate quotas, so
// that announcements do not wait for them.
type quotaKey struct {
	author    graspsync.PubKey
	relatives bool
	states    bool
}

func quotaOf(e *refplan.Entry) quotaKey {
	return quotaKey{author: e.Owes(), relatives: e.Class == refplan.Relative, states: e.Class == refplan.State}
}

func newPendingEvents(cfg *Config, report *report, inbox *inbox, table *repoTable, sessions *fetchSessions, relay safeRelay, keep state.Store,
	step func(name string),
) *pendingEvents {
	return &pendingEvents{
		cfg: cfg, report: report, inbox: inbox, table: table, relay: relay, keep: keep, step: step, sessions: sessions,
		writing: keyed.NewLocks[graspsync.EventID](), storing: keyed.NewLocks[graspsync.EventID](),
		events: make(map[graspsync.EventID]*pendingEvent), byRepo: make(map[graspsync.RepoRef]idSet), byName: make(map[string]idSet),
		byAuthor: make(map[graspsync.PubKey]idSet), announced: make(map[graspsync.RepoRef]graspsync.EventID),
		known: nip34.NewAuthorIndex(), lists: make(map[string]*nameList),
		room:     limit.NewTable[graspsync.EventID, bool](cfg.Limits.MaxEntries, cfg.Limits.MaxBytes),
		quotas:   make(map[quotaKey]int),
		expired:  limit.NewTable[graspsync.EventID, endedHold](cfg.fixed.MaxRemembered, 0),
		departed: limit.NewTable[graspsync.RepoRef, endedHold](cfg.fixed.MaxRemembered, 0),
		pinned:   make(map[graspsync.EventID]int), ending: make(idSet),
	}
}

func (p *pendingEvents) get(id graspsync.EventID) (e refplan.Entry, waits bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.entry(id)
}

// entry is get with mu held.
func (p *pendingEvents) entry(id graspsync.EventID) (refplan.Entry, bool) {
	if h := p.events[id]; h != nil {
		return h.Entry, true
	}
	return refplan.Entry{}, false
}

// all returns all events, by id.
func (p *pendingEvents) all() []refplan.Entry {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.some(maps.Keys(p.events), nil)
}

// some returns the events of ids for which is returns true, or all if is is nil, by id. mu is held.
func (p *pendingEvents) some(ids iter.Seq[graspsync.EventID], is func(*pendingEvent) bool) (out []refplan.Entry) {
	var found []*pendingEvent // pointers are cheaper to sort
	for id := range ids {
		if h := p.events[id]; is == nil || is(h) {
			found = append(found, h)
		}
	}
	slices.SortFunc(found, func(a, b *pendingEvent) int { return a.ID.Compare(b.ID) })
	for _, h := range found {
		out = append(out, h.Entry)
	}
	return out
}

// named returns the announcements, relatives and states with an identifier for which is returns
// true.
func (p *pendingEvents) named(identifier string, is func(*pendingEvent) bool) []refplan.Entry {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.some(maps.Keys(p.byName[identifier]), is)
}

// of returns the events that name a repository, and all states with its identifier.
func (p *pendingEvents) of(ref graspsync.RepoRef) []refplan.Entry {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.ofRepo(ref)
}

// ofRepo is of with mu held.
func (p *pendingEvents) ofRepo(ref graspsync.RepoRef) []refplan.Entry {
	ids := maps.Clone(p.byRepo[ref])
	for id := range p.byName[ref.Identifier] {
		if p.events[id].Class == refplan.State {
			into(&ids, id)
		}
	}
	return p.some(maps.Keys(ids), nil)
}

// stateOf reports whether a state with the identifier of a repository is held.
func (p *pendingEvents) stateOf(ref graspsync.RepoRef) bool {
	return len(p.named(ref.Identifier, func(h *pendingEvent) bool { return h.Class == refplan.State })) > 0
}

// still returns the current entries of the events that are still held.
func (p *pendingEvents) still(some []refplan.Entry) (out []refplan.Entry) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range some {
		if e, waits := p.entry(some[i].ID); waits {
			out = append(out, e)
		}
	}
	return out
}

func (p *pendingEvents) ofAuthor(author graspsync.PubKey) []refplan.Entry {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.some(maps.Keys(p.byAuthor[author]), nil)
}

// waitingUnder returns the announcements and relatives with an identifier that have not expired.
func (p *pendingEvents) waitingUnder(identifier string) []refplan.Entry {
	return p.named(identifier, func(h *pendingEvent) bool { return h.IsAnnouncement() && !h.Soft })
}

func (p *pendingEvents) announcementsUnder(identifier string) []refplan.Entry {
	return p.named(identifier, func(h *pendingEvent) bool { return h.Class == refplan.Announcement })
}

// relatives returns the relatives with an identifier.
func (p *pendingEvents) relatives(identifier string) []refplan.Entry {
	return p.named(identifier, func(h *pendingEvent) bool { return h.Class == refplan.Relative })
}

// under returns the states and pull requests that a survey of a group must judge, and the
// repositories with held pull requests. It skips pull requests without news, because thousands may
// be held and each new one causes a survey. Such a pull request names one repository, is not fresh,
// does not expire, and is known to be undeleted.
func (p *pendingEvents) under(g *refplan.Group, fresh map[graspsync.EventID]bool) (out []refplan.Entry, pulled map[graspsync.RepoRef]struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	pulls := make(idSet)
	pulled = make(map[graspsync.RepoRef]struct{})
	ours := g.Ours()
	for ref := range ours {
		for id := range p.byRepo[ref] {
			h := p.events[id]
			if _, ending := p.ending[id]; ending || h.Class != refplan.PullRequest {
				continue
			}
			pulled[ref] = struct{}{}
			if _, isFresh := fresh[id]; isFresh || g.AskDeleted || !h.undeleted || h.Expires != 0 || len(h.Repos) > 1 {
				pulls[id] = struct{}{}
			}
		}
	}
	if len(ours) > 0 {
		out = p.some(maps.Keys(p.byName[g.Identifier]), func(h *pendingEvent) bool { return h.Class == refplan.State })
	}
	return append(out, p.some(maps.Keys(pulls), nil)...), pulled
}

func (p *pendingEvents) announcement(ref graspsync.RepoRef) (refplan.Entry, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if h := p.events[p.announced[ref]]; h != nil && h.Class == refplan.Announcement {
		return h.Entry, true
	}
	return refplan.Entry{}, false
}

// allAnnouncements implements [Purgatory.AllAnnouncements].
func (p *pendingEvents) allAnnouncements() (out []*nip34.Announcement) {
	for _, e := range p.all() {
		if e.Class == refplan.Announcement && !e.Soft {
			out = append(out, e.Announces)
		}
	}
	slices.SortFunc(out, func(a, b *nip34.Announcement) int { return graspsync.RepoRef.Compare(a.Ref, b.Ref) })
	return out
}

// announcements returns the announcements with an identifier, or nil. It returns the same list
// until one of them changes.
func (p *pendingEvents) announcements(identifier string) *nameList {
	p.mu.Lock()
	defer p.mu.Unlock()
	list := p.lists[identifier]
	if list != nil {
		return list
	}
	for _, e := range p.some(maps.Keys(p.byName[identifier]), func(h *pendingEvent) bool { return h.IsAnnouncement() }) {
		if list == nil {
			list = new(nameList)
			p.lists[identifier] = list
		}
		if list.soft = append(list.soft, e.Announces); e.Class == refplan.Announcement && !e.Soft {
			list.hard = append(list.hard, e.Announces)
		}
	}
	return list
}

// stillWaits reports whether a repository without announcement in g has a held announcement whose
// expiry is under way. Then only the expiry decides about the repository, because it may have data.
func (p *pendingEvents) stillWaits(g *refplan.Group, ref graspsync.RepoRef) bool {
	e, waits := p.announcement(ref)
	return waits && !e.Soft && !slices.ContainsFunc(g.Over, func(o refplan.Ended) bool { return o.Entry.ID == e.ID })
}

func (p *pendingEvents) allWait(ids []graspsync.EventID) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !slices.ContainsFunc(ids, func(id graspsync.EventID) bool { return p.events[id] == nil })
}

func (p *pendingEvents) waitsFor(id graspsync.EventID, ref graspsync.RepoRef) bool {
	e, _ := p.get(id)
	return slices.Contains(e.Repos, ref)
}

func (p *pendingEvents) pullTips(ref graspsync.RepoRef) (tips []nip34.ObjectID) {
	for _, e := range p.of(ref) {
		if e.Pull != nil {
			tips = append(tips, e.Pull.Tip)
		}
	}
	return tips
}

// held implements [Purgatory.Held].
func (p *pendingEvents) held(filter nostr.Filter) (out []graspsync.EventKey) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for id, h := range p.events {
		if h.refIn == nil && filter.Matches(h.Event) {
			out = append(out, graspsync.EventKey{CreatedAt: h.Event.CreatedAt, ID: id})
		}
	}
	slices.SortFunc(out, func(a, b graspsync.EventKey) int { return a.ID.Compare(b.ID) })
	return out
}

// knows implements [Purgatory.Knows].
func (p *pendingEvents) knows(identifier string, who graspsync.PubKey) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.known.Has(identifier, who)
}

// toAsk returns the events that may be deleted.
func (p *pendingEvents) toAsk(some []refplan.Entry) idSet {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := make(idSet)
	for i := range some {
		if h := p.events[some[i].ID]; h == nil || !h.undeleted {
			out[some[i].ID] = struct{}{}
		}
	}
	return out
}

// asking returns the number of deletions, which the caller passes to undeleted.
func (p *pendingEvents) asking() (deletions uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.deletions
}

// undeleted records that the relay has no deletion of an event, unless a deletion arrived since
// asking.
func (p *pendingEvents) undeleted(id graspsync.EventID, deletions uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if h := p.events[id]; h != nil && p.deletions == deletions {
		h.undeleted = true
	}
}

func (p *pendingEvents) askAgain(author graspsync.PubKey) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.deletions++
	for id := range p.byAuthor[author] {
		p.events[id].undeleted = false
	}
}

// noteServed records that a pull request is stored and whether a repository has its ref. It returns
// all repositories with its ref.
func (p *pendingEvents) noteServed(id graspsync.EventID, ref graspsync.RepoRef, has bool) map[graspsync.RepoRef]struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	h := p.events[id]
	if h == nil {
		h = new(pendingEvent)
	}
	if h.refIn == nil {
		h.refIn = make(map[graspsync.RepoRef]struct{})
	}
	if has {
		h.refIn[ref] = struct{}{}
	}
	return maps.Clone(h.refIn)
}

// isServed reports whether a pull request is stored but still held for other repositories.
func (p *pendingEvents) isServed(id graspsync.EventID) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	h := p.events[id]
	return h != nil && h.refIn != nil
}

// noteSlow records a slow walk of the data of an event.
func (p *pendingEvents) noteSlow(id graspsync.EventID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if h := p.events[id]; h != nil {
		h.slowAt = time.Now()
	}
}

// wasSlow reports whether noteSlow was called less than longAgain ago.
func (p *pendingEvents) wasSlow(id graspsync.EventID) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	h := p.events[id]
	return h != nil && time.Since(h.slowAt) < longAgain
}

// sortByAge sorts restored events by age, because the oldest is evicted first.
func (p *pendingEvents) sortByAge() {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := p.some(maps.Keys(p.events), nil)
	slices.SortStableFunc(all, func(a, b refplan.Entry) int { return a.Seen.Compare(b.Seen) })
	for _, e := range all {
		p.room.Touch(e.ID)
	}
}

// The following methods are called with mu held.
//
// add holds an event.
func (p *pendingEvents) add(h *pendingEvent) {
	p.events[h.ID] = h
	p.quotas[quotaOf(&h.Entry)]++
	intoKey(p.byAuthor, h.Author, h.ID)
	for _, ref := range h.Repos {
		if h.Class != refplan.Relative {
			intoKey(p.byRepo, ref, h.ID)
		}
		if h.Class != refplan.PullRequest {
			intoKey(p.byName, ref.Identifier, h.ID)
		}
	}
	if h.IsAnnouncement() {
		p.announced[h.Repos[0]] = h.ID
		p.known.Add(h.Announces)
		delete(p.lists, h.Repos[0].Identifier)
	}
	p.expect(h)
}

// drop ends the hold of an event, but keeps its place in room.
func (p *pendingEvents) drop(h *pendingEvent) {
	delete(p.events, h.ID)
	p.uncount(&h.Entry)
	outOf(p.byAuthor, h.Author, h.ID)
	for _, ref := range h.Repos {
		outOf(p.byRepo, ref, h.ID)
		outOf(p.byName, ref.Identifier, h.ID)
	}
	if h.IsAnnouncement() {
		delete(p.announced, h.Repos[0])
		p.known.Remove(h.Announces)
		delete(p.lists, h.Repos[0].Identifier)
	}
}

// remove ends the hold of an event and frees its place in room, unless it is being written.
func (p *pendingEvents) remove(h *pendingEvent) {
	p.drop(h)
	if writing, _ := p.room.Get(h.ID); !writing {
		p.room.Delete(h.ID)
	}
}

func (p *pendingEvents) uncount(e *refplan.Entry) {
	k := quotaOf(e)
	if p.quotas[k]--; p.quotas[k] == 0 {
		delete(p.quotas, k)
	}
}

// full reports whether the quota of an event is full, without leave events that are about to leave
// it.
func (p *pendingEvents) full(e *refplan.Entry, leave int) bool {
	return p.quotas[quotaOf(e)]-leave >= p.cfg.fixed.MaxPerAuthor
}

// check returns the reason why an event must not be held, or the zero Answer.
func (p *pendingEvents) check(now time.Time, e *refplan.Entry) Answer {
	old := p.replacedBy(e)
	switch {
	case p.events[e.ID] != nil && p.events[e.ID].Class == e.Class:
		return Answer{Held, Message}
	case p.isExpired(e.ID, now) && !e.ByUser: // a client that has the data now may try again
		return Answer{Refused, reasonExpired}
	case e.IsAnnouncement() && old != nil && !e.Version.Newer(old.Version), p.hasLeft(now, e):
		return Answer{Refused, reasonSuperseded}
	}
	leave := 0
	if old != nil && quotaOf(&old.Entry) == quotaOf(e) {
		leave = 1
	}
	if p.full(e, leave) {
		return Answer{Full, reasonAuthor}
	}
	return Answer{}
}

// replacedBy returns the event whose place e takes: an older version, or e itself.
func (p *pendingEvents) replacedBy(e *refplan.Entry) *pendingEvent {
	if e.IsAnnouncement() {
		return p.events[p.announced[e.Repos[0]]]
	}
	return p.events[e.ID]
}

// evictSoft evicts the oldest softly expired announcement of the author of e, for an announcement
// or a pull request.
func (p *pendingEvents) evictSoft(e *refplan.Entry) []refplan.Entry {
	var oldest *pendingEvent
	for id := range p.byAuthor[e.Author] {
		if h := p.events[id]; h.Soft && !p.isKept(id) && (oldest == nil || h.Deadline.Before(oldest.Deadline)) {
			oldest = h
		}
	}
	if oldest == nil || e.Class == refplan.Relative || e.Class == refplan.State {
		return nil
	}
	return p.evict(oldest)
}

// reserve makes room for an event before it is written. It returns the evicted events and the
// events that depend on them. Evicted events may be submitted again.
func (p *pendingEvents) reserve(e *refplan.Entry) (gone []refplan.Entry, ok bool) {
	p.quotas[quotaOf(e)]++
	if old := p.replacedBy(e); old != nil {
		p.room.Delete(old.ID)
	}
	if gone, ok = p.place(e, true); !ok {
		gone = append(gone, p.release(e)...)
	}
	return gone, ok
}

// release undoes reserve. It returns the events that are evicted because a replaced event returns
// to its place.
func (p *pendingEvents) release(e *refplan.Entry) []refplan.Entry {
	p.uncount(e)
	p.room.Delete(e.ID)
	if old := p.replacedBy(e); old != nil {
		return p.put(old)
	}
	return nil
}

// place adds an event to room. It returns the evicted events.
func (p *pendingEvents) place(e *refplan.Entry, writing bool) (gone []refplan.Entry, ok bool) {
	evicted, ok := p.room.PutKeeping(e.ID, strangerOf(e), e.Size, writing, func(id graspsync.EventID) bool {
		return p.isKept(id) || needs(e, &p.events[id].Entry)
	})
	for _, x := range evicted {
		if old := p.events[x.Key]; old != nil { // else it was evicted with its announcement
			gone = append(gone, p.evict(old)...)
		}
	}
	return gone, ok
}

// put is place for a held event, which is evicted itself if there is no room.
func (p *pendingEvents) put(h *pendingEvent) []refplan.Entry {
	gone, ok := p.place(&h.Entry, false)
	if !ok {
		gone = append(gone, p.evict(h)...)
	}
	return gone
}

// evict removes an event and, if it is an announcement, the events that depend on it.
func (p *pendingEvents) evict(h *pendingEvent) []refplan.Entry {
	gone := []refplan.Entry{h.Entry}
	p.remove(h)
	if h.Class != refplan.Announcement {
		return gone
	}
	dependents := slices.Concat(p.some(maps.Keys(p.byRepo[h.Repos[0]]), func(o *pendingEvent) bool { return len(o.Repos) == 1 }),
		p.some(maps.Keys(p.byName[h.Repos[0].Identifier]), func(o *pendingEvent) bool { return o.Class == refplan.Relative && o.For == h.Author }))
	dependents = slices.DeleteFunc(dependents, func(e refplan.Entry) bool { return p.isKept(e.ID) })
	for _, e := range dependents[:min(len(dependents), maxDependents)] {
		p.remove(p.events[e.ID])
		gone = append(gone, e)
	}
	return gone
}

// isKept reports whether an event must not be evicted, because it is being written, its expiry is
// under way, or a release may move branches and tags for it. Pull requests in a release may be
// evicted.
func (p *pendingEvents) isKept(id graspsync.EventID) bool {
	writing, _ := p.room.Get(id)
	_, ending := p.ending[id]
	return writing || ending || p.events[id].Class != refplan.PullRequest && p.pinned[id] > 0
}

// strangerOf returns the stranger in whose share an event counts. Softly expired announcements
// share one stranger, so that they are evicted first.
func strangerOf(e *refplan.Entry) limit.Stranger {
	switch {
	case e.Soft:
		return limit.Stranger{ID: "expired announcements"}
	case e.Class == refplan.PullRequest:
		return limit.Stranger{ID: e.From}
	}
	return limit.Stranger{ID: e.Owes().String()}
}

// needs reports whether e is useless without the announcement x.
func needs(e, x *refplan.Entry) bool {
	if x.Class != refplan.Announcement {
		return false
	}
	ref := x.Repos[0]
	return slices.Contains(e.Repos, ref) || e.Class == refplan.Relative && ref.Identifier == e.Repos[0].Identifier && e.For == x.Author
}

// fill holds an event that has a place. It returns the replaced events, or the event itself if a
// newer version is held. It does not call check, because the event may come from the disk.
func (p *pendingEvents) fill(e *refplan.Entry) (replaced []refplan.Entry) {
	if old := p.replacedBy(e); old != nil && old.ID != e.ID {
		if old.Version.Newer(e.Version) {
			p.room.Delete(e.ID)
			return []refplan.Entry{*e}
		}
		replaced = append(replaced, old.Entry)
		p.remove(old)
	}
	if old := p.events[e.ID]; old != nil {
		p.drop(old)
	}
	h := &pendingEvent{Entry: *e}
	p.add(h)
	return append(replaced, p.put(h)...)
}

// expect records when an event is due.
func (p *pendingEvents) expect(h *pendingEvent) {
	if at := h.due(); p.next.IsZero() || at.Before(p.next) {
		p.next = at
	}
}

// due returns the earliest expiry of an event.
func (h *pendingEvent) due() time.Time {
	return backoff.Later(h.retry.Until, h.Deadline)
}

// renew updates an announcement that expires softly or is revived. It becomes the newest event of
// another stranger.
func (p *pendingEvents) renew(h *pendingEvent) {
	h.retry = backoff.Streak{}
	p.expect(h)
	delete(p.lists, h.Repos[0].Identifier)
	if writing, has := p.room.Get(h.ID); has {
		p.room.Put(h.ID, strangerOf(&h.Entry), h.Size, writing)
	}
}

// extended returns the deadline of an event after a sign of life.
func (p *pendingEvents) extended(now time.Time, e *refplan.Entry) time.Time {
	if e.Soft {
		return e.Deadline
	}
	d, most := now.Add(p.cfg.Times.Hold), e.Seen.Add(p.cfg.fixed.MaxHold)
	if d.After(most) {
		d = most
	}
	if d.Before(e.Deadline) {
		return e.Deadline
	}
	return d
}

// longest returns the maximum hold of a new event. A relative is held as long as an announcement
// that lists its author can be, and its hold ends with the last of them.
func (p *pendingEvents) longest(e *refplan.Entry) time.Duration {
	if e.Class == refplan.Relative && e.For != e.Author {
		return p.cfg.fixed.MaxHold + p.cfg.fixed.SoftExpiry
	}
	return p.cfg.Times.Hold
}

// dated sets the times of an event. An announcement that replaces a held one keeps its start and
// counts as a sign of life.
func (p *pendingEvents) dated(now time.Time, e refplan.Entry) refplan.Entry {
	e.Seen, e.Deadline = now, now.Add(p.longest(&e))
	if old := p.replacedBy(&e); old != nil && e.Class == refplan.Announcement && old.Class == refplan.Announcement {
		e.Seen, e.Soft, e.Deadline = old.Seen, old.Soft, old.Deadline
		e.Deadline = p.extended(now, &e)
	}
	return e
}

// isExpired reports whether an event is remembered as expired.
func (p *pendingEvents) isExpired(id graspsync.EventID, now time.Time) bool {
	m, ok := p.expired.Get(id)
	return ok && now.Before(m.until)
}

// hasLeft reports whether a newer version of an announcement is recorded as departed.
func (p *pendingEvents) hasLeft(now time.Time, e *refplan.Entry) bool {
	if !e.IsAnnouncement() {
		return false
	}
	m, ok := p.departed.Get(e.Repos[0])
	return ok && now.Before(m.until) && m.version.Newer(e.Version)
}

// remember adds a record for at most most, because a time on the disk may be wrong. It returns the
// evicted and the lapsed keys.
func remember[K comparable](t *limit.Table[K, endedHold], key K, owner graspsync.PubKey, m endedHold, now time.Time, most time.Duration) (forgotten []K) {
	if latest := now.Add(most); m.until.After(latest) {
		m.until = latest
	}
	if !now.Before(m.until) {
		return []K{key}
	}
	m.until = steady(now, m.until)
	if old, again := t.Get(key); again && old.version.Newer(m.version) {
		m.version = old.version
	}
	evicted, _ := t.Displace(key, limit.Stranger{ID: owner.String()}, 0, m)
	for _, e := range evicted {
		forgotten = append(forgotten, e.Key)
	}
	over := len(forgotten)
	for key, m := range t.All() {
		if now.Before(m.until) {
			break
		}
		forgotten = append(forgotten, key)
	}
	for _, key := range forgotten[over:] {
		t.Delete(key)
	}
	return forgotten
}

// steady returns a time with the monotonic clock of now.
func steady(now, at time.Time) time.Time { return now.Add(at.Sub(now)) }

func into(m *idSet, id graspsync.EventID) {
	if *m == nil {
		*m = make(idSet)
	}
	(*m)[id] = struct{}{}
}

func intoKey[K comparable](m map[K]idSet, k K, id graspsync.EventID) {
	ids := m[k]
	into(&ids, id)
	m[k] = ids
}

func outOf[K comparable](m map[K]idSet, k K, id graspsync.EventID) {
	delete(m[k], id)
	if len(m[k]) == 0 {
		delete(m, k)
	}
}
