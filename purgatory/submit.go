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
	"github.com/graspsync/graspsync/purgatory/internal/ledger"
)

// Decision is what becomes of an event that was submitted.
type Decision uint8

const (
	// Pass: it does not wait. It may be stored now.
	Pass Decision = iota + 1
	// Held: it waits, and is on the disk.
	Held
	// Refused: it can't wait; Answer.Reason says why.
	Refused
	// Full: it can't wait now, since too much does already, of its author or of all.
	// Nothing is wrong with it: it may be submitted again later.
	Full
)

// Answer is what [Purgatory.Submit] says.
type Answer struct {
	Decision Decision
	Reason   string // for a client, in the words of an OK message (NIP-01)
}

// The reasons of an Answer.
const (
	reasonInvalid    = "invalid: malformed event"
	reasonSuperseded = "duplicate: a newer version waits"
	reasonOlder      = "duplicate: a newer version is served"
	reasonExpired    = "blocked: its git data never came"
	reasonAuthor     = "rate-limited: too many events of this author wait for git data"
	reasonFull       = "error: too many events wait for git data"
	reasonListed     = "rate-limited: too many are listed by announcements of this name that wait for git data"
	reasonPulls      = "rate-limited: the pull requests of this repository take up all that they may, and others give way before"
	reasonPushed     = "rate-limited: too much was pushed for events that are not here"
)

// Submit takes in an event that the relay would accept: authorised, verified, not
// deleted. byUser means that a client submitted it, and not that it came by sync. An
// error leaves open whether the event waits; it may be submitted again.
//
// What is held is on the disk. Submit does not wait for git, with one exception: the
// repository of an announcement that a user submitted is there when it returns, since
// a push is next.
//
// When there are no places left, one of somebody's gives way who has many. What came by sync
// counts for the relay that brought it if [Purgatory.SubmitFrom] says which one that was.
func (p *Purgatory) Submit(ctx context.Context, ev *nostr.Event, byUser bool) (Answer, error) {
	return p.submit(ctx, ev, byUser, "")
}

// SubmitFrom is Submit for an event that came by sync, from a relay of this host name.
// Keys are free, so that places are shared by relay as well.
func (p *Purgatory) SubmitFrom(ctx context.Context, ev *nostr.Event, relay string) (Answer, error) {
	return p.submit(ctx, ev, false, relay)
}

func (p *Purgatory) submit(ctx context.Context, ev *nostr.Event, byUser bool, from string) (Answer, error) {
	e, err := entryOf(ev, byUser)
	e.From = from
	switch {
	case errors.Is(err, errNotOurs):
		return Answer{Decision: Pass}, nil
	case err != nil:
		return Answer{Refused, reasonInvalid}, nil
	}
	var payers []graspsync.PubKey
	if e.Class == ledger.Announcement && !p.lists(e.Announces) {
		var answer Answer
		if answer, payers, err = p.holdRelative(ctx, &e); err != nil || len(payers) == 0 {
			return answer, err
		}
	}
	if e.Class == ledger.Announcement {
		active, err := p.accepted(ctx, e.Repos[0])
		if err != nil || active {
			return Answer{Decision: Pass}, err
		}
	}
	older, err := p.older(ctx, e)
	switch {
	case err != nil:
		return Answer{}, err
	case older:
		return Answer{Refused, reasonOlder}, nil
	}
	answer, err := p.hold(ctx, e, payers...)
	if err != nil || answer.Decision != Held || e.Class != ledger.Announcement || !byUser {
		return answer, err
	}
	p.revive(ctx, e.Repos[0])
	if waiting, ok := p.waiting(e.Repos[0]); !ok || waiting.Soft {
		return answer, nil
	}
	ctx, cancel := context.WithTimeout(ctx, p.cfg.fixed.Timeout)
	defer cancel()
	if err := p.repos.Create(ctx, e.Repos[0], nip34.SHA1); err != nil {
		return Answer{}, fmt.Errorf("creating repository: %w", err)
	}
	p.step("created")
	return answer, nil
}

// lists reports whether an announcement makes its repository ours, once it is accepted.
func (p *Purgatory) lists(a *nip34.Announcement) bool {
	of, is := p.relay.(Related)
	return !is || of.Lists(a)
}

// older reports whether an entry is a state of whose author a newer one is stored: its
// data is of no use. That a newer one waits does not matter, since that one's data may
// never come.
func (p *Purgatory) older(ctx context.Context, e ledger.Entry) (bool, error) {
	if e.Class != ledger.State {
		return false, nil
	}
	stored, err := p.relay.States(ctx, e.Repos[0].Identifier)
	if err != nil {
		return false, fmt.Errorf("reading states: %w", err)
	}
	return slices.ContainsFunc(stored, func(s *nip34.State) bool {
		return s.Ref == e.Repos[0] && s.Stamp().Newer(e.Version)
	}), nil
}

// accepted reports whether a repository's announcement is served already: another
// version of it needs not wait.
func (p *Purgatory) accepted(ctx context.Context, ref graspsync.RepoRef) (bool, error) {
	all, err := p.relay.Announcements(ctx, ref.Identifier)
	if err != nil {
		return false, fmt.Errorf("reading announcements: %w", err)
	}
	for _, a := range all {
		if a.Ref == ref && !hasExpired(a.Event, time.Now()) {
			return true, nil
		}
	}
	return false, nil
}

func (p *Purgatory) waiting(ref graspsync.RepoRef) (ledger.Entry, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.ledger.Announcement(ref)
}

// hold makes an entry one that waits: on the disk first. payers are those for whom a relative
// may count.
func (p *Purgatory) hold(ctx context.Context, e ledger.Entry, payers ...graspsync.PubKey) (Answer, error) {
	e, err := p.standing(ctx, e)
	if err != nil {
		return Answer{}, err
	}
	e, verdict, replaced, displaced, err := p.admit(ctx, e, payers)
	for _, old := range displaced {
		p.gaveWay(ctx, old)
	}
	if err != nil {
		return Answer{}, err
	}
	switch verdict {
	case ledger.Known:
		return Answer{Held, Message}, nil
	case ledger.Superseded:
		return Answer{Refused, reasonSuperseded}, nil
	case ledger.Expired:
		return Answer{Refused, reasonExpired}, nil
	case ledger.AuthorFull:
		p.stats.drop("author")
		return Answer{Full, reasonAuthor}, nil
	case ledger.PushedFull:
		p.stats.drop("pushed")
		return Answer{Refused, reasonPushed}, nil
	case ledger.Full:
		p.stats.drop("full")
		return Answer{Full, reasonFull}, nil
	}
	p.step("held")
	for _, old := range replaced {
		p.strikeReplaced(ctx, old)
		if old.ID == e.ID {
			return Answer{Refused, reasonSuperseded}, nil
		}
		p.ended(old, Replaced)
		if old.Class == ledger.Announcement && e.Class == ledger.Relative { // its owner takes it from us
			p.touch(old.Repos[0])
			p.tell(look{identifier: old.Repos[0].Identifier, why: causes{left: map[graspsync.RepoRef]bool{old.Repos[0]: true}}})
		}
	}
	p.began(e)
	p.countClones(e)
	if e.Class == ledger.State {
		p.alive(ctx, e)
	}
	p.tell(wanted{entry: e})
	return Answer{Held, Message}, nil
}

// admit writes an entry down and then makes it one that waits, if it is welcome. Two
// who submit the same event both return after it is on the disk. What gave way to it is to
// be struck off even if it could not be written down: after a crash there is one too many,
// and none too few.
func (p *Purgatory) admit(ctx context.Context, e ledger.Entry, payers []graspsync.PubKey) (_ ledger.Entry, v ledger.Verdict, replaced, displaced []ledger.Entry, err error) {
	unlock, err := p.writing.lock(ctx, e.ID)
	if err != nil {
		return e, 0, nil, nil, err
	}
	defer unlock()
	ctx, cancel := p.outlasting(ctx)
	defer cancel()
	now := time.Now()
	p.mu.Lock()
	e, v, displaced = p.find(now, e, payers)
	for _, old := range displaced {
		delete(p.served, old.ID)
		delete(p.takes, old.ID)
	}
	if v == ledger.Welcome {
		e = p.ledger.Admit(now, e)
		p.ledger.Reserve(e)
	}
	p.mu.Unlock()
	if v != ledger.Welcome {
		return e, v, nil, nil, nil
	}
	if err = p.write(ctx, e); err != nil {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.ledger.Unreserve(e)
		return e, v, nil, displaced, err
	}
	p.mu.Lock()
	p.ledger.Unreserve(e)
	replaced = p.ledger.Put(e)
	if e.Class == ledger.Announcement {
		p.touchNow(e.Repos[0])
	}
	again := e.Class != ledger.Placeholder && p.ledger.Again(e.ID)
	p.mu.Unlock()
	if again { // should that fail, it is known to have expired after a restart: it waits all the same
		if err := p.forgetExpired(ctx, []graspsync.EventID{e.ID}); err != nil {
			p.cfg.Logger.Warn("ids could not be forgotten", keyError, graspsync.Printable(err.Error()))
		}
	}
	return e, v, replaced, displaced, nil
}

// maxPayers is for how many of those who may pay for a relative others give way to it at most.
const maxPayers = 8

// find says whether there is room for an entry, or makes some. A relative is taken at the cost
// of the first of its payers who has room. It is called with mu held.
func (p *Purgatory) find(now time.Time, e ledger.Entry, payers []graspsync.PubKey) (_ ledger.Entry, v ledger.Verdict, displaced []ledger.Entry) {
	if e.Class != ledger.Relative {
		payers = []graspsync.PubKey{e.For}
	}
	isFull := func() bool { return v == ledger.Full || v == ledger.AuthorFull }
	for _, e.For = range payers {
		if v = p.ledger.Check(now, e); !isFull() {
			return e, v, nil
		}
	}
	kept := ledger.Kept{Always: p.isFixed, InUse: p.isInUse}
	for _, e.For = range payers[:min(len(payers), maxPayers)] {
		v = p.ledger.Check(now, e)
		if displaced = p.ledger.Displace(now, e, v, kept); len(displaced) > 0 {
			return e, ledger.Welcome, displaced
		}
	}
	return e, v, nil
}

// outlasting is a context that does not end with another one: that is over when a client goes, and
// what is written then for nobody counts for nothing that bounds what waits. Who sends events
// and goes could fill the disk.
func (p *Purgatory) outlasting(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), p.cfg.fixed.Timeout)
}

// isFixed reports whether an entry must not give way: the clock ends it, or a look goes by it
// that may move branches and tags for it. One looks at all pull requests of a repository: that
// keeps none of these, since a look that finds that one does not wait any more lets it be.
// It is called with mu held.
func (p *Purgatory) isFixed(e ledger.Entry) bool {
	_, ending := p.ending[e.ID]
	return ending || e.Class != ledger.PullRequest && p.pinned[e.ID] > 0
}

// isInUse reports whether data is coming for an entry: it is being fetched, some of it was
// gathered already, or somebody pushes. All pull requests of a repository wait for the same
// place, so that it says nothing of one of them. It is called with mu held.
func (p *Purgatory) isInUse(e ledger.Entry) bool {
	if e.Class == ledger.PullRequest {
		return false
	}
	ref := e.Repos[0]
	return len(p.pushed[ref.Identifier][ref]) > 0 || p.engine.fetches.uses(ref)
}

// gaveWay strikes off what another event has taken the place of, unless it waits again by
// now. It may come again: nothing is remembered of it. The repository of an announcement
// goes; the refs of a pull request are found at the hourly check.
func (p *Purgatory) gaveWay(ctx context.Context, old ledger.Entry) {
	ctx, cancel := p.outlasting(ctx)
	defer cancel()
	p.stats.drop("displaced")
	if old.Class == ledger.Relative {
		if err := p.noteLeft(ctx, old); err != nil {
			p.cfg.Logger.Warn("a departure could not be kept", keyEvent, old.ID.String(), keyError, graspsync.Printable(err.Error()))
		}
	}
	if err := p.strike(ctx, old); err != nil { // after a restart it waits again
		p.cfg.Logger.Warn("a displaced entry could not be struck off", keyEvent, old.ID.String(), keyError, graspsync.Printable(err.Error()))
	}
	if !old.Soft { // else it was told when it expired softly
		p.ended(old, Displaced)
	}
	var why causes
	if old.Class == ledger.Announcement {
		p.touch(old.Repos[0])
		why.left = map[graspsync.RepoRef]bool{old.Repos[0]: true}
	}
	for _, identifier := range identifiersOf(old) {
		p.tell(look{identifier: identifier, why: why})
	}
}

// strike has nothing on the disk of an entry that has made place, unless it waits again by now.
func (p *Purgatory) strike(ctx context.Context, old ledger.Entry) error {
	unlock, err := p.writing.lock(ctx, old.ID)
	if err != nil {
		return err
	}
	defer unlock()
	p.mu.Lock()
	_, waits := p.ledger.Get(old.ID)
	p.mu.Unlock()
	if waits {
		return nil
	}
	return p.keep.drop(ctx, keyEntry+old.ID.String())
}

const (
	// keptShare is the part of all places, one of so many, that is kept for states and pull
	// requests of those who have a say in repositories that are served.
	keptShare = 8
	// stayShare is the part of Hold, one of so many, for which somebody who has few places
	// keeps them, however many others have few: most data comes in that time, or begins to.
	stayShare = 30
)

// standing completes an entry with whether its author has a say in a repository that is served
// and that it is for, and a pull request with whose that is.
func (p *Purgatory) standing(ctx context.Context, e ledger.Entry) (ledger.Entry, error) {
	if e.Class != ledger.State && e.Class != ledger.PullRequest {
		return e, nil
	}
	for _, ref := range e.Repos {
		served, err := p.relay.Announcements(ctx, ref.Identifier)
		if err != nil {
			return e, fmt.Errorf("reading announcements: %w", err)
		}
		family, err := p.family(ctx, ref.Identifier, served, nil, p.heldRelatives(ref.Identifier))
		if err != nil {
			return e, err
		}
		if e.Class == ledger.State {
			e.Trusted = family.Maintains(e.Author, nip34.Owners(served))
			return e, nil
		}
		if !slices.ContainsFunc(served, func(a *nip34.Announcement) bool { return a.Ref == ref }) {
			continue
		}
		if e.For == (graspsync.PubKey{}) {
			e.For = ref.Owner
		}
		if e.Trusted = family.Authority(ref).Has(e.Author); e.Trusted {
			return e, nil
		}
	}
	return e, nil
}

// strikeReplaced strikes off what was replaced, whether its client is still there or not: each
// version that stayed on the disk would take up room that counts for nobody. If that fails it
// is done at the next start.
func (p *Purgatory) strikeReplaced(ctx context.Context, old ledger.Entry) {
	ctx, cancel := p.outlasting(ctx)
	defer cancel()
	if err := p.strike(ctx, old); err != nil {
		p.cfg.Logger.Warn("a replaced entry could not be struck off", keyEvent, old.ID.String(), keyError, graspsync.Printable(err.Error()))
	}
}

// write puts an entry on the disk. The caller has its lock.
func (p *Purgatory) write(ctx context.Context, e ledger.Entry) error {
	data, err := encode(e)
	if err != nil {
		return err
	}
	return p.keep.put(ctx, keyEntry+e.ID.String(), data)
}

// rewrite puts an entry on the disk as it is now, if it still waits.
func (p *Purgatory) rewrite(ctx context.Context, id graspsync.EventID) error {
	unlock, err := p.writing.lock(ctx, id)
	if err != nil {
		return err
	}
	defer unlock()
	p.mu.Lock()
	e, waits := p.ledger.Get(id)
	p.mu.Unlock()
	if !waits {
		return nil
	}
	return p.write(ctx, e)
}

// alive takes a new state event for a sign of life of the announcements that wait and
// whose maintainers its author is one of, and revives those that expired softly.
func (p *Purgatory) alive(ctx context.Context, state ledger.Entry) {
	identifier := state.Repos[0].Identifier
	p.mu.Lock()
	entries := p.ledger.Announcements(identifier, true)
	p.mu.Unlock()
	if len(entries) == 0 {
		return
	}
	served, err := p.relay.Announcements(ctx, identifier)
	if err != nil {
		p.cfg.Logger.Warn("reading announcements failed", keyError, graspsync.Printable(err.Error()))
		served = nil // those that wait may do
	}
	var waiting []*nip34.Announcement
	for _, e := range entries {
		waiting = append(waiting, e.Announces)
	}
	family, err := p.family(ctx, identifier, served, waiting, p.heldRelatives(identifier))
	if err != nil {
		p.cfg.Logger.Warn("reading announcements failed", keyError, graspsync.Printable(err.Error()))
		family = p.cfg.Membership.Family(identifier, slices.Concat(served, waiting))
	}
	for _, e := range entries {
		if family.Authority(e.Repos[0]).Has(state.Author) {
			p.sign(ctx, e.Repos[0], true)
		}
	}
}

// sign notes a sign of life of a repository. Not to have it on the disk costs a
// shorter wait after a crash, so that an error is only logged.
func (p *Purgatory) sign(ctx context.Context, ref graspsync.RepoRef, newState bool) {
	p.mu.Lock()
	e, revived, changed := p.ledger.Sign(time.Now(), ref, newState)
	if revived {
		p.touchNow(ref) // its repository is made again
	}
	p.mu.Unlock()
	if !changed {
		return
	}
	if err := p.rewrite(ctx, e.ID); err != nil {
		p.cfg.Logger.Warn("a sign of life could not be kept", keyRepo, graspsync.Printable(ref.String()), keyError, graspsync.Printable(err.Error()))
	}
	if revived {
		p.began(e)
	}
}

// revive has an announcement wait again that has expired softly: the user who submits it
// again is about to push.
func (p *Purgatory) revive(ctx context.Context, ref graspsync.RepoRef) {
	if waiting, ok := p.waiting(ref); ok && waiting.Soft {
		p.sign(ctx, ref, true)
		p.tell(look{identifier: ref.Identifier})
	}
}

// Pushed tells that a push has brought data to a repository and moved refs. It must
// be called after the push has let go of the lock. Data for a pull request whose
// event is not here is kept for it for a while; if there is no room for it to wait,
// its ref is removed. What could not be told, or not be removed, is found at the
// hourly check, with a [Knower].
func (p *Purgatory) Pushed(ctx context.Context, ref graspsync.RepoRef, refs []nip34.RefName) error {
	p.Pushing(ref, refs) // who did not say so before says it now
	p.upkeep.brought(ref)
	// Anybody may push for an event: only what a state authorises is a sign of life.
	if len(refs) == 0 || slices.ContainsFunc(refs, isState) {
		p.sign(ctx, ref, false)
	}
	var errs []error
	for _, name := range refs {
		if id, ok := eventOf(name); ok {
			errs = append(errs, p.pushedFor(ctx, ref, id, true))
		}
	}
	p.touch(ref)
	p.tell(look{identifier: ref.Identifier, why: causes{gained: map[graspsync.RepoRef]bool{ref: true}}})
	return errors.Join(errs...)
}

// Settled waits until a repository was looked at for what was told of it before, or ctx ends,
// whose error it wraps: what a push has made complete is served then, and its default branch
// and the other repositories of those who have a say in it are what they say. That such a look
// fails is not waited for: it is made again by and by.
func (p *Purgatory) Settled(ctx context.Context, ref graspsync.RepoRef) error {
	p.mu.Lock()
	number, told := p.touched[ref.Identifier][ref]
	if !told {
		p.mu.Unlock()
		return nil
	}
	done := make(chan struct{})
	if p.settling[ref] == nil {
		p.settling[ref] = make(map[chan struct{}]uint64)
	}
	p.settling[ref][done] = number
	p.mu.Unlock()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		p.mu.Lock()
		defer p.mu.Unlock()
		p.notSettling(ref, done)
		return fmt.Errorf("waiting for a look at a repository: %w", context.Cause(ctx))
	}
}

// lookedAt tells those who wait for what a repository was touched for, up to a number. It is
// called with mu held.
func (p *Purgatory) lookedAt(ref graspsync.RepoRef, number uint64) {
	for done, since := range p.settling[ref] {
		if since <= number {
			close(done)
			p.notSettling(ref, done)
		}
	}
}

// notSurveyed tells those who wait for a look at a repository with an identifier: it is not known
// when there is one.
func (p *Purgatory) notSurveyed(identifier string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for ref := range p.settling {
		if ref.Identifier == identifier {
			p.lookedAt(ref, p.touched[identifier][ref])
		}
	}
}

// notSettling forgets somebody who waits. It is called with mu held.
func (p *Purgatory) notSettling(ref graspsync.RepoRef, done chan struct{}) {
	delete(p.settling[ref], done)
	if len(p.settling[ref]) == 0 {
		delete(p.settling, ref)
	}
}

// pushedFor keeps data for an event that is not stored. If that has waited in vain before,
// only who pushes it now has it wait again.
func (p *Purgatory) pushedFor(ctx context.Context, ref graspsync.RepoRef, id graspsync.EventID, now bool) error {
	if has, err := p.has(ctx, id); err != nil || has {
		return err
	}
	if done, err := p.join(ctx, ref, id); err != nil || done {
		return err
	}
	e := placeholder(ref, id)
	e.ByUser = now
	answer, err := p.hold(ctx, e)
	if err != nil {
		return fmt.Errorf("keeping data for %s: %w", id, err)
	}
	if answer.Decision == Refused {
		p.tell(stray{entry: e})
	}
	return nil
}

// has asks the relay for an event, if it can be asked.
func (p *Purgatory) has(ctx context.Context, id graspsync.EventID) (bool, error) {
	k, ok := p.relay.(Knower)
	if !ok {
		return false, nil
	}
	has, err := k.Has(ctx, id)
	if err != nil {
		return false, fmt.Errorf("asking for an event: %w", err)
	}
	return has, nil
}

// join adds a repository to what waits for data of an event, or has its event wait.
// It reports whether there was any.
func (p *Purgatory) join(ctx context.Context, ref graspsync.RepoRef, id graspsync.EventID) (done bool, err error) {
	unlock, err := p.writing.lock(ctx, id)
	if err != nil {
		return false, err
	}
	defer unlock()
	p.mu.Lock()
	_, waits := p.ledger.Get(id)
	e, changed, room := p.ledger.Join(id, ref)
	p.mu.Unlock()
	if !waits {
		return false, nil
	}
	if !room {
		p.stats.drop("pushed")
		p.tell(stray{entry: placeholder(ref, id)})
		return true, nil
	}
	if !changed {
		return true, nil
	}
	if err := p.write(ctx, e); err != nil {
		return true, err
	}
	p.mu.Lock()
	p.ledger.Put(e)
	p.mu.Unlock()
	if e.Class == ledger.PullRequest {
		p.tell(stray{entry: placeholder(ref, id)})
	}
	return true, nil
}

// Arrived tells that an event is stored that did not come from here: a placeholder
// for it is of no more use, what a deletion covers does not wait any longer, and an
// announcement may say anew who decides and where data can be had.
func (p *Purgatory) Arrived(ev *nostr.Event) {
	switch ev.Kind {
	case graspsync.KindAnnouncement, graspsync.KindDeletion, kindVanish, graspsync.KindPullRequest, graspsync.KindPullRequestUpdate:
		p.tell(arrived{ev})
	}
}

// Departed tells that an event is not stored any more: an announcement may say no longer
// whose repository is ours.
func (p *Purgatory) Departed(ev *nostr.Event) {
	if ev.Kind == graspsync.KindAnnouncement {
		p.tell(arrived{ev}) // that has its repository looked at
	}
}

const kindVanish = 62
