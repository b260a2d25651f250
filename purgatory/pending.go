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
	retry    backoff.Streak                 // failed expiries; Until is the earliest next one
	refIn    map[graspsync.RepoRef]struct{} // repositories that have its ref; nil unless it is stored
	ending   bool                           // its hold is being ended or extended
	unusable bool                           // no release may use it
}

type nameList struct {
	hard []*nip34.Announcement
	soft []*nip34.Announcement // all, and those of maintainers
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

func (pe *pendingEvents) get(id graspsync.EventID) (e refplan.Entry, held bool) {
	pe.mu.Lock()
	defer pe.mu.Unlock()
	if h, held := pe.events.Get(id); held {
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

func (pe *pendingEvents) all(is func(*pendingEvent) bool) []refplan.Entry {
	pe.mu.Lock()
	defer pe.mu.Unlock()
	return some(pe.events.All(), is)
}

// named returns events with an identifier. Unusable ones are left out.
func (pe *pendingEvents) named(identifier string, is func(*pendingEvent) bool) []refplan.Entry {
	pe.mu.Lock()
	defer pe.mu.Unlock()
	return some(maps.All(pe.byName[identifier]), func(h *pendingEvent) bool { return !h.unusable && is(h) })
}

func (h *pendingEvent) isAnnouncement() bool { return h.IsAnnouncement() }

func ofClass(c refplan.Class) func(*pendingEvent) bool {
	return func(h *pendingEvent) bool { return h.Class == c }
}

// of returns the events that name a repository, and all states with its identifier.
func (pe *pendingEvents) of(ref graspsync.RepoRef) []refplan.Entry {
	return pe.named(ref.Identifier, func(h *pendingEvent) bool {
		return h.Class == refplan.State || h.Class != refplan.MaintainerAnnouncement && slices.Contains(h.Repos, ref)
	})
}

func (pe *pendingEvents) stillHeld(some []refplan.Entry) (out []refplan.Entry) {
	for _, e := range some {
		if e, held := pe.get(e.ID); held {
			out = append(out, e)
		}
	}
	return out
}

func (pe *pendingEvents) ofAuthor(author graspsync.PubKey) []refplan.Entry {
	return pe.all(func(h *pendingEvent) bool { return h.Author == author })
}

func (pe *pendingEvents) announcement(ref graspsync.RepoRef) (refplan.Entry, bool) {
	pe.mu.Lock()
	defer pe.mu.Unlock()
	if h := pe.announced[ref]; h != nil && h.Class == refplan.Announcement {
		return h.Entry, true
	}
	return refplan.Entry{}, false
}

// announcements returns nil if there is none. The list stays the same until one of them changes.
func (pe *pendingEvents) announcements(identifier string) *nameList {
	pe.mu.Lock()
	defer pe.mu.Unlock()
	list := pe.lists[identifier]
	if list != nil {
		return list
	}
	for _, e := range some(maps.All(pe.byName[identifier]), (*pendingEvent).isAnnouncement) {
		if list == nil {
			list = new(nameList)
			pe.lists[identifier] = list
		}
		if list.soft = append(list.soft, e.Announces); e.Class == refplan.Announcement && !e.Soft {
			list.hard = append(list.hard, e.Announces)
		}
	}
	return list
}

func (pe *pendingEvents) holdsFor(id graspsync.EventID, ref graspsync.RepoRef) bool {
	e, _ := pe.get(id)
	return slices.Contains(e.Repos, ref)
}

func (pe *pendingEvents) pullTips(ref graspsync.RepoRef) (tips []nip34.ObjectID) {
	for _, e := range pe.of(ref) {
		if e.Pull != nil {
			tips = append(tips, e.Pull.Tip)
		}
	}
	return tips
}

func (pe *pendingEvents) held(filter nostr.Filter) (out []graspsync.EventKey) {
	for _, e := range pe.all(func(h *pendingEvent) bool { return h.refIn == nil && filter.Matches(h.Event) }) {
		out = append(out, graspsync.EventKey{CreatedAt: e.Event.CreatedAt, ID: e.ID})
	}
	return out
}

// markServed records a stored pull request, and returns the repositories that have its ref.
func (pe *pendingEvents) markServed(id graspsync.EventID, ref graspsync.RepoRef, has bool) map[graspsync.RepoRef]struct{} {
	pe.mu.Lock()
	defer pe.mu.Unlock()
	h, held := pe.events.Get(id)
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
func (pe *pendingEvents) isServed(id graspsync.EventID) bool {
	pe.mu.Lock()
	defer pe.mu.Unlock()
	h, held := pe.events.Get(id)
	return held && h.refIn != nil
}

// sortByAge sorts restored events, because the oldest is evicted first.
func (pe *pendingEvents) sortByAge() {
	all := pe.all(nil)
	slices.SortStableFunc(all, func(a, b refplan.Entry) int { return a.Seen.Compare(b.Seen) })
	pe.mu.Lock()
	defer pe.mu.Unlock()
	for _, e := range all {
		pe.events.Touch(e.ID)
	}
}

// index adds an event to the indexes. mu is held, as in the methods up to dated.
func (pe *pendingEvents) index(h *pendingEvent) {
	for _, ref := range h.Repos {
		if pe.byName[ref.Identifier] == nil {
			pe.byName[ref.Identifier] = make(map[graspsync.EventID]*pendingEvent)
		}
		pe.byName[ref.Identifier][h.ID] = h
	}
	if h.IsAnnouncement() {
		pe.announced[h.Repos[0]] = h
		delete(pe.lists, h.Repos[0].Identifier)
	}
	pe.expect(h)
}

func (pe *pendingEvents) remove(h *pendingEvent) {
	pe.events.Delete(h.ID)
	for _, ref := range h.Repos {
		if delete(pe.byName[ref.Identifier], h.ID); len(pe.byName[ref.Identifier]) == 0 {
			delete(pe.byName, ref.Identifier)
		}
	}
	if h.IsAnnouncement() {
		delete(pe.announced, h.Repos[0])
		delete(pe.lists, h.Repos[0].Identifier)
	}
}

// check returns why an event must not be held, or the zero Answer.
func (pe *pendingEvents) check(now time.Time, e *refplan.Entry) Answer {
	old := pe.replacedBy(e)
	expired, _ := pe.expired.Get(e.ID)
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
func (pe *pendingEvents) replacedBy(e *refplan.Entry) *pendingEvent {
	if e.IsAnnouncement() {
		return pe.announced[e.Repos[0]]
	}
	h, _ := pe.events.Get(e.ID)
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

func (pe *pendingEvents) put(e refplan.Entry) (_ Answer, replaced, evicted []refplan.Entry) {
	old := pe.replacedBy(&e)
	if old != nil && old.ID != e.ID && old.Version.Newer(e.Version) {
		return Answer{Refused, reasonSuperseded}, nil, nil
	}
	if old != nil {
		pe.remove(old)
	}
	gone, ok := pe.place(&pendingEvent{Entry: e})
	for _, x := range gone {
		pe.remove(x.Value)
		evicted = append(evicted, x.Value.Entry)
	}
	switch {
	case !ok && old != nil:
		pe.place(old)
		fallthrough
	case !ok:
		return Answer{Full, reasonFull}, nil, evicted
	case old != nil && old.ID != e.ID:
		replaced = append(replaced, old.Entry)
	}
	return Answer{Held, Message}, replaced, evicted
}

// place adds an event. The announcement that the event needs is not evicted for it.
func (pe *pendingEvents) place(h *pendingEvent) (gone []limit.Entry[graspsync.EventID, *pendingEvent], ok bool) {
	gone, ok = pe.events.PutKeeping(h.ID, strangerOf(&h.Entry), h.Size, h, func(id graspsync.EventID) bool {
		o, _ := pe.events.Get(id)
		return o.Class == refplan.Announcement && slices.Contains(h.Repos, o.Repos[0])
	})
	if ok {
		pe.index(h)
	}
	return gone, ok
}

func (pe *pendingEvents) expect(h *pendingEvent) {
	if at := h.due(); !h.ending && (pe.next.IsZero() || at.Before(pe.next)) {
		pe.next = at
		ring(pe.wake)
	}
}

func (h *pendingEvent) due() time.Time {
	return backoff.Later(h.retry.Until, h.Deadline)
}

// renew updates the tables after an announcement expired softly or is held again, because it then
// counts for another owner or client.
func (pe *pendingEvents) renew(h *pendingEvent) {
	h.retry = backoff.Streak{}
	pe.expect(h)
	delete(pe.lists, h.Repos[0].Identifier)
	pe.events.Put(h.ID, strangerOf(&h.Entry), h.Size, h)
}

func (pe *pendingEvents) extended(now time.Time, e *refplan.Entry) time.Time {
	if e.Soft {
		return e.Deadline
	}
	return backoff.Later(e.Deadline, backoff.Earlier(now.Add(pe.cfg.Times.Hold), e.Seen.Add(pe.cfg.fixed.MaxHold)))
}

func (pe *pendingEvents) longest(e *refplan.Entry) time.Duration {
	if e.Class == refplan.MaintainerAnnouncement && !e.Replaces {
		return pe.cfg.fixed.MaxHold + pe.cfg.fixed.SoftExpiry
	}
	return pe.cfg.Times.Hold
}

// A new version of an announcement extends the hold.
func (pe *pendingEvents) dated(now time.Time, e refplan.Entry) refplan.Entry {
	e.Seen, e.Deadline = now, now.Add(pe.longest(&e))
	if old := pe.replacedBy(&e); old != nil && e.Class == refplan.Announcement && old.Class == refplan.Announcement {
		e.Seen, e.Soft, e.Deadline = old.Seen, old.Soft, old.Deadline
		e.Deadline = pe.extended(now, &e)
	}
	return e
}

// onClockOf returns a time with the monotonic clock of now.
func onClockOf(now, at time.Time) time.Time { return now.Add(at.Sub(now)) }

// load reads the held events. Unreadable records are logged and stay.
func (pe *pendingEvents) load(ctx context.Context) error {
	now := time.Now()
	err := readEach(ctx, pe.keep, keyEntry, func(key string, value []byte) error {
		id, err := graspsync.ParseEventID(key)
		var e refplan.Entry
		if err == nil {
			e, err = decode(id, value)
		}
		if err != nil {
			pe.report.unreadable.Add(1)
			pe.cfg.Logger.Error("reading held events failed", "key", graspsync.Printable(key), keyError, graspsync.Printable(err.Error()))
			return nil
		}
		if gone := pe.restore(now, e); len(gone) > 0 {
			err = pe.keep.Delete(ctx, gone...)
		}
		return err
	})
	if err != nil {
		return err
	}
	pe.sortByAge()
	return pe.loadExpired(ctx, now)
}

// restore holds an event of a record, and returns the keys of events that are not held any more. A
// clock that was set back cannot extend a hold beyond its maximum.
func (pe *pendingEvents) restore(now time.Time, e refplan.Entry) (gone []string) {
	pe.mu.Lock()
	defer pe.mu.Unlock()
	most := pe.longest(&e)
	if e.Soft {
		most = pe.cfg.fixed.SoftExpiry
	} else if grace := now.Add(pe.cfg.Times.Hold / restartShare); e.Deadline.Before(grace) {
		e.Deadline = grace
	}
	if latest := now.Add(most); e.Deadline.After(latest) {
		e.Deadline = latest
	}
	if e.Seen.After(now) {
		e.Seen = now
	}
	e.Seen, e.Deadline = onClockOf(now, e.Seen), onClockOf(now, e.Deadline)
	answer, replaced, evicted := pe.put(e)
	if answer.Decision != Held {
		evicted = append(evicted, e)
	}
	for _, old := range append(replaced, evicted...) {
		gone = append(gone, keyEntry+old.ID.String())
	}
	return gone
}

func (pe *pendingEvents) loadExpired(ctx context.Context, now time.Time) error {
	return readEach(ctx, pe.keep, keyExpired, func(key string, value []byte) error {
		id, err := graspsync.ParseEventID(key)
		var r EventState
		if err = errors.Join(err, json.Unmarshal(value, &r)); err != nil {
			pe.report.unreadable.Add(1)
			return pe.keep.Delete(ctx, keyExpired+key) // losing the record costs little
		}
		r.Since, r.At = backoff.ClampPast(r.Since, now), backoff.ClampPast(r.At, now)
		return pe.forgetExpired(ctx, pe.rememberExpired(now, id, r)...)
	})
}

// rememberExpired adds a record, and returns the ids of dropped ones.
func (pe *pendingEvents) rememberExpired(now time.Time, id graspsync.EventID, r EventState) (forgotten []graspsync.EventID) {
	r.Deadline = onClockOf(now, backoff.Earlier(r.Deadline, now.Add(remember)))
	var owner limit.Stranger
	if len(r.Repos) > 0 {
		owner.ID = r.Repos[0].Owner.String()
	}
	pe.mu.Lock()
	defer pe.mu.Unlock()
	evicted, _ := pe.expired.Displace(id, owner, 0, r)
	for id, r := range pe.expired.All() {
		if now.Before(r.Deadline) {
			break
		}
		forgotten = append(forgotten, id)
	}
	for _, id := range forgotten {
		pe.expired.Delete(id)
	}
	for _, e := range evicted {
		forgotten = append(forgotten, e.Key)
	}
	return forgotten
}

func (pe *pendingEvents) forgetExpired(ctx context.Context, ids ...graspsync.EventID) error {
	if len(ids) == 0 {
		return nil
	}
	var keys []string
	for _, id := range ids {
		keys = append(keys, keyExpired+id.String())
	}
	return pe.keep.Delete(ctx, keys...)
}

// remember records that an expired event is ignored for a while if relays send it, and a replaced one
// also if a client does. A full disk is no error, because otherwise no hold could end and free space.
func (pe *pendingEvents) remember(ctx context.Context, e refplan.Entry, why EventCode) error {
	now := time.Now()
	r := endingOf(e, why, "")
	r.Deadline = backoff.WallTime(now.Add(remember))
	r.Since, r.At, r.Repos = backoff.WallTime(r.Since), backoff.WallTime(r.At), r.Repos[:min(len(r.Repos), mostExpiredRepos)]
	data, err := json.Marshal(r)
	if err == nil {
		err = pe.keep.Put(ctx, state.Record{Key: keyExpired + e.ID.String(), Value: data})
	}
	if errors.Is(err, state.ErrFull) {
		pe.report.drop("remembered")
	} else if err != nil {
		return fmt.Errorf("recording an expired event: %w", err)
	}
	pe.step("remembered")
	pe.warn(&e, "removing expired ids failed", pe.forgetExpired(ctx, pe.rememberExpired(now, e.ID, r)...))
	return nil
}

func (pe *pendingEvents) expiredState(id graspsync.EventID) (EventState, bool) {
	pe.mu.Lock()
	defer pe.mu.Unlock()
	r, is := pe.expired.Get(id)
	return r, is && time.Now().Before(r.Deadline)
}

// givenUp returns the expired events of a repository that are still ignored, the newest first.
func (pe *pendingEvents) givenUp(ref graspsync.RepoRef) (out []EventState) {
	pe.mu.Lock()
	defer pe.mu.Unlock()
	now := time.Now()
	for _, r := range pe.expired.All() {
		if now.Before(r.Deadline) && slices.Contains(r.Repos, ref) {
			out = append(out, r)
		}
	}
	slices.SortStableFunc(out, func(a, b EventState) int { return b.At.Compare(a.At) })
	return out
}

func (pe *pendingEvents) deleteExpired(ctx context.Context, id graspsync.EventID) error {
	if err := pe.forgetExpired(ctx, id); err != nil {
		return err
	}
	pe.mu.Lock()
	defer pe.mu.Unlock()
	pe.expired.Delete(id)
	return nil
}

func (pe *pendingEvents) nextDue() (time.Time, bool) {
	pe.mu.Lock()
	defer pe.mu.Unlock()
	return pe.next, !pe.next.IsZero() && pe.ending < maxReleases
}

const (
	expiryPause = 10 * time.Second
	expiryMost  = time.Hour
)

func (pe *pendingEvents) postpone(id graspsync.EventID, now time.Time) {
	pe.mu.Lock()
	defer pe.mu.Unlock()
	if h, held := pe.events.Get(id); held {
		h.retry.Fail(now, expiryPause, expiryMost)
	}
}

// due returns overdue events, for each of which the caller calls endHold and then endedHold.
func (pe *pendingEvents) due(now time.Time) (due []refplan.Entry) {
	pe.mu.Lock()
	defer pe.mu.Unlock()
	if pe.next.IsZero() || now.Before(pe.next) || pe.ending >= maxReleases {
		return nil
	}
	pe.next = time.Time{}
	for _, h := range pe.events.All() {
		if !h.ending && !now.Before(h.due()) && pe.ending < maxReleases {
			h.ending, h.retry.Until = true, now.Add(time.Second/4) // a release may use the event now
			pe.ending++
			due = append(due, h.Entry)
		}
		pe.expect(h)
	}
	return due
}

// extend extends a hold without maximum if the cause is our own, unless the event has expired softly,
// or otherwise unless the hold is at its maximum or of a maintainer announcement.
func (pe *pendingEvents) extend(ctx context.Context, id graspsync.EventID, ours bool) bool {
	now := time.Now()
	pe.mu.Lock()
	h, held := pe.events.Get(id)
	if !held || ours && h.Soft || !ours && h.Class == refplan.MaintainerAnnouncement {
		pe.mu.Unlock()
		return false
	}
	d := now.Add(pe.cfg.Times.Hold)
	if !ours {
		d = pe.extended(now, &h.Entry)
	}
	extends := d.After(now)
	if extends {
		h.Deadline, h.retry.Until = d, time.Time{}
	}
	e := h.Entry
	pe.mu.Unlock()
	if extends { // if the write fails, a restart shortens the hold
		pe.warn(&e, "saving a deadline failed", pe.rewrite(ctx, id))
	}
	return extends
}

// overdue returns an event if its hold must end now. No release uses it until endedHold is called,
// because otherwise an announcement could be served without the refs of its state.
func (pe *pendingEvents) overdue(id graspsync.EventID) (refplan.Entry, bool) {
	e, held := pe.get(id)
	if !held || pe.fetchesFor(e) {
		return e, false
	}
	pe.mu.Lock()
	defer pe.mu.Unlock()
	h, held := pe.events.Get(id)
	if !held || time.Now().Before(h.Deadline) {
		return e, false
	}
	h.unusable = !pe.table.isReleasing(e) // a release that begins later does not find it
	return h.Entry, h.unusable
}

// endedHold lets due return an event again, and another one instead of it.
func (pe *pendingEvents) endedHold(id graspsync.EventID) {
	pe.mu.Lock()
	defer pe.mu.Unlock()
	pe.ending--
	ring(pe.wake)
	if h, held := pe.events.Get(id); held {
		h.ending, h.unusable = false, false
		pe.expect(h)
	}
}

// soften marks an announcement whose repository was removed as softly expired.
func (pe *pendingEvents) soften(ctx context.Context, e refplan.Entry) error {
	unlock, err := pe.writing.Lock(ctx, e.ID)
	if err != nil {
		return err
	}
	defer unlock()
	pe.mu.Lock()
	h, held := pe.events.Get(e.ID)
	if !held || h.Soft || h.Class != refplan.Announcement {
		pe.mu.Unlock()
		return nil
	}
	h.Soft, h.Deadline = true, h.Deadline.Add(pe.cfg.fixed.SoftExpiry)
	pe.renew(h)
	soft := h.Entry
	pe.mu.Unlock()
	// After a failed write and a crash, it expires softly again.
	pe.warn(&e, "saving a soft expiry failed", pe.write(ctx, soft))
	pe.step("expired softly")
	pe.report.ended(e, Expired)
	return nil
}

func (pe *pendingEvents) expire(ctx context.Context, e refplan.Entry) error {
	if e.Class != refplan.MaintainerAnnouncement {
		if err := pe.remember(ctx, e, Expired); err != nil {
			return err
		}
	}
	return pe.forget(ctx, e, Expired)
}

func (pe *pendingEvents) warn(e *refplan.Entry, what string, err error) {
	if err != nil {
		pe.cfg.Logger.Warn(what, keyEvent, e.ID.String(), keyError, graspsync.Printable(err.Error()))
	}
}

// forget ends a hold, first on the disk.
func (pe *pendingEvents) forget(ctx context.Context, e refplan.Entry, why EventCode) error {
	unlock, err := pe.writing.Lock(ctx, e.ID)
	if err != nil {
		return err
	}
	defer unlock()
	if _, held := pe.get(e.ID); !held {
		return nil
	}
	if err := pe.keep.Delete(ctx, keyEntry+e.ID.String()); err != nil {
		return err
	}
	if name := map[EventCode]string{Released: "struck off", Expired: "expired"}[why]; name != "" {
		pe.step(name)
	}
	pe.mu.Lock()
	if h, held := pe.events.Get(e.ID); held {
		pe.remove(h)
	}
	pe.mu.Unlock()
	if why == Expired && e.Soft {
		pe.report.observe(HoldEnded{ID: e.ID, Event: e.Signed(), Reason: why})
	} else {
		pe.report.ended(e, why)
	}
	if why != Released {
		pe.releaseWithout(e)
	} else if e.Class == refplan.Announcement {
		pe.jobs.AddSurvey(e.Repos[0].Identifier, refplan.Reasons{}) // maintainer announcements may be stored now
	}
	return nil
}

func (pe *pendingEvents) count(st *Status) {
	pe.mu.Lock()
	all := some(pe.events.All(), nil)
	st.Bytes = pe.events.Bytes()
	pe.mu.Unlock()
	for _, e := range all {
		switch e.Class {
		case refplan.Announcement:
			st.Announcements++
		case refplan.State:
			st.States++
		case refplan.PullRequest:
			st.PullRequests++
		case refplan.MaintainerAnnouncement:
			st.MaintainerAnnouncements++
		}
	}
	slices.SortStableFunc(all, func(a, b refplan.Entry) int { return a.Deadline.Compare(b.Deadline) })
	st.Waiting = make([]EventState, 0, min(len(all), StatusEntries))
	for _, e := range all[:min(len(all), StatusEntries)] {
		st.Waiting = append(st.Waiting, pe.status(e))
	}
}

func (pe *pendingEvents) status(e refplan.Entry) EventState {
	st := endingOf(e, IsWaiting, "")
	if e.Soft {
		st.Is = IsSoft
	}
	st.At, st.Deadline = time.Time{}, e.Deadline
	for _, ref := range e.Repos {
		st.Missing += len(pe.table.get(ref).need.IDs)
	}
	return st
}

// admit writes an event to the disk and then holds it. The caller removes replaced and evicted
// events from the disk afterwards, so that a crash loses none. If the event was held before, the
// returned entry has no times.
func (pe *pendingEvents) admit(ctx context.Context, e refplan.Entry) (_ refplan.Entry, answer Answer, replaced, evicted []refplan.Entry, err error) {
	unlock, err := pe.writing.Lock(ctx, e.ID)
	if err != nil {
		return e, answer, nil, nil, err
	}
	defer unlock()
	ctx, cancel := pe.outlasting(ctx)
	defer cancel()
	now := time.Now()
	pe.mu.Lock()
	if answer = pe.check(now, &e); answer.Decision == 0 {
		e = pe.dated(now, e)
	}
	pe.mu.Unlock()
	if answer.Decision != 0 {
		return e, answer, nil, nil, nil
	}
	if err = pe.write(ctx, e); err != nil {
		return e, answer, nil, nil, err
	}
	pe.mu.Lock()
	answer, replaced, evicted = pe.put(e)
	again := answer.Decision == Held && pe.expired.Delete(e.ID)
	pe.mu.Unlock()
	switch {
	case answer.Decision != Held:
		pe.warn(&e, "removing an event failed", pe.keep.Delete(ctx, keyEntry+e.ID.String()))
	case again: // after a failed write, a restart finds the event both held and expired, which does no harm
		pe.warn(&e, "removing expired ids failed", pe.forgetExpired(ctx, e.ID))
	}
	return e, answer, replaced, evicted, nil
}

// outlasting returns a context that does not end when a client disconnects. Otherwise leftover
// records could fill the disk.
func (pe *pendingEvents) outlasting(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), pe.cfg.fixed.Timeout)
}

func (pe *pendingEvents) removeEvicted(ctx context.Context, old refplan.Entry) {
	ctx, cancel := pe.outlasting(ctx)
	defer cancel()
	pe.report.drop("displaced")
	pe.deleteRecord(ctx, old)
	if !old.Soft {
		pe.report.ended(old, Displaced)
	}
	pe.releaseWithout(old)
}

// releaseWithout releases the repositories that an event concerned, after its hold ended without
// release.
func (pe *pendingEvents) releaseWithout(e refplan.Entry) {
	var why refplan.Reasons
	refs := pe.needing(e)
	switch e.Class { //nolint:exhaustive // the others concern no other repository
	case refplan.Announcement:
		refs = e.Repos
		why.Left = map[graspsync.RepoRef]bool{e.Repos[0]: true}
		pe.jobs.AddSurvey(e.Repos[0].Identifier, refplan.Reasons{}) // maintainer announcements may end with it
	case refplan.State:
		refs = append(refs, pe.table.matching(e.Repos[0].Identifier, func(_ graspsync.RepoRef, s *repoState) bool { return len(s.pushed) > 0 })...)
	}
	for _, ref := range refs {
		pe.jobs.AddRelease(ref, why)
	}
}

// deleteRecord removes an event from the disk, unless it is held again. The next start also does.
func (pe *pendingEvents) deleteRecord(ctx context.Context, old refplan.Entry) {
	ctx, cancel := pe.outlasting(ctx)
	defer cancel()
	unlock, err := pe.writing.Lock(ctx, old.ID)
	if err == nil {
		defer unlock()
		if _, held := pe.get(old.ID); !held {
			err = pe.keep.Delete(ctx, keyEntry+old.ID.String())
		}
	}
	pe.warn(&old, "removing an evicted event failed", err)
}

// The writing lock of the event is held.
func (pe *pendingEvents) write(ctx context.Context, e refplan.Entry) error {
	data, err := encode(e)
	if err != nil {
		return err
	}
	return pe.keep.Put(ctx, state.Record{Key: keyEntry + e.ID.String(), Value: data})
}

func (pe *pendingEvents) rewrite(ctx context.Context, id graspsync.EventID) error {
	unlock, err := pe.writing.Lock(ctx, id)
	if err != nil {
		return err
	}
	defer unlock()
	e, held := pe.get(id)
	if !held {
		return nil
	}
	return pe.write(ctx, e)
}

// extendAnnouncement extends the hold of an announcement. submitted revives a softly expired one.
func (pe *pendingEvents) extendAnnouncement(ctx context.Context, ref graspsync.RepoRef, submitted bool) {
	e, revived, changed := pe.extendAt(time.Now(), ref, submitted)
	if revived {
		pe.jobs.AddRelease(ref, refplan.Reasons{})
	}
	if !changed {
		return
	}
	pe.warn(&e, "extending the hold of an announcement failed", pe.rewrite(ctx, e.ID))
	if revived {
		pe.report.began(e)
	}
}

func (pe *pendingEvents) extendAt(now time.Time, ref graspsync.RepoRef, submitted bool) (e refplan.Entry, revived, changed bool) {
	pe.mu.Lock()
	defer pe.mu.Unlock()
	h := pe.announced[ref]
	if h == nil || h.Class != refplan.Announcement || h.Soft && !submitted {
		return e, false, false
	}
	if revived = h.Soft; revived {
		h.Soft, h.Seen, h.Deadline = false, now, now.Add(pe.cfg.Times.Hold)
	} else {
		d := pe.extended(now, &h.Entry)
		if d.Equal(h.Deadline) {
			return h.Entry, false, false
		}
		h.Deadline = d
	}
	pe.renew(h)
	return h.Entry, revived, true
}

func identifiersOf(e refplan.Entry) (out []string) {
	for _, ref := range e.Repos {
		out = append(out, ref.Identifier)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func (pe *pendingEvents) needing(e refplan.Entry) (refs []graspsync.RepoRef) {
	for _, identifier := range identifiersOf(e) {
		refs = append(refs, pe.table.matching(identifier, func(ref graspsync.RepoRef, s *repoState) bool {
			announces := e.Class == refplan.Announcement && !e.Soft && ref == e.Repos[0]
			return announces && len(s.need.IDs) > 0 || slices.Contains(s.need.EventIDs, e.ID)
		})...)
	}
	return refs
}

// fetchesFor reports whether a fetch of the data of an event, or of its repository, started before
// its deadline.
func (pe *pendingEvents) fetchesFor(e refplan.Entry) bool {
	return slices.ContainsFunc(pe.needing(e), func(ref graspsync.RepoRef) bool {
		return pe.fetches.startedBefore(ref, e.Deadline)
	})
}
