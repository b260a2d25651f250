package purgatory

import (
	"context"
	"encoding/json"
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
	"github.com/graspsync/graspsync/purgatory/internal/workqueue"
	"github.com/graspsync/graspsync/state"
)

// restartShare divides Hold. The quotient is the least hold after a start, because overdue events
// may be complete.
const restartShare = 30

// pendingEvents are the held events. An event is on the disk before it is in memory, and leaves the
// disk first.
type pendingEvents struct {
	// set by newPendingEvents, read-only
	cfg     *Config
	report  *report
	jobs    *workqueue.Queue
	wake    chan struct{}
	table   *repoTable
	keep    state.Store
	step    func(name string)
	fetches *fetches

	writing *keyed.Locks[graspsync.EventID] // held while the record of an event is written or deleted

	mu sync.Mutex
	// guarded by mu
	events    *limit.Table[graspsync.EventID, *pendingEvent]
	byName    map[string]map[graspsync.EventID]*pendingEvent
	announced map[graspsync.RepoRef]*pendingEvent
	lists     map[string]*nameList // by identifier; absent after a change
	next      time.Time            // earliest time at which an event may be due; zero if unknown
	expired   *limit.Table[graspsync.EventID, EventState]
	ending    int // number of holds that are being ended
}

// pendingEvent is a held event. Returned entries are copies.
type pendingEvent struct {
	refplan.Entry
	retry backoff.Streak                 // failed expiries; Until is the earliest next one
	refIn map[graspsync.RepoRef]struct{} // repositories that have its ref; nil unless it is stored
	ends  bool                           // its hold is being ended, or extended
	over  bool                           // its hold is being ended, and no release may use it
}

type nameList struct {
	hard []*nip34.Announcement
	soft []*nip34.Announcement // all, and relatives
}

func newPendingEvents(cfg *Config, report *report, jobs *workqueue.Queue, wake chan struct{}, table *repoTable, fetches *fetches, keep state.Store,
	step func(name string),
) *pendingEvents {
	return &pendingEvents{
		cfg: cfg, report: report, jobs: jobs, wake: wake, table: table, keep: keep, step: step, fetches: fetches,
		writing: keyed.NewLocks[graspsync.EventID](),
		events:  limit.NewTable[graspsync.EventID, *pendingEvent](cfg.Limits.MaxEntries, cfg.Limits.MaxBytes),
		byName:  make(map[string]map[graspsync.EventID]*pendingEvent), announced: make(map[graspsync.RepoRef]*pendingEvent),
		lists:   make(map[string]*nameList),
		expired: limit.NewTable[graspsync.EventID, EventState](cfg.fixed.MaxRemembered, 0),
	}
}

func (p *pendingEvents) get(id graspsync.EventID) (e refplan.Entry, held bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if h, held := p.events.Get(id); held {
		return h.Entry, true
	}
	return e, false
}

// some returns the events for which is, if not nil, returns true, by id. mu is held.
func some(events iter.Seq2[graspsync.EventID, *pendingEvent], is func(*pendingEvent) bool) (out []refplan.Entry) {
	var found []*pendingEvent // pointers are cheaper to sort
	for _, h := range events {
		if is == nil || is(h) {
			found = append(found, h)
		}
	}
	slices.SortFunc(found, func(a, b *pendingEvent) int { return a.ID.Compare(b.ID) })
	for _, h := range found {
		out = append(out, h.Entry)
	}
	return out
}

func (p *pendingEvents) all(is func(*pendingEvent) bool) []refplan.Entry {
	p.mu.Lock()
	defer p.mu.Unlock()
	return some(p.events.All(), is)
}

// named returns events with an identifier. Holds that are being ended are over.
func (p *pendingEvents) named(identifier string, is func(*pendingEvent) bool) []refplan.Entry {
	p.mu.Lock()
	defer p.mu.Unlock()
	return some(maps.All(p.byName[identifier]), func(h *pendingEvent) bool { return !h.over && is(h) })
}

func (h *pendingEvent) isAnnouncement() bool { return h.IsAnnouncement() }

func ofClass(c refplan.Class) func(*pendingEvent) bool {
	return func(h *pendingEvent) bool { return h.Class == c }
}

// of returns the events that name a repository, and all states with its identifier.
func (p *pendingEvents) of(ref graspsync.RepoRef) []refplan.Entry {
	return p.named(ref.Identifier, func(h *pendingEvent) bool {
		return h.Class == refplan.State || h.Class != refplan.Relative && slices.Contains(h.Repos, ref)
	})
}

func (p *pendingEvents) stillHeld(some []refplan.Entry) (out []refplan.Entry) {
	for _, e := range some {
		if e, held := p.get(e.ID); held {
			out = append(out, e)
		}
	}
	return out
}

func (p *pendingEvents) ofAuthor(author graspsync.PubKey) []refplan.Entry {
	return p.all(func(h *pendingEvent) bool { return h.Author == author })
}

func (p *pendingEvents) announcement(ref graspsync.RepoRef) (refplan.Entry, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if h := p.announced[ref]; h != nil && h.Class == refplan.Announcement {
		return h.Entry, true
	}
	return refplan.Entry{}, false
}

// announcements returns nil if there is none. The list stays the same until one of them changes.
func (p *pendingEvents) announcements(identifier string) *nameList {
	p.mu.Lock()
	defer p.mu.Unlock()
	list := p.lists[identifier]
	if list != nil {
		return list
	}
	for _, e := range some(maps.All(p.byName[identifier]), (*pendingEvent).isAnnouncement) {
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

func (p *pendingEvents) holdsFor(id graspsync.EventID, ref graspsync.RepoRef) bool {
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

func (p *pendingEvents) held(filter nostr.Filter) (out []graspsync.EventKey) {
	for _, e := range p.all(func(h *pendingEvent) bool { return h.refIn == nil && filter.Matches(h.Event) }) {
		out = append(out, graspsync.EventKey{CreatedAt: e.Event.CreatedAt, ID: e.ID})
	}
	return out
}

// markServed records a stored pull request, and returns the repositories that have its ref.
func (p *pendingEvents) markServed(id graspsync.EventID, ref graspsync.RepoRef, has bool) map[graspsync.RepoRef]struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	h, held := p.events.Get(id)
	if !held {
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
	h, held := p.events.Get(id)
	return held && h.refIn != nil
}

// sortByAge sorts restored events, because the oldest is evicted first.
func (p *pendingEvents) sortByAge() {
	all := p.all(nil)
	slices.SortStableFunc(all, func(a, b refplan.Entry) int { return a.Seen.Compare(b.Seen) })
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, e := range all {
		p.events.Touch(e.ID)
	}
}

// index adds an event to the indexes. mu is held, as in the methods up to dated.
func (p *pendingEvents) index(h *pendingEvent) {
	for _, ref := range h.Repos {
		if p.byName[ref.Identifier] == nil {
			p.byName[ref.Identifier] = make(map[graspsync.EventID]*pendingEvent)
		}
		p.byName[ref.Identifier][h.ID] = h
	}
	if h.IsAnnouncement() {
		p.announced[h.Repos[0]] = h
		delete(p.lists, h.Repos[0].Identifier)
	}
	p.expect(h)
}

func (p *pendingEvents) remove(h *pendingEvent) {
	p.events.Delete(h.ID)
	for _, ref := range h.Repos {
		if delete(p.byName[ref.Identifier], h.ID); len(p.byName[ref.Identifier]) == 0 {
			delete(p.byName, ref.Identifier)
		}
	}
	if h.IsAnnouncement() {
		delete(p.announced, h.Repos[0])
		delete(p.lists, h.Repos[0].Identifier)
	}
}

// check returns why an event must not be held, or the zero Answer.
func (p *pendingEvents) check(now time.Time, e *refplan.Entry) Answer {
	old := p.replacedBy(e)
	expired, _ := p.expired.Get(e.ID)
	ignored := now.Before(expired.Deadline)
	switch {
	case old != nil && old.ID == e.ID && old.Class == e.Class:
		return Answer{Held, Message}
	case ignored && expired.Is == Replaced: // its owner has withdrawn the repository
		return Answer{Refused, reasonSuperseded}
	case ignored && !e.ByUser: // a client that has the data now may try again
		return Answer{Refused, reasonExpired}
	case e.IsAnnouncement() && old != nil && !e.Version.Newer(old.Version):
		return Answer{Refused, reasonSuperseded}
	}
	return Answer{}
}

// replacedBy returns the event whose place e takes: an older version, or e itself.
func (p *pendingEvents) replacedBy(e *refplan.Entry) *pendingEvent {
	if e.IsAnnouncement() {
		return p.announced[e.Repos[0]]
	}
	h, _ := p.events.Get(e.ID)
	return h
}

// strangerOf returns the stranger in whose share an event counts. Softly expired announcements
// share one, so that they are evicted first.
func strangerOf(e *refplan.Entry) limit.Stranger {
	switch {
	case e.Soft:
		return limit.Stranger{ID: "expired announcements"}
	case e.Class == refplan.PullRequest:
		return limit.Stranger{ID: e.From}
	}
	return limit.Stranger{ID: e.Author.String()}
}

func (p *pendingEvents) put(e refplan.Entry) (_ Answer, replaced, evicted []refplan.Entry) {
	old := p.replacedBy(&e)
	if old != nil && old.ID != e.ID && old.Version.Newer(e.Version) {
		return Answer{Refused, reasonSuperseded}, nil, nil
	}
	if old != nil {
		p.remove(old)
	}
	gone, ok := p.place(&pendingEvent{Entry: e})
	for _, x := range gone {
		p.remove(x.Value)
		evicted = append(evicted, x.Value.Entry)
	}
	switch {
	case !ok && old != nil:
		p.place(old)
		fallthrough
	case !ok:
		return Answer{Full, reasonFull}, nil, evicted
	case old != nil && old.ID != e.ID:
		replaced = append(replaced, old.Entry)
	}
	return Answer{Held, Message}, replaced, evicted
}

// place adds an event. The announcement that the event needs is not evicted for it.
func (p *pendingEvents) place(h *pendingEvent) (gone []limit.Entry[graspsync.EventID, *pendingEvent], ok bool) {
	gone, ok = p.events.PutKeeping(h.ID, strangerOf(&h.Entry), h.Size, h, func(id graspsync.EventID) bool {
		o, _ := p.events.Get(id)
		return o.Class == refplan.Announcement && slices.Contains(h.Repos, o.Repos[0])
	})
	if ok {
		p.index(h)
	}
	return gone, ok
}

func (p *pendingEvents) expect(h *pendingEvent) {
	if at := h.due(); !h.ends && (p.next.IsZero() || at.Before(p.next)) {
		p.next = at
		ring(p.wake)
	}
}

func (h *pendingEvent) due() time.Time {
	return backoff.Later(h.retry.Until, h.Deadline)
}

// renew updates the tables after an announcement expired softly or is held again, because it then
// counts for another owner or client.
func (p *pendingEvents) renew(h *pendingEvent) {
	h.retry = backoff.Streak{}
	p.expect(h)
	delete(p.lists, h.Repos[0].Identifier)
	p.events.Put(h.ID, strangerOf(&h.Entry), h.Size, h)
}

func (p *pendingEvents) extended(now time.Time, e *refplan.Entry) time.Time {
	if e.Soft {
		return e.Deadline
	}
	return backoff.Later(e.Deadline, backoff.Earlier(now.Add(p.cfg.Times.Hold), e.Seen.Add(p.cfg.fixed.MaxHold)))
}

func (p *pendingEvents) longest(e *refplan.Entry) time.Duration {
	if e.Class == refplan.Relative && !e.Replaces {
		return p.cfg.fixed.MaxHold + p.cfg.fixed.SoftExpiry
	}
	return p.cfg.Times.Hold
}

// A new version of an announcement extends the hold.
func (p *pendingEvents) dated(now time.Time, e refplan.Entry) refplan.Entry {
	e.Seen, e.Deadline = now, now.Add(p.longest(&e))
	if old := p.replacedBy(&e); old != nil && e.Class == refplan.Announcement && old.Class == refplan.Announcement {
		e.Seen, e.Soft, e.Deadline = old.Seen, old.Soft, old.Deadline
		e.Deadline = p.extended(now, &e)
	}
	return e
}

// steady returns a time with the monotonic clock of now.
func steady(now, at time.Time) time.Time { return now.Add(at.Sub(now)) }

// load reads the held events. Unreadable records are logged and stay.
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
		if gone := p.restore(now, e); len(gone) > 0 {
			err = p.keep.Delete(ctx, gone...)
		}
		return err
	})
	if err != nil {
		return err
	}
	p.sortByAge()
	return p.loadExpired(ctx, now)
}

// restore holds an event of a record, and returns the keys of events that are not held any more. A
// clock that was set back cannot extend a hold beyond its maximum.
func (p *pendingEvents) restore(now time.Time, e refplan.Entry) (gone []string) {
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
	answer, replaced, evicted := p.put(e)
	if answer.Decision != Held {
		evicted = append(evicted, e)
	}
	for _, old := range append(replaced, evicted...) {
		gone = append(gone, keyEntry+old.ID.String())
	}
	return gone
}

func (p *pendingEvents) loadExpired(ctx context.Context, now time.Time) error {
	return readEach(ctx, p.keep, keyExpired, func(key string, value []byte) error {
		id, err := graspsync.ParseEventID(key)
		var r EventState
		if err = errors.Join(err, json.Unmarshal(value, &r)); err != nil {
			p.report.unreadable.Add(1)
			return p.keep.Delete(ctx, keyExpired+key) // losing the record costs little
		}
		r.Since, r.At = backoff.ClampPast(r.Since, now), backoff.ClampPast(r.At, now)
		return p.forgetExpired(ctx, p.rememberExpired(now, id, r)...)
	})
}

// rememberExpired returns the ids of evicted and lapsed records.
func (p *pendingEvents) rememberExpired(now time.Time, id graspsync.EventID, r EventState) (forgotten []graspsync.EventID) {
	r.Deadline = steady(now, backoff.Earlier(r.Deadline, now.Add(remember)))
	var owner limit.Stranger
	if len(r.Repos) > 0 {
		owner.ID = r.Repos[0].Owner.String()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	evicted, _ := p.expired.Displace(id, owner, 0, r)
	for id, r := range p.expired.All() {
		if now.Before(r.Deadline) {
			break
		}
		forgotten = append(forgotten, id)
	}
	for _, id := range forgotten {
		p.expired.Delete(id)
	}
	for _, e := range evicted {
		forgotten = append(forgotten, e.Key)
	}
	return forgotten
}

func (p *pendingEvents) forgetExpired(ctx context.Context, ids ...graspsync.EventID) error {
	if len(ids) == 0 {
		return nil
	}
	var keys []string
	for _, id := range ids {
		keys = append(keys, keyExpired+id.String())
	}
	return p.keep.Delete(ctx, keys...)
}

// remember records that an expired event is ignored for a while if relays send it, and a replaced one
// also if a client does. A full disk is no error, because otherwise no hold could end and free space.
func (p *pendingEvents) remember(ctx context.Context, e refplan.Entry, why EventCode) error {
	now := time.Now()
	r := endingOf(e, why, "")
	r.Deadline = backoff.WallTime(now.Add(remember))
	r.Since, r.At, r.Repos = backoff.WallTime(r.Since), backoff.WallTime(r.At), r.Repos[:min(len(r.Repos), mostExpiredRepos)]
	data, err := json.Marshal(r)
	if err == nil {
		err = p.keep.Put(ctx, state.Record{Key: keyExpired + e.ID.String(), Value: data})
	}
	if errors.Is(err, state.ErrFull) {
		p.report.drop("remembered")
	} else if err != nil {
		return fmt.Errorf("recording an expired event: %w", err)
	}
	p.step("remembered")
	p.warn(&e, "removing expired ids failed", p.forgetExpired(ctx, p.rememberExpired(now, e.ID, r)...))
	return nil
}

func (p *pendingEvents) expiredState(id graspsync.EventID) (EventState, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	r, is := p.expired.Get(id)
	return r, is && time.Now().Before(r.Deadline)
}

// givenUp returns the expired events of a repository that are still ignored, the newest first.
func (p *pendingEvents) givenUp(ref graspsync.RepoRef) (out []EventState) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	for _, r := range p.expired.All() {
		if now.Before(r.Deadline) && slices.Contains(r.Repos, ref) {
			out = append(out, r)
		}
	}
	slices.SortStableFunc(out, func(a, b EventState) int { return b.At.Compare(a.At) })
	return out
}

// again deletes the record of an expired event.
func (p *pendingEvents) again(ctx context.Context, id graspsync.EventID) error {
	if err := p.forgetExpired(ctx, id); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.expired.Delete(id)
	return nil
}

func (p *pendingEvents) nextDue() (time.Time, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.next, !p.next.IsZero() && p.ending < maxReleases
}

const (
	expiryPause = 10 * time.Second
	expiryMost  = time.Hour
)

func (p *pendingEvents) postpone(id graspsync.EventID, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if h, held := p.events.Get(id); held {
		h.retry.Fail(now, expiryPause, expiryMost)
	}
}

// due returns overdue events, for each of which the caller calls endHold and then endedHold.
func (p *pendingEvents) due(now time.Time) (due []refplan.Entry) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.next.IsZero() || now.Before(p.next) || p.ending >= maxReleases {
		return nil
	}
	p.next = time.Time{}
	for _, h := range p.events.All() {
		if !h.ends && !now.Before(h.due()) && p.ending < maxReleases {
			h.ends, h.retry.Until = true, now.Add(time.Second/4) // a release may use the event now
			p.ending++
			due = append(due, h.Entry)
		}
		p.expect(h)
	}
	return due
}

// extend extends a hold without maximum if the cause is our own, unless the event has expired softly,
// or otherwise unless the hold is at its maximum or of a relative.
func (p *pendingEvents) extend(ctx context.Context, id graspsync.EventID, ours bool) bool {
	now := time.Now()
	p.mu.Lock()
	h, held := p.events.Get(id)
	if !held || ours && h.Soft || !ours && h.Class == refplan.Relative {
		p.mu.Unlock()
		return false
	}
	d := now.Add(p.cfg.Times.Hold)
	if !ours {
		d = p.extended(now, &h.Entry)
	}
	extends := d.After(now)
	if extends {
		h.Deadline, h.retry.Until = d, time.Time{}
	}
	e := h.Entry
	p.mu.Unlock()
	if extends { // if the write fails, a restart shortens the hold
		p.warn(&e, "saving a deadline failed", p.rewrite(ctx, id))
	}
	return extends
}

// overdue returns an event if its hold must end now. No release uses it until endedHold is called,
// because otherwise an announcement could be served without the refs of its state.
func (p *pendingEvents) overdue(id graspsync.EventID) (refplan.Entry, bool) {
	e, held := p.get(id)
	if !held || p.fetchesFor(e) {
		return e, false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	h, held := p.events.Get(id)
	if !held || time.Now().Before(h.Deadline) {
		return e, false
	}
	h.over = !p.table.isReleasing(e) // a release that begins later does not find it
	return h.Entry, h.over
}

// endedHold lets due return an event again, and another one instead of it.
func (p *pendingEvents) endedHold(id graspsync.EventID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ending--
	ring(p.wake)
	if h, held := p.events.Get(id); held {
		h.ends, h.over = false, false
		p.expect(h)
	}
}

// soften marks an announcement whose repository was removed as softly expired.
func (p *pendingEvents) soften(ctx context.Context, e refplan.Entry) error {
	unlock, err := p.writing.Lock(ctx, e.ID)
	if err != nil {
		return err
	}
	defer unlock()
	p.mu.Lock()
	h, held := p.events.Get(e.ID)
	if !held || h.Soft || h.Class != refplan.Announcement {
		p.mu.Unlock()
		return nil
	}
	h.Soft, h.Deadline = true, h.Deadline.Add(p.cfg.fixed.SoftExpiry)
	p.renew(h)
	soft := h.Entry
	p.mu.Unlock()
	// After a failed write and a crash, it expires softly again.
	p.warn(&e, "saving a soft expiry failed", p.write(ctx, soft))
	p.step("expired softly")
	p.report.ended(e, Expired)
	return nil
}

func (p *pendingEvents) expire(ctx context.Context, e refplan.Entry) error {
	if e.Class != refplan.Relative {
		if err := p.remember(ctx, e, Expired); err != nil {
			return err
		}
	}
	return p.forget(ctx, e, Expired)
}

func (p *pendingEvents) warn(e *refplan.Entry, what string, err error) {
	if err != nil {
		p.cfg.Logger.Warn(what, keyEvent, e.ID.String(), keyError, graspsync.Printable(err.Error()))
	}
}

// forget ends a hold, first on the disk.
func (p *pendingEvents) forget(ctx context.Context, e refplan.Entry, why EventCode) error {
	unlock, err := p.writing.Lock(ctx, e.ID)
	if err != nil {
		return err
	}
	defer unlock()
	if _, held := p.get(e.ID); !held {
		return nil
	}
	if err := p.keep.Delete(ctx, keyEntry+e.ID.String()); err != nil {
		return err
	}
	if name := map[EventCode]string{Released: "struck off", Expired: "expired"}[why]; name != "" {
		p.step(name)
	}
	p.mu.Lock()
	if h, held := p.events.Get(e.ID); held {
		p.remove(h)
	}
	p.mu.Unlock()
	if why == Expired && e.Soft {
		p.report.observe(HoldEnded{ID: e.ID, Event: e.Signed(), Reason: why})
	} else {
		p.report.ended(e, why)
	}
	if why != Released {
		p.releaseWithout(e)
	} else if e.Class == refplan.Announcement {
		p.jobs.AddSurvey(e.Repos[0].Identifier, refplan.Reasons{}) // its relatives may be stored now
	}
	return nil
}

func (p *pendingEvents) count(st *Status) {
	p.mu.Lock()
	all := some(p.events.All(), nil)
	st.Bytes = p.events.Bytes()
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
	st.Waiting = make([]EventState, 0, min(len(all), StatusEntries))
	for _, e := range all[:min(len(all), StatusEntries)] {
		st.Waiting = append(st.Waiting, p.status(e))
	}
}

func (p *pendingEvents) status(e refplan.Entry) EventState {
	st := endingOf(e, IsWaiting, "")
	if e.Soft {
		st.Is = IsSoft
	}
	st.At, st.Deadline = time.Time{}, e.Deadline
	for _, ref := range e.Repos {
		st.Missing += len(p.table.get(ref).need.IDs)
	}
	return st
}

// admit writes an event to the disk and then holds it. The caller removes replaced and evicted
// events from the disk afterwards, so that a crash loses none. If the event was held before, the
// returned entry has no times.
func (p *pendingEvents) admit(ctx context.Context, e refplan.Entry) (_ refplan.Entry, answer Answer, replaced, evicted []refplan.Entry, err error) {
	unlock, err := p.writing.Lock(ctx, e.ID)
	if err != nil {
		return e, answer, nil, nil, err
	}
	defer unlock()
	ctx, cancel := p.outlasting(ctx)
	defer cancel()
	now := time.Now()
	p.mu.Lock()
	if answer = p.check(now, &e); answer.Decision == 0 {
		e = p.dated(now, e)
	}
	p.mu.Unlock()
	if answer.Decision != 0 {
		return e, answer, nil, nil, nil
	}
	if err = p.write(ctx, e); err != nil {
		return e, answer, nil, nil, err
	}
	p.mu.Lock()
	answer, replaced, evicted = p.put(e)
	again := answer.Decision == Held && p.expired.Delete(e.ID)
	p.mu.Unlock()
	switch {
	case answer.Decision != Held:
		p.warn(&e, "removing an event failed", p.keep.Delete(ctx, keyEntry+e.ID.String()))
	case again: // after a failed write, a restart finds the event both held and expired, which does no harm
		p.warn(&e, "removing expired ids failed", p.forgetExpired(ctx, e.ID))
	}
	return e, answer, replaced, evicted, nil
}

// outlasting returns a context that does not end when a client disconnects. Otherwise leftover
// records could fill the disk.
func (p *pendingEvents) outlasting(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), p.cfg.fixed.Timeout)
}

func (p *pendingEvents) removeEvicted(ctx context.Context, old refplan.Entry) {
	ctx, cancel := p.outlasting(ctx)
	defer cancel()
	p.report.drop("displaced")
	p.deleteRecord(ctx, old)
	if !old.Soft {
		p.report.ended(old, Displaced)
	}
	p.releaseWithout(old)
}

// releaseWithout releases the repositories that an event concerned, after its hold ended without
// release.
func (p *pendingEvents) releaseWithout(e refplan.Entry) {
	var why refplan.Reasons
	refs := p.needing(e)
	switch e.Class { //nolint:exhaustive // the others concern no other repository
	case refplan.Announcement:
		refs = e.Repos
		why.Left = map[graspsync.RepoRef]bool{e.Repos[0]: true}
		p.jobs.AddSurvey(e.Repos[0].Identifier, refplan.Reasons{}) // relatives may end with it
	case refplan.State:
		refs = append(refs, p.table.matching(e.Repos[0].Identifier, func(_ graspsync.RepoRef, s *repoState) bool { return len(s.pushed) > 0 })...)
	}
	for _, ref := range refs {
		p.jobs.AddRelease(ref, why)
	}
}

// deleteRecord removes an event from the disk, unless it is held again. The next start also does.
func (p *pendingEvents) deleteRecord(ctx context.Context, old refplan.Entry) {
	ctx, cancel := p.outlasting(ctx)
	defer cancel()
	unlock, err := p.writing.Lock(ctx, old.ID)
	if err == nil {
		defer unlock()
		if _, held := p.get(old.ID); !held {
			err = p.keep.Delete(ctx, keyEntry+old.ID.String())
		}
	}
	p.warn(&old, "removing an evicted event failed", err)
}

// The writing lock of the event is held.
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
	e, held := p.get(id)
	if !held {
		return nil
	}
	return p.write(ctx, e)
}

// extendAnnouncement extends the hold of an announcement. submitted revives a softly expired one.
func (p *pendingEvents) extendAnnouncement(ctx context.Context, ref graspsync.RepoRef, submitted bool) {
	e, revived, changed := p.extendAt(time.Now(), ref, submitted)
	if revived {
		p.jobs.AddRelease(ref, refplan.Reasons{})
	}
	if !changed {
		return
	}
	p.warn(&e, "extending the hold of an announcement failed", p.rewrite(ctx, e.ID))
	if revived {
		p.report.began(e)
	}
}

func (p *pendingEvents) extendAt(now time.Time, ref graspsync.RepoRef, submitted bool) (e refplan.Entry, revived, changed bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	h := p.announced[ref]
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

func identifiersOf(e refplan.Entry) (out []string) {
	for _, ref := range e.Repos {
		out = append(out, ref.Identifier)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func (p *pendingEvents) needing(e refplan.Entry) (refs []graspsync.RepoRef) {
	for _, identifier := range identifiersOf(e) {
		refs = append(refs, p.table.matching(identifier, func(ref graspsync.RepoRef, s *repoState) bool {
			announces := e.Class == refplan.Announcement && !e.Soft && ref == e.Repos[0]
			return announces && len(s.need.IDs) > 0 || slices.Contains(s.need.Entries, e.ID)
		})...)
	}
	return refs
}

// fetchesFor reports whether a fetch of the data of an event, or of its repository, started before
// its deadline.
func (p *pendingEvents) fetchesFor(e refplan.Entry) bool {
	return slices.ContainsFunc(p.needing(e), func(ref graspsync.RepoRef) bool {
		return p.fetches.startedBefore(ref, e.Deadline)
	})
}
