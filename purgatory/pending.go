package purgatory

import (
	"context"
	"errors"
	"fmt"
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
	room    *limit.Table[graspsync.EventID, bool]
	quotas  map[quotaKey]int // number of events in room
	expired *limit.Table[graspsync.EventID, endedHold]

	pinned map[graspsync.EventID]int // events that releases use
	ending idSet                     // events whose expiry is under way
}

// pendingEvent is a held event. A returned [refplan.Entry] is a copy.
type pendingEvent struct {
	refplan.Entry
	retry     backoff.Streak                 // failed expiries; Until is the earliest next one
	undeleted bool                           // no deletion is stored, and none of its author was since
	refIn     map[graspsync.RepoRef]struct{} // repositories that have its ref; nil unless it is stored
}

// nameList holds the announcements with an identifier.
type nameList struct {
	hard []*nip34.Announcement // not expired
	soft []*nip34.Announcement // all, and relatives
}

// endedHold is the record of an event that is no longer held.
type endedHold struct {
	until     time.Time // end of the record
	withdrawn bool      // its author has withdrawn the repository, so a client must not submit it again
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
		room:    limit.NewTable[graspsync.EventID, bool](cfg.Limits.MaxEntries, cfg.Limits.MaxBytes),
		quotas:  make(map[quotaKey]int),
		expired: limit.NewTable[graspsync.EventID, endedHold](cfg.fixed.MaxRemembered, 0),
		pinned:  make(map[graspsync.EventID]int), ending: make(idSet),
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
	case p.isWithdrawn(e.ID, now):
		return Answer{Refused, reasonSuperseded}
	case p.isExpired(e.ID, now) && !e.ByUser: // a client that has the data now may try again
		return Answer{Refused, reasonExpired}
	case e.IsAnnouncement() && old != nil && !e.Version.Newer(old.Version):
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

// isWithdrawn reports whether the author of an announcement has withdrawn its repository.
func (p *pendingEvents) isWithdrawn(id graspsync.EventID, now time.Time) bool {
	m, _ := p.expired.Get(id)
	return m.withdrawn && now.Before(m.until)
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

// errOver is returned by save for an event that is no longer held, because it was stored for another
// repository or is unwanted.
var errOver = errors.New("does not wait any more")

// load reads the held events. Unreadable records are counted and logged, and stay.
func (p *pendingEvents) load(ctx context.Context) error {
	now := time.Now()
	err := readEach(ctx, p.keep, keyEntry, func(key string, value []byte) error {
		id, err := graspsync.ParseEventID(key)
		var e refplan.Entry
		if err == nil {
			e, err = decode(id, value)
		}
		if err != nil {
			p.report.unreadable.Add(1)
			p.cfg.Logger.Error("reading held events failed", "key", graspsync.Printable(key), keyError, graspsync.Printable(err.Error()))
			return nil
		}
		var gone []string
		for _, old := range p.restore(now, e) {
			gone = append(gone, keyEntry+old.ID.String())
		}
		if e.Class == refplan.Announcement && !e.Soft {
			p.table.touch(e.Repos[0]) // its repository may not exist yet
		}
		return p.deleteAll(ctx, gone)
	})
	if err != nil {
		return err
	}
	p.sortByAge()
	return p.loadExpired(ctx, now)
}

// restore holds an event of a record. It returns the replaced events. A clock that was set back
// cannot extend the hold beyond its maximum.
func (p *pendingEvents) restore(now time.Time, e refplan.Entry) (replaced []refplan.Entry) {
	p.mu.Lock()
	defer p.mu.Unlock()
	most := p.longest(&e)
	if e.Soft {
		most = p.cfg.fixed.SoftExpiry
	} else if grace := now.Add(p.cfg.Times.Hold / restartShare); e.Deadline.Before(grace) {
		e.Deadline = grace
	}
	if latest := now.Add(most); e.Deadline.After(latest) {
		e.Deadline = latest
	}
	if e.Seen.After(now) {
		e.Seen = now
	}
	e.Seen, e.Deadline = steady(now, e.Seen), steady(now, e.Deadline)
	return p.fill(&e)
}

func (p *pendingEvents) loadExpired(ctx context.Context, now time.Time) error {
	var told []EventState
	err := readEach(ctx, p.keep, keyExpired, func(key string, value []byte) error {
		id, err := graspsync.ParseEventID(key)
		v, verr := decodeExpired(value)
		if err = errors.Join(err, verr); err != nil {
			p.report.unreadable.Add(1)
			return p.keep.Delete(ctx, keyExpired+key) // losing the record costs little
		}
		n, is := v.ending(id, now)
		if is {
			told = append(told, n)
		}
		return p.forgetExpired(ctx, p.rememberExpired(now, id, n.Repos, endedHold{v.Until, v.Withdrawn}))
	})
	p.report.restored(told)
	return err
}

// rememberExpired records that an event has expired, for at most Remember, because a time on the
// disk may be wrong. It returns the ids of evicted and lapsed records.
func (p *pendingEvents) rememberExpired(now time.Time, id graspsync.EventID, repos []graspsync.RepoRef, m endedHold) (forgotten []graspsync.EventID) {
	if latest := now.Add(p.cfg.fixed.Remember); m.until.After(latest) {
		m.until = latest
	}
	if !now.Before(m.until) {
		return []graspsync.EventID{id}
	}
	var owner limit.Stranger
	if len(repos) > 0 {
		owner.ID = repos[0].Owner.String()
	}
	m.until = steady(now, m.until)
	p.mu.Lock()
	defer p.mu.Unlock()
	evicted, _ := p.expired.Displace(id, owner, 0, m)
	for _, e := range evicted {
		forgotten = append(forgotten, e.Key)
	}
	over := len(forgotten)
	for id, m := range p.expired.All() {
		if now.Before(m.until) {
			break
		}
		forgotten = append(forgotten, id)
	}
	for _, id := range forgotten[over:] {
		p.expired.Delete(id)
	}
	return forgotten
}

func (p *pendingEvents) forgetExpired(ctx context.Context, ids []graspsync.EventID) error {
	var keys []string
	for _, id := range ids {
		keys = append(keys, keyExpired+id.String())
	}
	return p.deleteAll(ctx, keys)
}

func (p *pendingEvents) deleteAll(ctx context.Context, keys []string) error {
	if len(keys) == 0 {
		return nil
	}
	return p.keep.Delete(ctx, keys...)
}

// remember records that copies of an event from relays are ignored for a while, first on the disk.
// A full disk is counted but is no error, because otherwise no hold could end and free space.
func (p *pendingEvents) remember(ctx context.Context, e refplan.Entry, withdrawn bool) error {
	now := time.Now()
	until := now.Add(p.cfg.fixed.Remember)
	data, err := encodeExpired(e, now, until, withdrawn)
	if err == nil {
		err = p.keep.Put(ctx, state.Record{Key: keyExpired + e.ID.String(), Value: data})
	}
	if errors.Is(err, state.ErrFull) {
		p.report.drop("remembered")
	} else if err != nil {
		return err
	}
	p.step("remembered")
	p.warn(&e, "removing expired ids failed", p.forgetExpired(ctx, p.rememberExpired(now, e.ID, e.Repos, endedHold{until, withdrawn})))
	return nil
}

func (p *pendingEvents) hasExpired(id graspsync.EventID) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.isExpired(id, time.Now())
}

// again deletes the record of an expired event.
func (p *pendingEvents) again(ctx context.Context, id graspsync.EventID) error {
	if err := p.forgetExpired(ctx, []graspsync.EventID{id}); err != nil {
		return err
	}
	p.forgive(id)
	return nil
}

// forgive is again in memory. It reports whether there was a record.
func (p *pendingEvents) forgive(id graspsync.EventID) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.expired.Delete(id)
}

// nextDue returns the earliest time at which an event may be due. It returns false if that is
// unknown.
func (p *pendingEvents) nextDue() (time.Time, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.next, !p.next.IsZero()
}

// postpone schedules the repetition of a failed expiry.
func (p *pendingEvents) postpone(id graspsync.EventID, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if h := p.events[id]; h != nil {
		h.retry.Again(now, expiryPause, expiryMost)
	}
}

// due returns at most n overdue events and postpones their next expiry. It extends the holds of
// other overdue events and returns them in prolonged. Such an event has a server that was not asked
// yet (owed), because an owner of many repositories has to wait for turns, or may be complete while
// our store, git or disk fails (kept).
func (p *pendingEvents) due(
	now time.Time, n int, kept func(entry refplan.Entry) bool, owed func(now time.Time, entry refplan.Entry) bool,
) (due, prolonged []refplan.Entry) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.next.IsZero() || now.Before(p.next) {
		return nil, nil
	}
	var over []*pendingEvent
	for _, h := range p.events {
		if !now.Before(h.due()) {
			over = append(over, h)
		}
	}
	slices.SortFunc(over, func(a, b *pendingEvent) int {
		if c := a.due().Compare(b.due()); c != 0 {
			return c
		}
		return a.ID.Compare(b.ID)
	})
	for _, h := range over {
		if len(due) == n {
			break
		}
		if kept(h.Entry) && p.await(now, h) || owed(now, h.Entry) && p.prolong(now, h) {
			prolonged = append(prolonged, h.Entry)
			continue
		}
		h.retry.Until = now.Add(time.Second / 4) // a release may use the event now
		due = append(due, h.Entry)
	}
	p.next = time.Time{}
	for _, h := range p.events {
		p.expect(h)
	}
	return due, prolonged
}

// await extends the hold of an event by Hold, without maximum, because the cause is our own. It
// returns false for a softly expired event. mu is held.
func (p *pendingEvents) await(now time.Time, h *pendingEvent) bool {
	if !h.Soft {
		h.Deadline, h.retry.Until = now.Add(p.cfg.Times.Hold), time.Time{}
	}
	return !h.Soft
}

// prolong extends the hold of an overdue event, up to the maximum. It returns false at the maximum
// and for relatives. mu is held.
func (p *pendingEvents) prolong(now time.Time, h *pendingEvent) bool {
	d := p.extended(now, &h.Entry)
	if h.Class == refplan.Relative || !d.After(now) {
		return false
	}
	h.Deadline, h.retry.Until = d, time.Time{}
	return true
}

// overdue returns an event if it is overdue and no release uses it. Releases skip the event until
// notEnding is called.
func (p *pendingEvents) overdue(id graspsync.EventID) (refplan.Entry, bool) {
	is := func() (refplan.Entry, bool) {
		e, waits := p.get(id)
		return e, waits && !time.Now().Before(e.Deadline) && !p.fetchesFor(e)
	}
	e, over := is()
	if !over || !p.end(id) {
		return e, false
	}
	if e, over = is(); !over { // may have changed since
		p.notEnding(id)
	}
	return e, over
}

// soften marks an announcement whose repository was removed as softly expired.
func (p *pendingEvents) soften(ctx context.Context, e refplan.Entry) error {
	unlock, err := p.writing.Lock(ctx, e.ID)
	if err != nil {
		return err
	}
	defer unlock()
	p.mu.Lock()
	h := p.events[e.ID]
	if h == nil || h.Soft || h.Class != refplan.Announcement {
		p.mu.Unlock()
		return nil
	}
	h.Soft, h.Deadline = true, h.Deadline.Add(p.cfg.fixed.SoftExpiry)
	p.renew(h)
	soft := h.Entry
	p.mu.Unlock()
	// After a failed write and a crash, the announcement expires softly again, for the same time.
	p.warn(&e, "saving a soft expiry failed", p.write(ctx, soft))
	p.step("expired softly")
	p.report.ended(e, Expired)
	return nil
}

// expire records that an event has expired, and ends its hold.
func (p *pendingEvents) expire(ctx context.Context, e refplan.Entry) error {
	if e.Class != refplan.Relative {
		if err := p.remember(ctx, e, false); err != nil {
			return err
		}
	}
	return p.forget(ctx, e, Expired)
}

// warn logs a failure without consequences.
func (p *pendingEvents) warn(e *refplan.Entry, what string, err error) {
	if err != nil {
		p.cfg.Logger.Warn(what, keyEvent, e.ID.String(), keyError, graspsync.Printable(err.Error()))
	}
}

// store makes the relay store an event. The error wraps ErrRefused if
// the relay refuses it.
func (p *pendingEvents) store(ctx context.Context, e refplan.Entry) error {
	if err := p.relay.Save(ctx, e.Signed()); err != nil {
		return fmt.Errorf("storing a released event: %w", err)
	}
	p.step("stored")
	return nil
}

// pushing implements [Purgatory.Pushing].
func (p *pendingEvents) pushing(ref graspsync.RepoRef, refs []nip34.RefName) {
	if slices.ContainsFunc(refs, refplan.IsState) && p.stateOf(ref) {
		p.table.addPushed(ref, refs)
	}
}

// save stores an event and ends its hold. Storing it twice changes nothing. The error wraps
// ErrRefused if the relay refuses the event.
func (p *pendingEvents) save(ctx context.Context, e refplan.Entry) error {
	unlock, err := p.storing.Lock(ctx, e.ID)
	if err != nil {
		return err
	}
	defer unlock()
	if _, waits := p.get(e.ID); !waits {
		return errOver
	}
	if err := p.store(ctx, e); err != nil {
		return err
	}
	return p.forget(ctx, e, Released)
}

// forget ends the hold of an event, first on the disk. It is no error if the event is not held.
func (p *pendingEvents) forget(ctx context.Context, e refplan.Entry, why EndReason) error {
	unlock, err := p.writing.Lock(ctx, e.ID)
	if err != nil {
		return err
	}
	defer unlock()
	if _, waits := p.get(e.ID); !waits {
		return nil
	}
	if err := p.keep.Delete(ctx, keyEntry+e.ID.String()); err != nil {
		return err
	}
	if name := map[EndReason]string{Released: "struck off", Expired: "expired"}[why]; name != "" {
		p.step(name)
	}
	p.mu.Lock()
	if h := p.events[e.ID]; h != nil {
		p.remove(h)
	}
	p.mu.Unlock()
	if why == Expired && e.Soft { // reported by soften
		p.report.observe(RevivalEnded{ID: e.ID, Event: e.Signed()})
	} else {
		p.report.ended(e, why)
	}
	if e.Class == refplan.Announcement {
		p.inbox.tell(surveyRequest{identifier: e.Repos[0].Identifier}) // relatives may end with it
	}
	return nil
}

// count adds the held events to a status.
func (p *pendingEvents) count(st *Status) {
	p.mu.Lock()
	all := p.some(maps.Keys(p.events), nil)
	st.Bytes = p.room.Bytes()
	p.mu.Unlock()
	for _, e := range all {
		switch e.Class {
		case refplan.Announcement:
			st.Announcements++
		case refplan.State:
			st.States++
		case refplan.PullRequest:
			st.PullRequests++
		case refplan.Relative:
			st.Relatives++
		}
	}
	slices.SortStableFunc(all, func(a, b refplan.Entry) int { return a.Deadline.Compare(b.Deadline) })
	st.Waiting = make([]EntryStatus, 0, min(len(all), StatusEntries))
	for _, e := range all[:min(len(all), StatusEntries)] {
		st.Waiting = append(st.Waiting, p.status(e))
	}
}

func (p *pendingEvents) status(e refplan.Entry) EntryStatus {
	st := EntryStatus{
		ID: e.ID.String(), Class: e.Class.String(), ByUser: e.ByUser, Since: e.Seen, Deadline: e.Deadline, Soft: e.Soft,
	}
	for _, ref := range e.Repos {
		st.Repos = append(st.Repos, ref.String())
		st.Missing += len(p.table.lacked(ref).IDs)
	}
	return st
}

// admit writes an event to the disk and then holds it, unless refusal has a reason. Concurrent
// calls with the same event all return after it is on the disk. Evicted events are removed from the
// disk even if the write failed, so that after a crash there may be one event too many, but never
// one too few. A relative counts for the first payer with room.
func (p *pendingEvents) admit(ctx context.Context, e refplan.Entry, payers []graspsync.PubKey) (_ refplan.Entry, refusal Answer, replaced, evicted []refplan.Entry, err error) {
	unlock, err := p.writing.Lock(ctx, e.ID)
	if err != nil {
		return e, refusal, nil, nil, err
	}
	defer unlock()
	ctx, cancel := p.outlasting(ctx)
	defer cancel()
	e, refusal, evicted = p.reserveFor(time.Now(), e, payers)
	if refusal != (Answer{}) {
		return e, refusal, nil, evicted, nil
	}
	if err = p.write(ctx, e); err != nil {
		p.mu.Lock()
		defer p.mu.Unlock()
		return e, refusal, nil, append(evicted, p.release(&e)...), err
	}
	replaced = p.filled(e)
	if e.Class == refplan.Announcement {
		p.table.touch(e.Repos[0])
	}
	if p.forgive(e.ID) { // after a failed write, a restart finds the event both held and expired, which does no harm
		p.warn(&e, "removing expired ids failed", p.forgetExpired(ctx, []graspsync.EventID{e.ID}))
	}
	return e, refusal, replaced, evicted, nil
}

// reserveFor reserves a place for an event that may be held, until filled or release is called. It
// returns the evicted events.
func (p *pendingEvents) reserveFor(now time.Time, e refplan.Entry, payers []graspsync.PubKey) (_ refplan.Entry, refusal Answer, evicted []refplan.Entry) {
	if e.Class != refplan.Relative {
		payers = []graspsync.PubKey{e.For}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, e.For = range payers {
		refusal = p.check(now, &e)
		if refusal.Reason != reasonAuthor {
			break
		}
		if evicted = p.evictSoft(&e); len(evicted) > 0 {
			refusal = Answer{}
			break
		}
	}
	if refusal != (Answer{}) {
		return e, refusal, evicted
	}
	e = p.dated(now, e)
	gone, ok := p.reserve(&e)
	if !ok {
		refusal = Answer{Full, reasonFull}
	}
	return e, refusal, append(evicted, gone...)
}

// filled holds an event in its reserved place.
func (p *pendingEvents) filled(e refplan.Entry) (replaced []refplan.Entry) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.uncount(&e)
	return p.fill(&e)
}

// outlasting returns a context that does not end when a client disconnects. Otherwise leftover
// records would count in no quota and could fill the disk.
func (p *pendingEvents) outlasting(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), p.cfg.fixed.Timeout)
}

// removeEvicted removes an evicted event from the disk, unless it is held again. No record remains. The
// repository of an announcement is removed. The hourly check removes the refs of a pull request.
func (p *pendingEvents) removeEvicted(ctx context.Context, old refplan.Entry) {
	ctx, cancel := p.outlasting(ctx)
	defer cancel()
	p.report.drop("displaced")
	p.strike(ctx, old)
	if !old.Soft { // else reported when it expired softly
		p.report.ended(old, Displaced)
	}
	p.surveyWithout(old)
}

// surveyWithout asks for surveys after the hold of an event ended without release.
func (p *pendingEvents) surveyWithout(e refplan.Entry) {
	var why refplan.Reasons
	if e.Class == refplan.Announcement {
		p.table.touch(e.Repos[0])
		why.Left = map[graspsync.RepoRef]bool{e.Repos[0]: true}
	}
	for _, identifier := range identifiersOf(e) {
		p.inbox.tell(surveyRequest{identifier: identifier, why: why})
	}
}

// strike removes an evicted or replaced event from the disk, unless it is held again. It continues
// if the client disconnects. After a failure, the event is held again or removed at the next start.
func (p *pendingEvents) strike(ctx context.Context, old refplan.Entry) {
	ctx, cancel := p.outlasting(ctx)
	defer cancel()
	unlock, err := p.writing.Lock(ctx, old.ID)
	if err == nil {
		defer unlock()
		if _, waits := p.get(old.ID); !waits {
			err = p.keep.Delete(ctx, keyEntry+old.ID.String())
		}
	}
	p.warn(&old, "removing an evicted event failed", err)
}

// write writes an event to the disk. The caller holds its writing lock.
func (p *pendingEvents) write(ctx context.Context, e refplan.Entry) error {
	data, err := encode(e)
	if err != nil {
		return err
	}
	return p.keep.Put(ctx, state.Record{Key: keyEntry + e.ID.String(), Value: data})
}

func (p *pendingEvents) rewrite(ctx context.Context, id graspsync.EventID) error {
	unlock, err := p.writing.Lock(ctx, id)
	if err != nil {
		return err
	}
	defer unlock()
	e, waits := p.get(id)
	if !waits {
		return nil
	}
	return p.write(ctx, e)
}

// sign records a sign of life of a repository with a held announcement. A submission revives a
// softly expired announcement. A failed write is only logged, because it shortens the hold only
// after a crash.
func (p *pendingEvents) sign(ctx context.Context, ref graspsync.RepoRef, submitted bool) {
	e, revived, changed := p.signed(time.Now(), ref, submitted)
	if revived {
		p.table.touch(ref) // recreates its repository
	}
	if !changed {
		return
	}
	p.warn(&e, "extending the hold of an announcement failed", p.rewrite(ctx, e.ID))
	if revived {
		p.report.began(e)
	}
}

func (p *pendingEvents) signed(now time.Time, ref graspsync.RepoRef, submitted bool) (e refplan.Entry, revived, changed bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	h := p.events[p.announced[ref]]
	if h == nil || h.Class != refplan.Announcement || h.Soft && !submitted {
		return e, false, false
	}
	if revived = h.Soft; revived {
		h.Soft, h.Seen, h.Deadline = false, now, now.Add(p.cfg.Times.Hold)
	} else {
		d := p.extended(now, &h.Entry)
		if d.Equal(h.Deadline) {
			return h.Entry, false, false
		}
		h.Deadline = d
	}
	p.renew(h)
	return h.Entry, revived, true
}

// elsewhere reports whether an event is a pull request for several repositories. These are locked
// one at a time.
func elsewhere(e refplan.Entry) bool { return e.Class == refplan.PullRequest && len(e.Repos) > 1 }

// identifiersOf returns the distinct identifiers of an event, sorted.
func identifiersOf(e refplan.Entry) (out []string) {
	for _, ref := range e.Repos {
		out = append(out, ref.Identifier)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// needing returns the repositories that lack the data of an event.
func (p *pendingEvents) needing(e refplan.Entry) (refs []graspsync.RepoRef) {
	for _, identifier := range identifiersOf(e) {
		refs = append(refs, p.table.lacking(identifier, func(ref graspsync.RepoRef, n refplan.Need) bool {
			announces := e.Class == refplan.Announcement && !e.Soft && ref == e.Repos[0]
			return announces || slices.Contains(n.Entries, e.ID)
		})...)
	}
	return refs
}

// fetchesFor reports whether a fetch of the data of an event is in flight and started before its
// deadline. For an announcement any fetch for its repository counts, because the holds of its
// states would end with it.
func (p *pendingEvents) fetchesFor(e refplan.Entry) bool {
	return slices.ContainsFunc(p.needing(e), func(ref graspsync.RepoRef) bool {
		began := p.sessions.since(ref)
		return !began.IsZero() && began.Before(e.Deadline)
	})
}

// lasting returns the events that have not expired softly and whose holds are not being ended.
func (p *pendingEvents) lasting(some []refplan.Entry) []refplan.Entry {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.DeleteFunc(some, func(e refplan.Entry) bool {
		_, ending := p.ending[e.ID]
		return ending || e.Soft
	})
}

// pin keeps the events of a release from expiring.
func (p *pendingEvents) pin(g *refplan.Group, ref graspsync.RepoRef) {
	p.mu.Lock()
	defer p.mu.Unlock()
	hold := func(id graspsync.EventID) bool { return p.keepFor(g, id) }
	g.States = slices.DeleteFunc(g.States, func(h refplan.Entry) bool { return !hold(h.ID) })
	g.Pulls = slices.DeleteFunc(g.Pulls, func(h refplan.Entry) bool { return !hold(h.ID) })
	if e, waits := g.Waiting[ref]; waits && !hold(e.ID) {
		delete(g.Waiting, ref)
	}
}

// pinRelatives is pin for the relatives of a survey.
func (p *pendingEvents) pinRelatives(g *refplan.Group) {
	p.mu.Lock()
	defer p.mu.Unlock()
	g.Relatives = slices.DeleteFunc(g.Relatives, func(h refplan.Entry) bool { return !p.keepFor(g, h.ID) })
}

// keepFor pins an event. It returns false if the hold is being ended. mu is held.
func (p *pendingEvents) keepFor(g *refplan.Group, id graspsync.EventID) bool {
	if _, ending := p.ending[id]; ending {
		return false
	}
	p.pinned[id]++
	g.Pins = append(g.Pins, id)
	return true
}

func (p *pendingEvents) unpin(g *refplan.Group) {
	if g == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, id := range g.Pins {
		if p.pinned[id]--; p.pinned[id] == 0 {
			delete(p.pinned, id)
		}
	}
	g.Pins = nil
}

// end keeps releases from using an event until notEnding is called. It returns false if a release
// uses the event.
func (p *pendingEvents) end(id graspsync.EventID) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.pinned[id] > 0 {
		return false
	}
	p.ending[id] = struct{}{}
	return true
}

func (p *pendingEvents) notEnding(id graspsync.EventID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.ending, id)
}
