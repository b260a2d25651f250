package purgatory

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory/internal/keyed"
	"github.com/graspsync/graspsync/purgatory/internal/ledger"
	"github.com/graspsync/graspsync/purgatory/internal/resolve"
	"github.com/graspsync/graspsync/state"
)

// entries are the events that wait, in memory and on the disk.
type entries struct {
	// set by newEntries, read-only
	cfg      *Config
	report   *report
	inbox    *inbox
	findings *findings
	relay    containedRelay
	keep     state.Store
	step     func(name string)

	waiting    *waiting
	pins       *pins
	uses       uses
	served     *servedPulls
	takes      *longTakes
	remembered *remembered

	writing *keyed.Locks[graspsync.EventID] // who writes or drops an entry has its lock
	storing *keyed.Locks[graspsync.EventID] // who has an entry stored
}

func newEntries(cfg *Config, report *report, inbox *inbox, findings *findings, gatherings *gatherings, relay containedRelay, keep state.Store,
	step func(name string),
) *entries {
	pins := newPins()
	waiting := newWaiting(cfg, pins.isFixed)
	return &entries{
		cfg: cfg, report: report, inbox: inbox, findings: findings, relay: relay, keep: keep, step: step,
		waiting: waiting, pins: pins, uses: uses{findings, gatherings}, served: newServedPulls(), takes: newLongTakes(waiting),
		writing: keyed.NewLocks[graspsync.EventID](), storing: keyed.NewLocks[graspsync.EventID](),
		remembered: &remembered{cfg: cfg, report: report, keep: keep, step: step, waiting: waiting},
	}
}

// errOver is returned by save if an event does not wait any more: it was stored for another
// repository, or is not to be.
var errOver = errors.New("does not wait any more")

// load reads what waits. What can't be read is left where it is, counted and logged:
// the rest must not wait for it.
func (l *entries) load(ctx context.Context) error {
	now := time.Now()
	if err := l.remembered.loadLeft(ctx, now); err != nil {
		return err
	}
	err := readEach(ctx, l.keep, keyEntry, func(key string, value []byte) error {
		id, err := graspsync.ParseEventID(key)
		var e ledger.Entry
		if err == nil {
			e, err = decode(id, value)
		}
		if errors.Is(err, errObsolete) {
			return l.keep.Delete(ctx, keyEntry+key)
		}
		if err != nil {
			l.report.unreadable.Add(1)
			l.cfg.Logger.Error("what waited can't be read", "key", graspsync.Printable(key), keyError, graspsync.Printable(err.Error()))
			return nil
		}
		replaced, left := l.waiting.restore(now, e)
		if left { // we were killed before it was struck off
			return l.keep.Delete(ctx, keyEntry+key)
		}
		for _, old := range replaced {
			if err := l.keep.Delete(ctx, keyEntry+old.ID.String()); err != nil {
				return err
			}
		}
		if e.Class == ledger.Announcement && !e.Soft {
			l.findings.touch(e.Repos[0]) // its repository may have to be made
		}
		return nil
	})
	if err != nil {
		return err
	}
	l.waiting.sortByAge()
	return l.remembered.load(ctx)
}

// held is [Purgatory.Held].
func (l *entries) held(filter nostr.Filter) []graspsync.Stamp {
	var out []graspsync.Stamp
	for _, e := range l.waiting.all() {
		if filter.Matches(e.Event) && !l.served.has(e.ID) {
			out = append(out, graspsync.Stamp{CreatedAt: e.Event.CreatedAt, ID: e.ID})
		}
	}
	return out
}

// overdue returns an entry whose deadline has passed and that no look goes by, and keeps
// looks from going by it until notEnding.
func (l *entries) overdue(id graspsync.EventID) (ledger.Entry, bool) {
	is := func() (ledger.Entry, bool) {
		e, waits := l.waiting.get(id)
		return e, waits && !time.Now().Before(e.Deadline) && !l.uses.fetchesFor(e)
	}
	e, over := is()
	if !over || !l.pins.end(id) {
		return e, false
	}
	if e, over = is(); !over { // by now
		l.pins.notEnding(id)
	}
	return e, over
}

// soften has an announcement whose repository is gone be one that has expired softly.
func (l *entries) soften(ctx context.Context, e ledger.Entry) error {
	unlock, err := l.writing.Lock(ctx, e.ID)
	if err != nil {
		return err
	}
	defer unlock()
	soft, isSoft, _ := l.waiting.expire(time.Now(), e.ID)
	if !isSoft {
		return nil
	}
	// Should this fail, it expires softly again after a crash, for the same time.
	if err := l.write(ctx, soft); err != nil {
		l.cfg.Logger.Warn("a soft expiry could not be kept", keyEvent, e.ID.String(), keyError, graspsync.Printable(err.Error()))
	}
	l.step("expired softly")
	l.report.ended(e, Expired)
	return nil
}

// expireForGood has an event remembered, and strikes it off.
func (l *entries) expireForGood(ctx context.Context, e ledger.Entry) error {
	unlock, err := l.writing.Lock(ctx, e.ID)
	if err != nil {
		return err
	}
	defer unlock()
	now := time.Now()
	if e.Class != ledger.Relative {
		if err := l.remembered.noteExpired(ctx, now, e); err != nil {
			return err
		}
	}
	if e.Class == ledger.Relative {
		if err := l.remembered.noteLeft(ctx, e); err != nil {
			return err
		}
	}
	if err := l.keep.Delete(ctx, keyEntry+e.ID.String()); err != nil {
		return err
	}
	l.step("expired")
	_, _, forgotten := l.waiting.expire(now, e.ID)
	l.takes.forget(e.ID)
	if e.Soft { // that was told when it expired softly
		l.report.observe(Lapsed{ID: e.ID, Event: e.Signed()})
	} else {
		l.report.ended(e, Expired)
	}
	if err := l.remembered.forgetExpired(ctx, forgotten); err != nil {
		l.cfg.Logger.Warn("ids could not be forgotten", keyError, graspsync.Printable(err.Error()))
	}
	return nil
}

// errUnsaved is wrapped by the error for an event that was to be released, and could not be stored: troubles has
// what follows from that.
var errUnsaved = errors.New("storing a released event")

// store has the relay store an event. The error wraps ErrRefused or errUnsaved.
func (l *entries) store(ctx context.Context, e ledger.Entry) error {
	switch err := l.relay.Save(ctx, e.Signed()); {
	case errors.Is(err, ErrRefused):
		return fmt.Errorf("storing a released event: %w", err)
	case err != nil:
		return fmt.Errorf("%w: %w", errUnsaved, err)
	}
	l.step("stored")
	return nil
}

// again forgets that an event has waited in vain.
func (l *entries) again(ctx context.Context, id graspsync.EventID) error {
	if err := l.remembered.forgetExpired(ctx, []graspsync.EventID{id}); err != nil {
		return err
	}
	l.waiting.again(id)
	return nil
}

// strikeOff ends the waiting of what is stored.
func (l *entries) strikeOff(ctx context.Context, e ledger.Entry) error {
	if err := l.forget(ctx, e, Released); err != nil {
		return err
	}
	l.step("struck off")
	return nil
}

// pushing is [Purgatory.Pushing].
func (l *entries) pushing(ref graspsync.RepoRef, refs []nip34.RefName) {
	if !slices.ContainsFunc(refs, resolve.IsState) || !l.waiting.stateOf(ref) {
		return
	}
	l.findings.movedBy(ref, refs)
}

// charge has a relative count for one of those who want it by now, for as long as it may if
// it had come just now. If none of them has room it waits no longer, unless it does so for
// its author.
func (l *entries) charge(ctx context.Context, e ledger.Entry, payers []graspsync.PubKey) error {
	charged, evicted, err := l.chargeFor(ctx, e, payers)
	for _, old := range evicted {
		l.gaveWay(ctx, old)
	}
	if err == nil && !charged && e.For != e.Author {
		err = l.forget(ctx, e, Displaced)
	}
	return err
}

func (l *entries) chargeFor(ctx context.Context, e ledger.Entry, payers []graspsync.PubKey) (charged bool, evicted []ledger.Entry, err error) {
	unlock, err := l.writing.Lock(ctx, e.ID)
	if err != nil {
		return false, nil, err
	}
	defer unlock()
	e, waits, charged, evicted := l.waiting.charge(time.Now(), e, payers)
	if !waits || !charged {
		return !waits, evicted, nil
	}
	if err := l.write(ctx, e); err != nil {
		return true, append(evicted, l.waiting.unreserve(e)...), err
	}
	l.waiting.fill(e)
	return true, evicted, nil
}

// save stores an event and then strikes it off, in this order: what is stored twice
// is stored once. The error wraps ErrRefused if the relay does not want it.
func (l *entries) save(ctx context.Context, e ledger.Entry) error {
	unlock, err := l.storing.Lock(ctx, e.ID)
	if err != nil {
		return err
	}
	defer unlock()
	if _, waits := l.waiting.get(e.ID); !waits {
		return errOver
	}
	if err := l.store(ctx, e); err != nil {
		return err
	}
	return l.strikeOff(ctx, e)
}

// forget strikes an entry off, first on the disk. One that does not wait any more is
// no error.
func (l *entries) forget(ctx context.Context, e ledger.Entry, why Fate) error {
	unlock, err := l.writing.Lock(ctx, e.ID)
	if err != nil {
		return err
	}
	defer unlock()
	if _, waits := l.waiting.get(e.ID); !waits {
		return nil
	}
	if e.Class == ledger.Relative && (why == Unwanted || why == Displaced) {
		if err := l.remembered.noteLeft(ctx, e); err != nil {
			return err
		}
	}
	if err := l.keep.Delete(ctx, keyEntry+e.ID.String()); err != nil {
		return err
	}
	l.waiting.remove(e.ID)
	l.served.forget(e.ID)
	l.takes.forget(e.ID)
	l.report.ended(e, why)
	if e.Class == ledger.Announcement {
		l.inbox.tell(news{identifier: e.Repos[0].Identifier}) // those whom it lists wait with it
	}
	return nil
}

// count notes what waits.
func (l *entries) count(st *Status) {
	all, bytes := l.waiting.everything()
	st.Bytes = bytes
	for _, e := range all {
		switch e.Class {
		case ledger.Announcement:
			st.Announcements++
		case ledger.State:
			st.States++
		case ledger.PullRequest:
			st.PullRequests++
		case ledger.Relative:
			st.Relatives++
		}
	}
	slices.SortStableFunc(all, func(a, b ledger.Entry) int { return a.Deadline.Compare(b.Deadline) })
	st.Waiting = make([]EntryStatus, 0, min(len(all), StatusEntries))
	for _, e := range all[:min(len(all), StatusEntries)] {
		st.Waiting = append(st.Waiting, l.status(e))
	}
}

func (l *entries) status(e ledger.Entry) EntryStatus {
	st := EntryStatus{
		ID: e.ID.String(), Class: e.Class.String(), ByUser: e.ByUser, Since: e.Seen, Deadline: e.Deadline, Soft: e.Soft,
	}
	for _, ref := range e.Repos {
		st.Repos = append(st.Repos, ref.String())
		st.Missing += len(l.findings.lacked(ref).IDs)
	}
	return st
}

// admit writes an entry down and then makes it one that waits, if it is welcome. Two
// who submit the same event both return after it is on the disk. What gave way to it is to
// be struck off even if it could not be written down: after a crash there is one too many,
// and none too few.
func (l *entries) admit(ctx context.Context, e ledger.Entry, payers []graspsync.PubKey) (_ ledger.Entry, v ledger.Verdict, replaced, displaced []ledger.Entry, err error) {
	unlock, err := l.writing.Lock(ctx, e.ID)
	if err != nil {
		return e, 0, nil, nil, err
	}
	defer unlock()
	ctx, cancel := l.outlasting(ctx)
	defer cancel()
	e, v, displaced = l.waiting.admit(time.Now(), e, payers)
	for _, old := range displaced {
		l.served.forget(old.ID)
		l.takes.forget(old.ID)
	}
	if v != ledger.Welcome {
		return e, v, nil, displaced, nil
	}
	if err = l.write(ctx, e); err != nil {
		return e, v, nil, append(displaced, l.waiting.unreserve(e)...), err
	}
	replaced = l.waiting.fill(e)
	if e.Class == ledger.Announcement {
		l.findings.touch(e.Repos[0])
	}
	if l.waiting.again(e.ID) { // should that fail, it is known to have expired after a restart: it waits all the same
		if err := l.remembered.forgetExpired(ctx, []graspsync.EventID{e.ID}); err != nil {
			l.cfg.Logger.Warn("ids could not be forgotten", keyError, graspsync.Printable(err.Error()))
		}
	}
	return e, v, replaced, displaced, nil
}

// outlasting is a context that does not end with another one: that is over when a client goes, and
// what is written then for nobody counts for nothing that bounds what waits. Who sends events
// and goes could fill the disk.
func (l *entries) outlasting(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), l.cfg.fixed.Timeout)
}

// gaveWay strikes off what another event has taken the place of, unless it waits again by
// now. It may come again: nothing is remembered of it. The repository of an announcement
// goes; the refs of a pull request are found at the hourly check.
func (l *entries) gaveWay(ctx context.Context, old ledger.Entry) {
	ctx, cancel := l.outlasting(ctx)
	defer cancel()
	l.report.drop("displaced")
	if old.Class == ledger.Relative {
		if err := l.remembered.noteLeft(ctx, old); err != nil {
			l.cfg.Logger.Warn("a departure could not be kept", keyEvent, old.ID.String(), keyError, graspsync.Printable(err.Error()))
		}
	}
	if err := l.strike(ctx, old); err != nil { // after a restart it waits again
		l.cfg.Logger.Warn("a displaced entry could not be struck off", keyEvent, old.ID.String(), keyError, graspsync.Printable(err.Error()))
	}
	if !old.Soft { // else it was told when it expired softly
		l.report.ended(old, Displaced)
	}
	var why resolve.Reasons
	if old.Class == ledger.Announcement {
		l.findings.touch(old.Repos[0])
		why.Left = map[graspsync.RepoRef]bool{old.Repos[0]: true}
	}
	for _, identifier := range identifiersOf(old) {
		l.inbox.tell(news{identifier: identifier, why: why})
	}
}

// strike has nothing on the disk of an entry that has made place, unless it waits again by now.
func (l *entries) strike(ctx context.Context, old ledger.Entry) error {
	unlock, err := l.writing.Lock(ctx, old.ID)
	if err != nil {
		return err
	}
	defer unlock()
	if _, waits := l.waiting.get(old.ID); waits {
		return nil
	}
	return l.keep.Delete(ctx, keyEntry+old.ID.String())
}

// strikeReplaced strikes off what was replaced, whether its client is still there or not: each
// version that stayed on the disk would take up room that counts for nobody. If that fails it
// is done at the next start.
func (l *entries) strikeReplaced(ctx context.Context, old ledger.Entry) {
	ctx, cancel := l.outlasting(ctx)
	defer cancel()
	if err := l.strike(ctx, old); err != nil {
		l.cfg.Logger.Warn("a replaced entry could not be struck off", keyEvent, old.ID.String(), keyError, graspsync.Printable(err.Error()))
	}
}

// write puts an entry on the disk. The caller has its lock.
func (l *entries) write(ctx context.Context, e ledger.Entry) error {
	data, err := encode(e)
	if err != nil {
		return err
	}
	return l.keep.Put(ctx, state.Record{Key: keyEntry + e.ID.String(), Value: data})
}

// rewrite puts an entry on the disk as it is now, if it still waits.
func (l *entries) rewrite(ctx context.Context, id graspsync.EventID) error {
	unlock, err := l.writing.Lock(ctx, id)
	if err != nil {
		return err
	}
	defer unlock()
	e, waits := l.waiting.get(id)
	if !waits {
		return nil
	}
	return l.write(ctx, e)
}

// sign notes a sign of life of a repository. Not to have it on the disk costs a
// shorter wait after a crash, so that an error is only logged.
func (l *entries) sign(ctx context.Context, ref graspsync.RepoRef, newState bool) {
	e, revived, changed := l.waiting.sign(time.Now(), ref, newState)
	if revived {
		l.findings.touch(ref) // its repository is made again
	}
	if !changed {
		return
	}
	if err := l.rewrite(ctx, e.ID); err != nil {
		l.cfg.Logger.Warn("a sign of life could not be kept", keyRepo, graspsync.Printable(ref.String()), keyError, graspsync.Printable(err.Error()))
	}
	if revived {
		l.report.began(e)
	}
}

// elsewhere reports whether an entry is a pull request for several repositories, of which
// one is locked at a time.
func elsewhere(e ledger.Entry) bool { return e.Class == ledger.PullRequest && len(e.Repos) > 1 }

// identifiersOf returns the identifiers that an entry is under, in order, each once.
func identifiersOf(e ledger.Entry) (out []string) {
	for _, ref := range e.Repos {
		out = append(out, ref.Identifier)
	}
	slices.Sort(out)
	return slices.Compact(out)
}
