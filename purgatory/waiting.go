package purgatory

import (
	"slices"
	"sync"
	"time"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory/internal/ledger"
	"github.com/graspsync/graspsync/purgatory/internal/resolve"
)

const (
	// restartShare is the part of Hold, one of so many, for which what is overdue at a start is looked at before it
	// expires: it may be complete, and something of ours have kept it from being released.
	restartShare = 30
)

// waiting are the entries that wait, in memory: each method sees them at one moment.
type waiting struct {
	grace time.Duration // after a start; read-only

	mu     sync.Mutex
	ledger *ledger.Ledger // guarded by mu
}

// newWaiting returns what waits. Entries for which inUse reports true are not evicted.
func newWaiting(cfg *Config, inUse func(ledger.Entry) bool) *waiting {
	return &waiting{grace: cfg.Times.Hold / restartShare, ledger: ledger.New(ledger.Config{
		Hold: cfg.Times.Hold, Longest: cfg.fixed.MaxHold, Soft: cfg.fixed.SoftExpiry,
		Remember: cfg.fixed.Remember, Entries: cfg.Limits.MaxEntries, Bytes: cfg.Limits.MaxBytes,
		PerAuthor: cfg.fixed.MaxPerAuthor, InUse: inUse,
		Remembered: cfg.fixed.MaxRemembered,
	})}
}

// get returns the entry with an id, if it waits.
func (w *waiting) get(id graspsync.EventID) (e ledger.Entry, waits bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.ledger.Get(id)
}

// all returns all entries.
func (w *waiting) all() []ledger.Entry {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.ledger.All()
}

// of returns the entries that may concern a repository.
func (w *waiting) of(ref graspsync.RepoRef) []ledger.Entry {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.ledger.Of(ref)
}

// stateOf reports whether a state waits that may concern a repository.
func (w *waiting) stateOf(ref graspsync.RepoRef) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.ledger.HasState(ref.Identifier)
}

// still returns those of some entries that wait, as they are now.
func (w *waiting) still(some []ledger.Entry) (out []ledger.Entry) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, e := range some {
		if now, waits := w.ledger.Get(e.ID); waits {
			out = append(out, now)
		}
	}
	return out
}

// asked returns what is known of deletions by the author of an entry.
func (w *waiting) asked(id graspsync.EventID) *ledger.Asked {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.ledger.Asked(id)
}

// toAsk returns of which of some entries it is not known that they were not deleted.
func (w *waiting) toAsk(some []ledger.Entry) map[graspsync.EventID]struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.ledger.ToAsk(some)
}

// undeleted notes that an entry was not deleted, unless its author has deleted something since
// that was asked.
func (w *waiting) undeleted(id graspsync.EventID, a *ledger.Asked) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ledger.Undeleted(id, a)
}

// askAgain notes that an author has deleted something.
func (w *waiting) askAgain(author graspsync.PubKey) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ledger.AskAgain(author)
}

// byAuthor returns the entries of an author.
func (w *waiting) byAuthor(author graspsync.PubKey) []ledger.Entry {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.ledger.ByAuthor(author)
}

// waitingUnder returns the announcements and relatives under an identifier that have not
// expired.
func (w *waiting) waitingUnder(identifier string) []ledger.Entry {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Concat(w.ledger.Announcements(identifier, false), w.ledger.Relatives(identifier))
}

// announcementsUnder returns the announcements under an identifier, softly expired or not.
func (w *waiting) announcementsUnder(identifier string) []ledger.Entry {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.ledger.Announcements(identifier, true)
}

// relatives returns the announcements of those who are listed by what waits.
func (w *waiting) relatives(identifier string) (out []resolve.Relative) {
	w.mu.Lock()
	entries := w.ledger.Relatives(identifier)
	w.mu.Unlock()
	for _, e := range entries {
		out = append(out, resolve.Relative{Entry: e, Announcement: e.Announces})
	}
	return out
}

// under returns the entries that may concern a repository of a group, each once, but for
// the announcements.
func (w *waiting) under(g *resolve.Group) (out []ledger.Entry) {
	w.mu.Lock()
	defer w.mu.Unlock()
	seen := make(map[graspsync.EventID]struct{})
	for ref := range g.Ours() {
		for _, e := range w.ledger.Of(ref) {
			if _, again := seen[e.ID]; !again && e.Class != ledger.Announcement {
				seen[e.ID] = struct{}{}
				out = append(out, e)
			}
		}
	}
	return out
}

// announcement returns the announcement of a repository, softly expired or not.
func (w *waiting) announcement(ref graspsync.RepoRef) (ledger.Entry, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.ledger.Announcement(ref)
}

// allAnnouncements is [Purgatory.AllAnnouncements].
func (w *waiting) allAnnouncements() (out []*nip34.Announcement) {
	w.mu.Lock()
	all := w.ledger.All()
	w.mu.Unlock()
	for _, e := range all {
		if e.Class == ledger.Announcement && !e.Soft {
			out = append(out, e.Announces)
		}
	}
	slices.SortFunc(out, func(a, b *nip34.Announcement) int { return graspsync.RepoRef.Compare(a.Ref, b.Ref) })
	return out
}

// stillWaits reports whether a repository that a look took for nobody's has an announcement
// that waits. It was being ended by the clock, which decides alone what becomes of the
// repository: there may be something in it.
func (w *waiting) stillWaits(g *resolve.Group, ref graspsync.RepoRef) bool {
	w.mu.Lock()
	waiting := w.ledger.Announcements(ref.Identifier, false)
	w.mu.Unlock()
	return slices.ContainsFunc(waiting, func(e ledger.Entry) bool {
		return e.Repos[0] == ref &&
			!slices.ContainsFunc(g.Over, func(o resolve.Ended) bool { return o.Entry.ID == e.ID })
	})
}

// allWait reports whether all entries with these ids wait.
func (w *waiting) allWait(ids []graspsync.EventID) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return !slices.ContainsFunc(ids, func(id graspsync.EventID) bool {
		_, waits := w.ledger.Get(id)
		return !waits
	})
}

// pullTips returns the commits of the pull requests that wait for a repository.
func (w *waiting) pullTips(ref graspsync.RepoRef) (tips []nip34.ObjectID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, e := range w.ledger.Of(ref) {
		if e.Pull != nil {
			tips = append(tips, e.Pull.Tip)
		}
	}
	return tips
}

// pullRequest is [Purgatory.PullRequest].
func (w *waiting) pullRequest(id graspsync.EventID) *nip34.PullRequest {
	w.mu.Lock()
	defer w.mu.Unlock()
	e, _ := w.ledger.Get(id)
	return e.Pull
}

// event is [Purgatory.Event].
func (w *waiting) event(id graspsync.EventID) graspsync.Event {
	w.mu.Lock()
	defer w.mu.Unlock()
	e, _ := w.ledger.Get(id)
	return e.Signed()
}

// eventsOf is [Purgatory.EventsOf].
func (w *waiting) eventsOf(author graspsync.PubKey) (out []graspsync.Event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, e := range w.ledger.ByAuthor(author) {
		out = append(out, e.Signed())
	}
	return out
}

// submitted is [Purgatory.Submitted].
func (w *waiting) submitted(id graspsync.EventID) (byUser, waits bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	e, waits := w.ledger.Get(id)
	return e.ByUser, waits
}

// hasExpired reports whether an event is remembered to have waited in vain.
func (w *waiting) hasExpired(id graspsync.EventID) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.ledger.HasExpired(id, time.Now())
}

// countExpired returns how many events are remembered to have waited in vain.
func (w *waiting) countExpired() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.ledger.CountExpired(time.Now())
}

// knows is [Purgatory.Knows].
func (w *waiting) knows(identifier string, who graspsync.PubKey) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.ledger.Knows(identifier, who)
}

// nextDue returns when the time of the first entry is over.
func (w *waiting) nextDue() (time.Time, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.ledger.NextDue()
}

// postpone has the end of an entry's waiting be tried again later.
func (w *waiting) postpone(id graspsync.EventID, until time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ledger.Postpone(id, until)
}

// due returns at most n of the entries whose time is over, and postpones what is done about
// them. What servers were not even asked for, as owed says, waits on: who has very many
// repositories is asked for some of them a minute. So does, however long that takes, what may be complete while
// something of ours fails, as kept says.
func (w *waiting) due(
	now time.Time, n int, kept func(entry ledger.Entry) bool, owed func(now time.Time, entry ledger.Entry) bool,
) (due, prolonged []ledger.Entry) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for {
		due = w.ledger.Due(now, n)
		before := len(prolonged)
		for _, entry := range due {
			if kept(entry) && w.ledger.Await(now, entry.ID) || owed(now, entry) && w.ledger.Prolong(now, entry.ID) {
				prolonged = append(prolonged, entry)
			}
		}
		if len(prolonged) == before {
			break
		}
	}
	for _, entry := range due {
		w.ledger.Postpone(entry.ID, now.Add(expiryPause))
	}
	return due, prolonged
}

// waitsFor reports whether an event waits for data of a repository.
func (w *waiting) waitsFor(id graspsync.EventID, ref graspsync.RepoRef) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	e, waits := w.ledger.Get(id)
	return waits && slices.Contains(e.Repos, ref)
}

// everything returns all entries, and how many bytes they take up.
func (w *waiting) everything() ([]ledger.Entry, int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.ledger.All(), w.ledger.Bytes()
}

// admit reserves a place for an entry, if it is welcome, until put or unreserve. It returns the entries that
// were evicted. A relative counts for the first of its payers that has room.
func (w *waiting) admit(now time.Time, e ledger.Entry, payers []graspsync.PubKey) (_ ledger.Entry, v ledger.Verdict, evicted []ledger.Entry) {
	if e.Class != ledger.Relative {
		payers = []graspsync.PubKey{e.For}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, e.For = range payers {
		if v = w.ledger.Check(now, e); v == ledger.AuthorFull {
			if evicted = w.ledger.MakeRoom(e); len(evicted) > 0 {
				v = ledger.Welcome
			}
		}
		if v != ledger.AuthorFull {
			break
		}
	}
	if v != ledger.Welcome {
		return e, v, evicted
	}
	e = w.ledger.Admit(now, e)
	gone, ok := w.ledger.Reserve(e)
	if !ok {
		v = ledger.Full
	}
	return e, v, append(evicted, gone...)
}

// charge has a relative count for the first of those who want it and has room, with a place
// reserved for it as that, if it waits.
func (w *waiting) charge(now time.Time, e ledger.Entry, payers []graspsync.PubKey) (_ ledger.Entry, waits, charged bool, evicted []ledger.Entry) {
	w.mu.Lock()
	defer w.mu.Unlock()
	_, waits = w.ledger.Get(e.ID)
	if e, charged = w.ledger.Charge(now, e, payers); waits && charged {
		evicted, charged = w.ledger.Reserve(e) // it has a place, unless a newer version is being written down
	}
	return e, waits, charged, evicted
}

// unreserve gives a place back, and returns what was evicted for that.
func (w *waiting) unreserve(e ledger.Entry) []ledger.Entry {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.ledger.Unreserve(e)
}

// sortByAge orders the entries that were restored.
func (w *waiting) sortByAge() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ledger.SortByAge()
}

// fill has an entry wait in the place that was reserved for it.
func (w *waiting) fill(e ledger.Entry) (replaced []ledger.Entry) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.ledger.Fill(e)
}

// again forgets that an event has waited in vain, and reports whether it has.
func (w *waiting) again(id graspsync.EventID) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.ledger.Again(id)
}

// put has an entry wait as it is now.
func (w *waiting) put(e ledger.Entry) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ledger.Put(e)
}

// remove has an entry wait no longer.
func (w *waiting) remove(id graspsync.EventID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ledger.Remove(id)
}

// expire ends the waiting of an entry whose time is over, softly if it may be revived, and
// returns which ids are not remembered any more.
func (w *waiting) expire(now time.Time, id graspsync.EventID) (soft ledger.Entry, isSoft bool, forgotten []graspsync.EventID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.ledger.Expire(now, id)
}

// sign notes a sign of life of a repository.
func (w *waiting) sign(now time.Time, ref graspsync.RepoRef, newState bool) (e ledger.Entry, revived, changed bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.ledger.Sign(now, ref, newState)
}

// leave remembers the version of a relative, and returns of which repositories none is
// remembered any more.
func (w *waiting) leave(now time.Time, ref graspsync.RepoRef, version graspsync.Stamp, until time.Time) []graspsync.RepoRef {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.ledger.Leave(now, ref, version, until)
}

// rememberExpired remembers an id, and returns which are not remembered any more.
func (w *waiting) rememberExpired(now time.Time, id graspsync.EventID, until time.Time) []graspsync.EventID {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.ledger.RememberExpired(now, id, until)
}

// restore takes in an entry that was kept, and returns which it takes the place of. left says
// that it waits no longer: its version is remembered as one that has left.
func (w *waiting) restore(now time.Time, e ledger.Entry) (replaced []ledger.Entry, left bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ledger.HasLeft(now, e) {
		return nil, true
	}
	if grace := now.Add(w.grace); e.Deadline.Before(grace) && !e.Soft {
		e.Deadline = grace
	}
	return w.ledger.Restore(now, e), false
}

// announcements returns the announcements and relatives that wait under an identifier, softly
// expired or not, with what says whether these are still the same: nil if there are none.
func (w *waiting) announcements(identifier string, known *ledger.Generation) (generation *ledger.Generation, entries []ledger.Entry) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if generation = w.ledger.Generation(identifier); generation == nil || generation == known {
		return generation, nil
	}
	return generation, slices.Concat(w.ledger.Announcements(identifier, true), w.ledger.Relatives(identifier))
}

// generation says whether the announcements under an identifier are still the same.
func (w *waiting) generation(identifier string) *ledger.Generation {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.ledger.Generation(identifier)
}
