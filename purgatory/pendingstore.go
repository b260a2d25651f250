package purgatory

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/backoff"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory/internal/refplan"
	"github.com/graspsync/graspsync/state"
)

// errOver is returned by save for an event that is no longer held, because it was stored for another
// repository or is unwanted.
var errOver = errors.New("does not wait any more")

// load reads the held events. Unreadable records are counted and logged, and stay.
func (p *pendingEvents) load(ctx context.Context) error {
	now := time.Now()
	if err := p.loadLeft(ctx, now); err != nil {
		return err
	}
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

// restore holds an event of a record. It returns the replaced events, or the event itself if a
// newer version has departed. A clock that was set back cannot extend the hold beyond its maximum.
func (p *pendingEvents) restore(now time.Time, e refplan.Entry) (replaced []refplan.Entry) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.hasLeft(now, &e) { // a crash prevented its deletion
		return []refplan.Entry{e}
	}
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
		return p.forgetExpired(ctx, p.rememberExpired(now, id, n.Repos, v.Until))
	})
	p.report.restored(told)
	return err
}

func (p *pendingEvents) loadLeft(ctx context.Context, now time.Time) error {
	return readEach(ctx, p.keep, keyLeft, func(key string, value []byte) error {
		var d departure
		err := json.Unmarshal(value, &d)
		ref, rerr := graspsync.ParseRepoRef(d.Repo)
		id, ierr := graspsync.ParseEventID(d.ID)
		if err = errors.Join(err, rerr, ierr); err != nil || hashed(ref) != key {
			p.report.unreadable.Add(1)
			return p.keep.Delete(ctx, keyLeft+key) // losing the record costs little
		}
		return p.leave(ctx, now, ref, endedHold{until: d.Until, version: graspsync.EventKey{CreatedAt: d.CreatedAt, ID: id}})
	})
}

// rememberExpired records that an event has expired, and returns the ids of evicted records.
func (p *pendingEvents) rememberExpired(now time.Time, id graspsync.EventID, repos []graspsync.RepoRef, until time.Time) []graspsync.EventID {
	var owner graspsync.PubKey
	if len(repos) > 0 {
		owner = repos[0].Owner
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return remember(p.expired, id, owner, endedHold{until: until}, now, p.cfg.fixed.Remember)
}

// leave records the version of a relative that is no longer held.
func (p *pendingEvents) leave(ctx context.Context, now time.Time, ref graspsync.RepoRef, m endedHold) error {
	p.mu.Lock()
	forgotten := remember(p.departed, ref, ref.Owner, m, now, p.cfg.fixed.Remember)
	p.mu.Unlock()
	var keys []string
	for _, ref := range forgotten {
		keys = append(keys, keyLeft+hashed(ref))
	}
	return p.deleteAll(ctx, keys)
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

// putPast writes the record of an ended hold. A full disk is counted but is no error, because
// otherwise no hold could end and free space.
func (p *pendingEvents) putPast(ctx context.Context, key string, value []byte, err error) error {
	if err == nil {
		err = p.keep.Put(ctx, state.Record{Key: key, Value: value})
	}
	if errors.Is(err, state.ErrFull) {
		p.report.drop("remembered")
		return nil
	}
	return err
}

// noteLeft records the version of a relative that is neither held nor stored, so that no older
// version restores its repository.
func (p *pendingEvents) noteLeft(ctx context.Context, e *refplan.Entry) error {
	now := time.Now()
	until, ref := now.Add(p.cfg.fixed.Remember), e.Repos[0]
	data, err := json.Marshal(departure{ref.String(), e.Version.CreatedAt, e.Version.ID.String(), backoff.Saved(until)})
	if err := p.putPast(ctx, keyLeft+hashed(ref), data, err); err != nil {
		return err
	}
	p.warn(e, "removing retirement records failed", p.leave(ctx, now, ref, endedHold{until, e.Version}))
	return nil
}

// countExpired returns the number of recorded expired events.
func (p *pendingEvents) countExpired() (n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	for _, m := range p.expired.All() {
		if now.Before(m.until) {
			n++
		}
	}
	return n
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
		h.retry.Until = now.Add(expiryPause)
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
	unlock, err := p.writing.Lock(ctx, e.ID)
	if err != nil {
		return err
	}
	defer unlock()
	now := time.Now()
	until := now.Add(p.cfg.fixed.Remember)
	if e.Class == refplan.Relative {
		err = p.noteLeft(ctx, &e)
	} else {
		var data []byte
		data, err = encodeExpired(e, now, until)
		if err = p.putPast(ctx, keyExpired+e.ID.String(), data, err); err == nil {
			p.step("remembered")
		}
	}
	if err == nil {
		err = p.keep.Delete(ctx, keyEntry+e.ID.String())
	}
	if err != nil {
		return err
	}
	p.step("expired")
	if e.Class != refplan.Relative {
		p.warn(&e, "removing expired ids failed", p.forgetExpired(ctx, p.rememberExpired(now, e.ID, e.Repos, until)))
	}
	p.take(e.ID)
	if e.Soft { // reported by soften
		p.report.observe(RevivalEnded{ID: e.ID, Event: e.Signed()})
	} else {
		p.report.ended(e, Expired)
	}
	return nil
}

func (p *pendingEvents) take(id graspsync.EventID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if h := p.events[id]; h != nil {
		p.remove(h)
	}
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

func (p *pendingEvents) strikeOff(ctx context.Context, e refplan.Entry) error {
	if err := p.forget(ctx, e, Released); err != nil {
		return err
	}
	p.step("struck off")
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
	return p.strikeOff(ctx, e)
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
	if e.Class == refplan.Relative && (why == Unwanted || why == Displaced) {
		if err := p.noteLeft(ctx, &e); err != nil {
			return err
		}
	}
	if err := p.keep.Delete(ctx, keyEntry+e.ID.String()); err != nil {
		return err
	}
	p.take(e.ID)
	p.report.ended(e, why)
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

// charge moves a relative to the quota of another key that lists it. If no quota has room, its hold
// ends, unless it is held for its author.
func (p *pendingEvents) charge(ctx context.Context, e refplan.Entry, payers []graspsync.PubKey) error {
	charged, evicted, err := p.chargeFor(ctx, e, payers)
	for _, old := range evicted {
		p.gaveWay(ctx, old)
	}
	if err == nil && !charged && e.For != e.Author {
		err = p.forget(ctx, e, Displaced)
	}
	return err
}

func (p *pendingEvents) chargeFor(ctx context.Context, e refplan.Entry, payers []graspsync.PubKey) (charged bool, evicted []refplan.Entry, err error) {
	unlock, err := p.writing.Lock(ctx, e.ID)
	if err != nil {
		return false, nil, err
	}
	defer unlock()
	p.mu.Lock()
	if p.events[e.ID] == nil {
		p.mu.Unlock()
		return true, nil, nil
	}
	for _, e.For = range payers {
		if !p.full(&e, 0) {
			e.Deadline = time.Now().Add(p.longest(&e))
			evicted, charged = p.reserve(&e) // it has a place, unless a newer version is being written
			break
		}
	}
	p.mu.Unlock()
	if !charged {
		return false, evicted, nil
	}
	if err := p.write(ctx, e); err != nil {
		p.mu.Lock()
		defer p.mu.Unlock()
		return true, append(evicted, p.release(&e)...), err
	}
	p.filled(e)
	return true, evicted, nil
}

// gaveWay removes an evicted event from the disk, unless it is held again. No record remains. The
// repository of an announcement is removed. The hourly check removes the refs of a pull request.
func (p *pendingEvents) gaveWay(ctx context.Context, old refplan.Entry) {
	ctx, cancel := p.outlasting(ctx)
	defer cancel()
	p.report.drop("displaced")
	if old.Class == refplan.Relative {
		p.warn(&old, "saving a retirement failed", p.noteLeft(ctx, &old))
	}
	p.strike(ctx, old)
	if !old.Soft { // else reported when it expired softly
		p.report.ended(old, Displaced)
	}
	var why refplan.Reasons
	if old.Class == refplan.Announcement {
		p.table.touch(old.Repos[0])
		why.Left = map[graspsync.RepoRef]bool{old.Repos[0]: true}
	}
	for _, identifier := range identifiersOf(old) {
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
