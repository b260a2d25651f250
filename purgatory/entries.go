package purgatory

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory/internal/ledger"
	"github.com/graspsync/graspsync/purgatory/internal/resolve"
	"github.com/graspsync/graspsync/state"
)

// entries are the events that wait, in memory and on the disk, and the data that was pushed
// for events which are not here.
type entries struct {
	// set by newEntries, read-only
	cfg        *Config
	report     *report
	inbox      *inbox
	findings   *findings // its lock is taken after mu
	gatherings *gatherings
	relay      Relay
	keep       keeper
	step       func(name string)

	writing locks[graspsync.EventID] // who writes or drops an entry has its lock
	storing locks[graspsync.EventID] // who has an entry stored

	mu sync.Mutex
	// guarded by mu
	ledger     *ledger.Ledger
	served     map[graspsync.EventID]map[graspsync.RepoRef]struct{} // pull requests that wait on, and where their refs are
	pinned     map[graspsync.EventID]int                            // entries that looks go by
	ending     map[graspsync.EventID]struct{}                       // entries whose waiting is being ended by the clock
	takes      map[graspsync.EventID]time.Time                      // data of events that took long to walk
	announcing map[string]*announcing                               // the announcements that wait under identifiers that events were about lately
}

func newEntries(cfg *Config, report *report, inbox *inbox, findings *findings, gatherings *gatherings, relay Relay, keep keeper,
	step func(name string),
) *entries {
	return &entries{
		cfg: cfg, report: report, inbox: inbox, findings: findings, gatherings: gatherings, relay: relay, keep: keep, step: step,
		ledger: ledger.New(ledger.Config{
			Hold: cfg.Times.Hold, Longest: cfg.Times.MaxHold, Soft: cfg.fixed.SoftExpiry, Placeholder: cfg.Times.PlaceholderHold,
			Remember: cfg.fixed.Remember, Entries: cfg.Limits.MaxEntries, Bytes: cfg.Limits.MaxBytes,
			Stay: cfg.Times.Hold / stayShare, Kept: cfg.Limits.MaxEntries / keptShare, KeptBytes: cfg.Limits.MaxBytes / keptShare, PerAuthor: cfg.Limits.MaxPerAuthor,
			Pushed: cfg.fixed.MaxPlaceholders, PerRepo: cfg.fixed.MaxPlaceholdersPerRepo, Remembered: cfg.fixed.MaxRemembered,
		}),
		served:     make(map[graspsync.EventID]map[graspsync.RepoRef]struct{}),
		pinned:     make(map[graspsync.EventID]int),
		ending:     make(map[graspsync.EventID]struct{}),
		takes:      make(map[graspsync.EventID]time.Time),
		announcing: make(map[string]*announcing),
	}
}

// get returns the entry with an id, if it waits.
func (l *entries) get(id graspsync.EventID) (e ledger.Entry, waits bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ledger.Get(id)
}

// all returns all entries.
func (l *entries) all() []ledger.Entry {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ledger.All()
}

// of returns the entries that may concern a repository.
func (l *entries) of(ref graspsync.RepoRef) []ledger.Entry {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ledger.Of(ref)
}

// byAuthor returns the entries of an author.
func (l *entries) byAuthor(author graspsync.PubKey) []ledger.Entry {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ledger.ByAuthor(author)
}

// waitingUnder returns the announcements and relatives under an identifier that have not
// expired.
func (l *entries) waitingUnder(identifier string) []ledger.Entry {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Concat(l.ledger.Announcements(identifier, false), l.ledger.Relatives(identifier))
}

// announcementsUnder returns the announcements under an identifier, softly expired or not.
func (l *entries) announcementsUnder(identifier string) []ledger.Entry {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ledger.Announcements(identifier, true)
}

// lasting drops from some entries those that have expired softly and those whose waiting is
// being ended.
func (l *entries) lasting(some []ledger.Entry) []ledger.Entry {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.DeleteFunc(some, func(e ledger.Entry) bool {
		_, ending := l.ending[e.ID]
		return ending || e.Soft
	})
}

// allWait reports whether all entries with these ids wait.
func (l *entries) allWait(ids []graspsync.EventID) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return !slices.ContainsFunc(ids, func(id graspsync.EventID) bool {
		_, waits := l.ledger.Get(id)
		return !waits
	})
}

// nextDue returns when the time of the first entry is over.
func (l *entries) nextDue() (time.Time, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ledger.NextDue()
}

// postpone has the end of an entry's waiting be tried again later.
func (l *entries) postpone(id graspsync.EventID, until time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ledger.Postpone(id, until)
}

// due returns at most n of the entries whose time is over, and postpones what is done about
// them. What servers were not even asked for, as owed says, waits on: who has very many
// repositories is asked for some of them a minute.
func (l *entries) due(now time.Time, n int, owed func(now time.Time, entry ledger.Entry) bool) (due, prolonged []ledger.Entry) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for {
		due = l.ledger.Due(now, n)
		before := len(prolonged)
		for _, entry := range due {
			if owed(now, entry) && l.ledger.Prolong(now, entry.ID) {
				prolonged = append(prolonged, entry)
			}
		}
		if len(prolonged) == before {
			break
		}
	}
	for _, entry := range due {
		l.ledger.Postpone(entry.ID, now.Add(expiryPause))
	}
	return due, prolonged
}

// announcing are the announcements that wait under an identifier.
type announcing struct {
	generation *ledger.Generation
	hard, soft []*nip34.Announcement
}

// maxAnnouncing is of how many identifiers they are kept: of those that events are about now.
const maxAnnouncing = 64

// maxPayers is for how many of those who may pay for a relative others give way to it at most.
const maxPayers = 8

const (
	// keptShare is the part of all places, one of so many, that is kept for states and pull
	// requests of those who have a say in repositories that are served.
	keptShare = 8
	// stayShare is the part of Hold, one of so many, for which somebody who has few places
	// keeps them, however many others have few: most data comes in that time, or begins to.
	stayShare = 30
)

// errOver is returned by save if an event does not wait any more: it was stored for another
// repository, or is not to be.
var errOver = errors.New("does not wait any more")

// departure is what is kept of the version by which an owner took a repository from us. The
// names of its JSON fields never change their meaning.
type departure struct {
	Repo      string          `json:"repo"`
	CreatedAt nostr.Timestamp `json:"created_at"`
	ID        string          `json:"id"`
	Until     time.Time       `json:"until"`
}

// load reads what waits. What can't be read is left where it is, counted and logged:
// the rest must not wait for it.
func (l *entries) load(ctx context.Context) error {
	now := time.Now()
	if err := l.loadLeft(ctx, now); err != nil {
		return err
	}
	err := l.keep.each(ctx, keyEntry, func(key string, value []byte) error {
		id, err := graspsync.ParseEventID(key)
		var e ledger.Entry
		if err == nil {
			e, err = decode(id, value)
		}
		if err != nil {
			l.report.unreadable.Add(1)
			l.cfg.Logger.Error("what waited can't be read", "key", graspsync.Printable(key), keyError, graspsync.Printable(err.Error()))
			return nil
		}
		if l.ledger.HasLeft(now, e) { // we were killed before it was struck off
			return l.keep.drop(ctx, keyEntry+key)
		}
		for _, old := range l.ledger.Restore(now, e) {
			if err := l.keep.drop(ctx, keyEntry+old.ID.String()); err != nil {
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
	return l.keep.each(ctx, keyExpired, func(key string, value []byte) error {
		var until time.Time
		id, err := graspsync.ParseEventID(key)
		if err = errors.Join(err, until.UnmarshalText(value)); err != nil {
			l.report.unreadable.Add(1)
			return l.keep.drop(ctx, keyExpired+key) // to forget it costs little
		}
		return l.forgetExpired(ctx, l.ledger.RememberExpired(now, id, until))
	})
}

// held returns the stamps of the events that wait and match a filter. What is stored,
// and waits on for another repository, is not among them.
func (l *entries) held(filter nostr.Filter) []Stamp {
	l.mu.Lock()
	all := slices.DeleteFunc(l.ledger.All(), func(e ledger.Entry) bool { return l.served[e.ID] != nil })
	l.mu.Unlock()
	var out []Stamp
	for _, e := range all {
		if e.Event != nil && filter.Matches(e.Event) {
			out = append(out, Stamp{e.Event.CreatedAt, e.ID})
		}
	}
	return out
}

func (l *entries) announcements(identifier string, soft bool) []*nip34.Announcement {
	l.mu.Lock()
	defer l.mu.Unlock()
	k := l.announcing[identifier]
	if g := l.ledger.Generation(identifier); k == nil || k.generation != g {
		delete(l.announcing, identifier)
		if g == nil {
			return nil
		}
		k = &announcing{generation: g}
		for _, e := range slices.Concat(l.ledger.Announcements(identifier, true), l.ledger.Relatives(identifier)) {
			if k.soft = append(k.soft, e.Announces); !e.Soft && e.Class == ledger.Announcement {
				k.hard = append(k.hard, e.Announces)
			}
		}
		if len(l.announcing) >= maxAnnouncing {
			clear(l.announcing)
		}
		l.announcing[identifier] = k
	}
	if soft {
		return slices.Clip(k.soft)
	}
	return slices.Clip(k.hard)
}

// hard returns the announcements under an identifier that wait, and have not
// expired.
func (l *entries) hard(identifier string) []*nip34.Announcement {
	return l.announcements(identifier, false)
}

// soft returns the announcements under an identifier that wait, those that expired
// softly, which a new state of one of their maintainers revives, and of those whom these list
// the announcements that wait with them.
func (l *entries) soft(identifier string) []*nip34.Announcement {
	return l.announcements(identifier, true)
}

// roomFor reports whether data that was pushed for an event has room, or waits
// already.
func (l *entries) roomFor(ref graspsync.RepoRef, id graspsync.EventID) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, waits := l.ledger.Get(id); waits {
		_, _, room := l.ledger.Join(id, ref)
		return room
	}
	return l.ledger.Check(time.Now(), placeholder(ref, id)) != ledger.PushedFull
}

// overdue returns an entry whose deadline has passed and that no look goes by, and keeps
// looks from going by it until notEnding.
func (l *entries) overdue(id graspsync.EventID) (ledger.Entry, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e, waits := l.ledger.Get(id)
	if !waits || time.Now().Before(e.Deadline) || l.pinned[id] > 0 || l.fetchesFor(e) {
		return e, false
	}
	l.ending[id] = struct{}{}
	return e, true
}

// fetchesFor reports whether a request for what an entry waits for is under way that was
// made before its time was over. An announcement waits for whatever comes to its repository:
// while it is being ended nobody has one, and what waits for that would end as well. It is
// called with mu held.
func (l *entries) fetchesFor(e ledger.Entry) bool {
	return slices.ContainsFunc(l.needing(e), func(ref graspsync.RepoRef) bool {
		began := l.gatherings.since(ref)
		return !began.IsZero() && began.Before(e.Deadline)
	})
}

// needing returns the repositories that lack what an entry waits for.
func (l *entries) needing(e ledger.Entry) (refs []graspsync.RepoRef) {
	for _, identifier := range identifiersOf(e) {
		refs = append(refs, l.findings.lacking(identifier, func(ref graspsync.RepoRef, n need) bool {
			announces := e.Class == ledger.Announcement && !e.Soft && ref == e.Repos[0]
			return announces || slices.Contains(n.entries, e.ID)
		})...)
	}
	return refs
}

func (l *entries) isFetchedFor(e ledger.Entry) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.fetchesFor(e)
}

func (l *entries) notEnding(id graspsync.EventID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.ending, id)
}

// soften has an announcement whose repository is gone be one that has expired softly.
func (l *entries) soften(ctx context.Context, e ledger.Entry) error {
	unlock, err := l.writing.lock(ctx, e.ID)
	if err != nil {
		return err
	}
	defer unlock()
	l.mu.Lock()
	soft, isSoft, _ := l.ledger.Expire(time.Now(), e.ID)
	l.mu.Unlock()
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

// expireForGood has an event remembered, and strikes it off. The event of a
// placeholder may still come.
func (l *entries) expireForGood(ctx context.Context, e ledger.Entry) error {
	unlock, err := l.writing.lock(ctx, e.ID)
	if err != nil {
		return err
	}
	defer unlock()
	now := time.Now()
	if e.Class != ledger.Placeholder && e.Class != ledger.Relative {
		until, err := now.Add(l.cfg.fixed.Remember).UTC().MarshalText()
		if err == nil {
			err = l.keep.put(ctx, keyExpired+e.ID.String(), until)
		}
		switch {
		case errors.Is(err, state.ErrFull): // else nothing would ever make room
			l.report.drop("remembered")
		case err != nil:
			return err
		default:
			l.step("remembered")
		}
	}
	if e.Class == ledger.Relative {
		if err := l.noteLeft(ctx, e); err != nil {
			return err
		}
	}
	if err := l.keep.drop(ctx, keyEntry+e.ID.String()); err != nil {
		return err
	}
	l.step("expired")
	l.mu.Lock()
	_, _, forgotten := l.ledger.Expire(now, e.ID)
	delete(l.takes, e.ID)
	l.mu.Unlock()
	if e.Soft { // that was told when it expired softly
		l.report.observe(Lapsed{ID: e.ID, Event: e.Event})
	} else {
		l.report.ended(e, Expired)
	}
	if err := l.forgetExpired(ctx, forgotten); err != nil {
		l.cfg.Logger.Warn("ids could not be forgotten", keyError, graspsync.Printable(err.Error()))
	}
	return nil
}

// under returns the entries that may concern a repository of a group, each once, but for
// the announcements.
func (l *entries) under(g *resolve.Group) (out []ledger.Entry) {
	l.mu.Lock()
	defer l.mu.Unlock()
	seen := make(map[graspsync.EventID]struct{})
	for ref := range g.Ours() {
		for _, e := range l.ledger.Of(ref) {
			if _, again := seen[e.ID]; !again && e.Class != ledger.Announcement {
				seen[e.ID] = struct{}{}
				out = append(out, e)
			}
		}
	}
	return out
}

// pin keeps what a look has found waiting from being ended by the clock.
func (l *entries) pin(g *resolve.Group, ref graspsync.RepoRef) {
	l.mu.Lock()
	defer l.mu.Unlock()
	hold := func(id graspsync.EventID) bool { return l.keepFor(g, id) }
	g.States = slices.DeleteFunc(g.States, func(h resolve.State) bool { return !hold(h.Entry.ID) })
	g.Pulls = slices.DeleteFunc(g.Pulls, func(h resolve.Pull) bool { return !hold(h.Entry.ID) })
	if e, waits := g.Waiting[ref]; waits && !hold(e.ID) {
		delete(g.Waiting, ref)
	}
}

// keepFor keeps one entry from being ended; false if it is being ended already. It is called
// with mu held.
func (l *entries) keepFor(g *resolve.Group, id graspsync.EventID) bool {
	if _, ending := l.ending[id]; ending {
		return false
	}
	l.pinned[id]++
	g.Pins = append(g.Pins, id)
	return true
}

// unpin lets go of what pin has kept.
func (l *entries) unpin(g *resolve.Group) {
	if g == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, id := range g.Pins {
		if l.pinned[id]--; l.pinned[id] == 0 {
			delete(l.pinned, id)
		}
	}
	g.Pins = nil
}

// waitingPulls returns the pull requests that wait, of those of a repository.
func (l *entries) waitingPulls(ref graspsync.RepoRef) (pulls []*nip34.PullRequest) {
	l.mu.Lock()
	entries := l.ledger.Of(ref)
	l.mu.Unlock()
	for _, e := range entries {
		if e.Class != ledger.PullRequest {
			continue
		}
		if pr, err := nip34.ParsePullRequest(e.Event); err == nil {
			pulls = append(pulls, pr)
		}
	}
	return pulls
}

// serve notes that a pull request is stored, and whether a repository has its ref. It
// returns all repositories that have it.
func (l *entries) serve(id graspsync.EventID, ref graspsync.RepoRef, has bool) map[graspsync.RepoRef]struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.served[id] == nil {
		l.served[id] = make(map[graspsync.RepoRef]struct{})
	}
	if has {
		l.served[id][ref] = struct{}{}
	}
	return maps.Clone(l.served[id])
}

// isServed reports whether a pull request waits on though it is stored.
func (l *entries) isServed(id graspsync.EventID) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.served[id] != nil
}

// store has the relay store an event.
func (l *entries) store(ctx context.Context, e ledger.Entry) error {
	if err := l.relay.Save(ctx, e.Event); err != nil {
		return fmt.Errorf("storing a released event: %w", err)
	}
	l.step("stored")
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

// generation is another one whenever Announcements or Remembered would return something else
// for an identifier, and nil where they return nothing.
func (l *entries) generation(identifier string) any {
	l.mu.Lock()
	defer l.mu.Unlock()
	if g := l.ledger.Generation(identifier); g != nil {
		return g
	}
	return nil
}

// knows reports whether somebody has an announcement that waits under an identifier, softly
// expired or not, or is listed in one, without looking at these. It may report that of others.
func (l *entries) knows(identifier string, who graspsync.PubKey) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ledger.Knows(identifier, who)
}

// pullRequest returns the pull request, or update of one, with this id that waits;
// nil if none does.
func (l *entries) pullRequest(id graspsync.EventID) *nip34.PullRequest {
	l.mu.Lock()
	e, ok := l.ledger.Get(id)
	l.mu.Unlock()
	if !ok || e.Class != ledger.PullRequest {
		return nil
	}
	pr, err := nip34.ParsePullRequest(e.Event)
	if err != nil {
		return nil
	}
	return pr
}

// event returns the event with this id that waits; nil if none does. An announcement
// that has expired softly waits.
func (l *entries) event(id graspsync.EventID) *nostr.Event {
	l.mu.Lock()
	defer l.mu.Unlock()
	e, _ := l.ledger.Get(id)
	return e.Event
}

// submitted reports whether the event with this id waits, and if so, whether a client
// submitted it.
func (l *entries) submitted(id graspsync.EventID) (byUser, waits bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e, waits := l.ledger.Get(id)
	return e.ByUser, waits && e.Event != nil
}

// eventsOf returns the events of an author that wait, in order of their ids.
func (l *entries) eventsOf(author graspsync.PubKey) (out []*nostr.Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range l.ledger.ByAuthor(author) {
		if e.Event != nil {
			out = append(out, e.Event)
		}
	}
	return out
}

// pushing tells that a push is about to move refs, and must be called while it has the
// lock: whoever gets that next would take a part of what a state says for something to
// be undone. As long as such a state waits, what it says of these refs is not moved
// back to what an older one says. It is not kept on the disk: after a restart the
// refs are those of the older state until the data of the newer one is complete.
func (l *entries) pushing(ref graspsync.RepoRef, refs []nip34.RefName) {
	l.mu.Lock()
	defer l.mu.Unlock()
	waits := func(e ledger.Entry) bool { return e.Class == ledger.State }
	if !slices.ContainsFunc(refs, resolve.IsState) || !slices.ContainsFunc(l.ledger.Of(ref), waits) {
		return
	}
	l.findings.movedBy(ref, refs)
}

// heldRelatives returns the announcements of those who are listed by what waits.
func (l *entries) heldRelatives(identifier string) (out []resolve.Relative) {
	l.mu.Lock()
	entries := l.ledger.Relatives(identifier)
	l.mu.Unlock()
	for _, e := range entries {
		out = append(out, resolve.Relative{Entry: e, Announcement: e.Announces})
	}
	return out
}

// pinRelatives keeps those that were found waiting from being ended by the clock.
func (l *entries) pinRelatives(g *resolve.Group) {
	l.mu.Lock()
	defer l.mu.Unlock()
	g.Relatives = slices.DeleteFunc(g.Relatives, func(h resolve.Relative) bool { return !l.keepFor(g, h.Entry.ID) })
}

// charge has a relative count for one of those who want it by now, for as long as it may if
// it had come just now. If none of them has room it waits no longer, unless it does so for
// its author.
func (l *entries) charge(ctx context.Context, e ledger.Entry, payers []graspsync.PubKey) error {
	charged, err := l.chargeFor(ctx, e, payers)
	if err == nil && !charged && e.For != e.Author {
		err = l.forget(ctx, e, Displaced)
	}
	return err
}

func (l *entries) chargeFor(ctx context.Context, e ledger.Entry, payers []graspsync.PubKey) (charged bool, err error) {
	unlock, err := l.writing.lock(ctx, e.ID)
	if err != nil {
		return false, err
	}
	defer unlock()
	l.mu.Lock()
	_, waits := l.ledger.Get(e.ID)
	e, charged = l.ledger.Charge(time.Now(), e, payers)
	if waits && charged {
		l.ledger.Reserve(e)
	}
	l.mu.Unlock()
	if !waits || !charged {
		return !waits, nil
	}
	err = l.write(ctx, e)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ledger.Unreserve(e)
	if err == nil {
		l.ledger.Put(e)
	}
	return true, err
}

// noteLeft remembers the version of a relative that waits no longer and is not stored: nobody
// brings back one by which its repository was ours.
func (l *entries) noteLeft(ctx context.Context, e ledger.Entry) error {
	now := time.Now()
	until, ref := now.Add(l.cfg.fixed.Remember), e.Repos[0]
	data, err := json.Marshal(departure{ref.String(), e.Version.CreatedAt, e.Version.ID.String(), until.Round(0).UTC()})
	if err == nil {
		err = l.keep.put(ctx, keyLeft+hashed(ref), data)
	}
	switch {
	case errors.Is(err, state.ErrFull): // else nothing would ever make room
		l.report.drop("remembered")
	case err != nil:
		return err
	}
	l.mu.Lock()
	forgotten := l.ledger.Leave(now, ref, e.Version, until)
	l.mu.Unlock()
	if err := l.forgetLeft(ctx, forgotten); err != nil {
		l.cfg.Logger.Warn("departures could not be forgotten", keyError, graspsync.Printable(err.Error()))
	}
	return nil
}

// forgetLeft drops departures that are not remembered any more.
func (l *entries) forgetLeft(ctx context.Context, refs []graspsync.RepoRef) error {
	var errs []error
	for _, ref := range refs {
		errs = append(errs, l.keep.drop(ctx, keyLeft+hashed(ref)))
	}
	return errors.Join(errs...)
}

// loadLeft reads the departures that were kept.
func (l *entries) loadLeft(ctx context.Context, now time.Time) error {
	return l.keep.each(ctx, keyLeft, func(key string, value []byte) error {
		var d departure
		err := json.Unmarshal(value, &d)
		ref, rerr := graspsync.ParseRepoRef(d.Repo)
		id, ierr := graspsync.ParseEventID(d.ID)
		if err = errors.Join(err, rerr, ierr); err != nil || hashed(ref) != key {
			l.report.unreadable.Add(1)
			return l.keep.drop(ctx, keyLeft+key) // to forget it costs little
		}
		return l.forgetLeft(ctx, l.ledger.Leave(now, ref, graspsync.Stamp{CreatedAt: d.CreatedAt, ID: id}, d.Until))
	})
}

// save stores an event and then strikes it off, in this order: what is stored twice
// is stored once. The error wraps ErrRefused if the relay does not want it.
func (l *entries) save(ctx context.Context, e ledger.Entry) error {
	unlock, err := l.storing.lock(ctx, e.ID)
	if err != nil {
		return err
	}
	defer unlock()
	l.mu.Lock()
	_, waits := l.ledger.Get(e.ID)
	l.mu.Unlock()
	if !waits {
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
	unlock, err := l.writing.lock(ctx, e.ID)
	if err != nil {
		return err
	}
	defer unlock()
	l.mu.Lock()
	_, waits := l.ledger.Get(e.ID)
	l.mu.Unlock()
	if !waits {
		return nil
	}
	if e.Class == ledger.Relative && (why == Unwanted || why == Displaced) {
		if err := l.noteLeft(ctx, e); err != nil {
			return err
		}
	}
	if err := l.keep.drop(ctx, keyEntry+e.ID.String()); err != nil {
		return err
	}
	l.mu.Lock()
	l.ledger.Remove(e.ID)
	delete(l.served, e.ID)
	delete(l.takes, e.ID)
	l.mu.Unlock()
	l.report.ended(e, why)
	if e.Class == ledger.Announcement {
		l.inbox.tell(look{identifier: e.Repos[0].Identifier}) // those whom it lists wait with it
	}
	return nil
}

// forgetExpired drops ids that are not remembered any more.
func (l *entries) forgetExpired(ctx context.Context, ids []graspsync.EventID) error {
	var errs []error
	for _, id := range ids {
		errs = append(errs, l.keep.drop(ctx, keyExpired+id.String()))
	}
	return errors.Join(errs...)
}

// stillWaits reports whether a repository that a look took for nobody's has an announcement
// that waits. It was being ended by the clock, which decides alone what becomes of the
// repository: there may be something in it.
func (l *entries) stillWaits(g *resolve.Group, ref graspsync.RepoRef) bool {
	l.mu.Lock()
	waiting := l.ledger.Announcements(ref.Identifier, false)
	l.mu.Unlock()
	return slices.ContainsFunc(waiting, func(e ledger.Entry) bool {
		return e.Repos[0] == ref &&
			!slices.ContainsFunc(g.Over, func(o resolve.Ended) bool { return o.Entry.ID == e.ID })
	})
}

// tookLong reports whether data of an event took long to walk a short time ago.
func (l *entries) tookLong(id graspsync.EventID) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return time.Since(l.takes[id]) < longAgain
}

func (l *entries) noteLong(id graspsync.EventID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, waits := l.ledger.Get(id); waits {
		l.takes[id] = time.Now()
	}
}

// count notes what waits.
func (l *entries) count(st *Status) {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := l.ledger.All()
	st.Bytes = l.ledger.Bytes()
	for _, e := range all {
		switch e.Class {
		case ledger.Announcement:
			st.Announcements++
		case ledger.State:
			st.States++
		case ledger.PullRequest:
			st.PullRequests++
		case ledger.Placeholder:
			st.Placeholders++
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

// status is called with mu held.
func (l *entries) status(e ledger.Entry) EntryStatus {
	st := EntryStatus{
		ID: e.ID.String(), Class: e.Class.String(), ByUser: e.ByUser, Since: e.Seen, Deadline: e.Deadline, Soft: e.Soft,
	}
	for _, ref := range e.Repos {
		st.Repos = append(st.Repos, ref.String())
		st.Missing += len(l.findings.lacked(ref).ids)
	}
	return st
}

func (l *entries) waiting(ref graspsync.RepoRef) (ledger.Entry, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ledger.Announcement(ref)
}

// admit writes an entry down and then makes it one that waits, if it is welcome. Two
// who submit the same event both return after it is on the disk. What gave way to it is to
// be struck off even if it could not be written down: after a crash there is one too many,
// and none too few.
func (l *entries) admit(ctx context.Context, e ledger.Entry, payers []graspsync.PubKey) (_ ledger.Entry, v ledger.Verdict, replaced, displaced []ledger.Entry, err error) {
	unlock, err := l.writing.lock(ctx, e.ID)
	if err != nil {
		return e, 0, nil, nil, err
	}
	defer unlock()
	ctx, cancel := l.outlasting(ctx)
	defer cancel()
	now := time.Now()
	l.mu.Lock()
	e, v, displaced = l.find(now, e, payers)
	for _, old := range displaced {
		delete(l.served, old.ID)
		delete(l.takes, old.ID)
	}
	if v == ledger.Welcome {
		e = l.ledger.Admit(now, e)
		l.ledger.Reserve(e)
	}
	l.mu.Unlock()
	if v != ledger.Welcome {
		return e, v, nil, nil, nil
	}
	if err = l.write(ctx, e); err != nil {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.ledger.Unreserve(e)
		return e, v, nil, displaced, err
	}
	l.mu.Lock()
	l.ledger.Unreserve(e)
	replaced = l.ledger.Put(e)
	if e.Class == ledger.Announcement {
		l.findings.touch(e.Repos[0])
	}
	again := e.Class != ledger.Placeholder && l.ledger.Again(e.ID)
	l.mu.Unlock()
	if again { // should that fail, it is known to have expired after a restart: it waits all the same
		if err := l.forgetExpired(ctx, []graspsync.EventID{e.ID}); err != nil {
			l.cfg.Logger.Warn("ids could not be forgotten", keyError, graspsync.Printable(err.Error()))
		}
	}
	return e, v, replaced, displaced, nil
}

// find says whether there is room for an entry, or makes some. A relative is taken at the cost
// of the first of its payers who has room. It is called with mu held.
func (l *entries) find(now time.Time, e ledger.Entry, payers []graspsync.PubKey) (_ ledger.Entry, v ledger.Verdict, displaced []ledger.Entry) {
	if e.Class != ledger.Relative {
		payers = []graspsync.PubKey{e.For}
	}
	isFull := func() bool { return v == ledger.Full || v == ledger.AuthorFull }
	for _, e.For = range payers {
		if v = l.ledger.Check(now, e); !isFull() {
			return e, v, nil
		}
	}
	kept := ledger.Kept{Always: l.isFixed, InUse: l.isInUse}
	for _, e.For = range payers[:min(len(payers), maxPayers)] {
		v = l.ledger.Check(now, e)
		if displaced = l.ledger.Displace(now, e, v, kept); len(displaced) > 0 {
			return e, ledger.Welcome, displaced
		}
	}
	return e, v, nil
}

// outlasting is a context that does not end with another one: that is over when a client goes, and
// what is written then for nobody counts for nothing that bounds what waits. Who sends events
// and goes could fill the disk.
func (l *entries) outlasting(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), l.cfg.fixed.Timeout)
}

// isFixed reports whether an entry must not give way: the clock ends it, or a look goes by it
// that may move branches and tags for it. One looks at all pull requests of a repository: that
// keeps none of these, since a look that finds that one does not wait any more lets it be.
// It is called with mu held.
func (l *entries) isFixed(e ledger.Entry) bool {
	_, ending := l.ending[e.ID]
	return ending || e.Class != ledger.PullRequest && l.pinned[e.ID] > 0
}

// isInUse reports whether data is coming for an entry: it is being fetched, some of it was
// gathered already, or somebody pushes. All pull requests of a repository wait for the same
// place, so that it says nothing of one of them. It is called with mu held.
func (l *entries) isInUse(e ledger.Entry) bool {
	if e.Class == ledger.PullRequest {
		return false
	}
	ref := e.Repos[0]
	return l.findings.isPushed(ref) || l.gatherings.uses(ref)
}

// gaveWay strikes off what another event has taken the place of, unless it waits again by
// now. It may come again: nothing is remembered of it. The repository of an announcement
// goes; the refs of a pull request are found at the hourly check.
func (l *entries) gaveWay(ctx context.Context, old ledger.Entry) {
	ctx, cancel := l.outlasting(ctx)
	defer cancel()
	l.report.drop("displaced")
	if old.Class == ledger.Relative {
		if err := l.noteLeft(ctx, old); err != nil {
			l.cfg.Logger.Warn("a departure could not be kept", keyEvent, old.ID.String(), keyError, graspsync.Printable(err.Error()))
		}
	}
	if err := l.strike(ctx, old); err != nil { // after a restart it waits again
		l.cfg.Logger.Warn("a displaced entry could not be struck off", keyEvent, old.ID.String(), keyError, graspsync.Printable(err.Error()))
	}
	if !old.Soft { // else it was told when it expired softly
		l.report.ended(old, Displaced)
	}
	var why causes
	if old.Class == ledger.Announcement {
		l.findings.touch(old.Repos[0])
		why.left = map[graspsync.RepoRef]bool{old.Repos[0]: true}
	}
	for _, identifier := range identifiersOf(old) {
		l.inbox.tell(look{identifier: identifier, why: why})
	}
}

// strike has nothing on the disk of an entry that has made place, unless it waits again by now.
func (l *entries) strike(ctx context.Context, old ledger.Entry) error {
	unlock, err := l.writing.lock(ctx, old.ID)
	if err != nil {
		return err
	}
	defer unlock()
	l.mu.Lock()
	_, waits := l.ledger.Get(old.ID)
	l.mu.Unlock()
	if waits {
		return nil
	}
	return l.keep.drop(ctx, keyEntry+old.ID.String())
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
	return l.keep.put(ctx, keyEntry+e.ID.String(), data)
}

// rewrite puts an entry on the disk as it is now, if it still waits.
func (l *entries) rewrite(ctx context.Context, id graspsync.EventID) error {
	unlock, err := l.writing.lock(ctx, id)
	if err != nil {
		return err
	}
	defer unlock()
	l.mu.Lock()
	e, waits := l.ledger.Get(id)
	l.mu.Unlock()
	if !waits {
		return nil
	}
	return l.write(ctx, e)
}

// sign notes a sign of life of a repository. Not to have it on the disk costs a
// shorter wait after a crash, so that an error is only logged.
func (l *entries) sign(ctx context.Context, ref graspsync.RepoRef, newState bool) {
	l.mu.Lock()
	e, revived, changed := l.ledger.Sign(time.Now(), ref, newState)
	if revived {
		l.findings.touch(ref) // its repository is made again
	}
	l.mu.Unlock()
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

// join adds a repository to what waits for data of an event, or has its event wait.
// It reports whether there was any.
func (l *entries) join(ctx context.Context, ref graspsync.RepoRef, id graspsync.EventID) (done bool, err error) {
	unlock, err := l.writing.lock(ctx, id)
	if err != nil {
		return false, err
	}
	defer unlock()
	l.mu.Lock()
	_, waits := l.ledger.Get(id)
	e, changed, room := l.ledger.Join(id, ref)
	l.mu.Unlock()
	if !waits {
		return false, nil
	}
	if !room {
		l.report.drop("pushed")
		l.inbox.tell(stray{entry: placeholder(ref, id)})
		return true, nil
	}
	if !changed {
		return true, nil
	}
	if err := l.write(ctx, e); err != nil {
		return true, err
	}
	l.mu.Lock()
	l.ledger.Put(e)
	l.mu.Unlock()
	if e.Class == ledger.PullRequest {
		l.inbox.tell(stray{entry: placeholder(ref, id)})
	}
	return true, nil
}

// allAnnouncements returns all announcements that wait and have not expired, in order
// of their repositories.
func (l *entries) allAnnouncements() (out []*nip34.Announcement) {
	l.mu.Lock()
	all := l.ledger.All()
	l.mu.Unlock()
	for _, e := range all {
		if e.Class == ledger.Announcement && !e.Soft {
			out = append(out, e.Announces)
		}
	}
	slices.SortFunc(out, func(a, b *nip34.Announcement) int { return graspsync.RepoRef.Compare(a.Ref, b.Ref) })
	return out
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
