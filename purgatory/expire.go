package purgatory

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory/internal/ledger"
	"github.com/graspsync/graspsync/state"
)

// expire ends the waiting of an entry whose time is over, on the disk first. What is
// released, deleted or extended meanwhile is left alone.
func (p *Purgatory) expire(ctx context.Context, id graspsync.EventID) error {
	ctx, cancel := context.WithTimeout(ctx, p.cfg.fixed.Timeout)
	defer cancel()
	e, due := p.overdue(id)
	if !due {
		return nil // or it is being released: it is due again soon
	}
	defer p.notEnding(id)
	if e.Class == ledger.Announcement && !e.Soft {
		return p.expireSoftly(ctx, e)
	}
	has, err := p.has(ctx, id)
	if err != nil {
		return err
	}
	if has || p.isServed(id) { // before a crash, or it waited on for another repository
		return p.forget(ctx, e, Released)
	}
	if err := p.dropRefs(ctx, e); err != nil {
		return err
	}
	return p.expireForGood(ctx, e)
}

// overdue returns an entry whose deadline has passed and that no look goes by, and keeps
// looks from going by it until notEnding.
func (p *Purgatory) overdue(id graspsync.EventID) (ledger.Entry, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	e, waits := p.ledger.Get(id)
	if !waits || time.Now().Before(e.Deadline) || p.pinned[id] > 0 || p.fetchesFor(e) {
		return e, false
	}
	p.ending[id] = struct{}{}
	return e, true
}

// fetchesFor reports whether a request for what an entry waits for is under way that was
// made before its time was over. An announcement waits for whatever comes to its repository:
// while it is being ended nobody has one, and what waits for that would end as well. It is
// called with mu held.
func (p *Purgatory) fetchesFor(e ledger.Entry) bool {
	return slices.ContainsFunc(p.needing(e), func(ref graspsync.RepoRef) bool {
		began := p.engine.fetches.since(ref)
		return !began.IsZero() && began.Before(e.Deadline)
	})
}

// needing returns the repositories that lack what an entry waits for. It is called with mu
// held.
func (p *Purgatory) needing(e ledger.Entry) (refs []graspsync.RepoRef) {
	for _, identifier := range identifiersOf(e) {
		for ref, n := range p.needs[identifier] {
			announces := e.Class == ledger.Announcement && !e.Soft && ref == e.Repos[0]
			if announces || slices.Contains(n.entries, e.ID) {
				refs = append(refs, ref)
			}
		}
	}
	return refs
}

func (p *Purgatory) isFetchedFor(e ledger.Entry) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.fetchesFor(e)
}

func (p *Purgatory) notEnding(id graspsync.EventID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.ending, id)
}

// identifiersOf returns the identifiers that an entry is under, in order, each once.
func identifiersOf(e ledger.Entry) (out []string) {
	for _, ref := range e.Repos {
		out = append(out, ref.Identifier)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// expireSoftly removes the repository of an announcement, unless a push or a fetch is
// using it, or has brought data to it that a state names. What pull requests have brought
// does not count: anybody may write these.
func (p *Purgatory) expireSoftly(ctx context.Context, e ledger.Entry) error {
	ref := e.Repos[0]
	served, err := p.accepted(ctx, ref) // we were killed before it was struck off
	if err != nil {
		return err
	}
	has, err := served, error(nil)
	if !served {
		has, err = p.emptyOfState(ctx, ref)
	}
	if err != nil {
		return err
	}
	if has {
		p.touch(ref) // it is released for that
		return fmt.Errorf("removing a repository: it is served, or has branches or tags: %w", ErrInUse)
	}
	if err := p.removeRepository(ctx, ref); err != nil {
		return err
	}
	unlock, err := p.writing.lock(ctx, e.ID)
	if err != nil {
		return err
	}
	defer unlock()
	p.mu.Lock()
	soft, isSoft, _ := p.ledger.Expire(time.Now(), e.ID)
	p.mu.Unlock()
	if !isSoft {
		return nil
	}
	// Should this fail, it expires softly again after a crash, for the same time.
	if err := p.write(ctx, soft); err != nil {
		p.cfg.Logger.Warn("a soft expiry could not be kept", keyEvent, e.ID.String(), keyError, graspsync.Printable(err.Error()))
	}
	p.step("expired softly")
	p.ended(e, Expired)
	return nil
}

// expireForGood has an event remembered, and strikes it off. The event of a
// placeholder may still come.
func (p *Purgatory) expireForGood(ctx context.Context, e ledger.Entry) error {
	unlock, err := p.writing.lock(ctx, e.ID)
	if err != nil {
		return err
	}
	defer unlock()
	now := time.Now()
	if e.Class != ledger.Placeholder && e.Class != ledger.Relative {
		until, err := now.Add(p.cfg.fixed.Remember).UTC().MarshalText()
		if err == nil {
			err = p.keep.put(ctx, keyExpired+e.ID.String(), until)
		}
		switch {
		case errors.Is(err, state.ErrFull): // else nothing would ever make room
			p.stats.drop("remembered")
		case err != nil:
			return err
		default:
			p.step("remembered")
		}
	}
	if e.Class == ledger.Relative {
		if err := p.noteLeft(ctx, e); err != nil {
			return err
		}
	}
	if err := p.keep.drop(ctx, keyEntry+e.ID.String()); err != nil {
		return err
	}
	p.step("expired")
	p.mu.Lock()
	_, _, forgotten := p.ledger.Expire(now, e.ID)
	delete(p.takes, e.ID)
	p.mu.Unlock()
	if e.Soft { // that was told when it expired softly
		p.observe(Lapsed{ID: e.ID, Event: e.Event})
	} else {
		p.ended(e, Expired)
	}
	if err := p.forgetExpired(ctx, forgotten); err != nil {
		p.cfg.Logger.Warn("ids could not be forgotten", keyError, graspsync.Printable(err.Error()))
	}
	return nil
}

// dropRefs removes the refs of data whose event did not come, or whose event was
// never served. Where nobody knows what is served, those of an event stay.
func (p *Purgatory) dropRefs(ctx context.Context, e ledger.Entry) error {
	_, known := p.relay.(Knower)
	if e.Class != ledger.Placeholder && (e.Class != ledger.PullRequest || !known) {
		return nil
	}
	var errs []error
	for _, ref := range slices.Concat(e.Repos, e.Strays) {
		errs = append(errs, p.dropRef(ctx, ref, e.ID))
	}
	return errors.Join(errs...)
}

func (p *Purgatory) dropRef(ctx context.Context, ref graspsync.RepoRef, id graspsync.EventID) error {
	dir, unlock, err := p.enter(ctx, ref, p.cfg.fixed.Timeout)
	if errors.Is(err, ErrNoRepository) {
		return nil
	}
	if err != nil {
		return err
	}
	defer unlock()
	refs, err := p.git.Refs(ctx, dir)
	if err != nil {
		return err
	}
	name := nip34.EventRef(id)
	at, exists := refs.At[name]
	if !exists {
		return nil
	}
	return p.rations.remove(ctx, ref, dir, refs, RefChange{Name: name, Old: at})
}

// dropStrays removes refs of data that was pushed to repositories which its event does
// not name, or whose event can't wait, and is not stored.
func (p *Purgatory) dropStrays(ctx context.Context, e ledger.Entry) error {
	ctx, cancel := context.WithTimeout(ctx, p.cfg.fixed.Timeout)
	defer cancel()
	refs := e.Strays
	if e.Class == ledger.Placeholder {
		unlock, err := p.naming.lockAll(ctx, slices.SortedFunc(slices.Values(e.Repos), graspsync.RepoRef.Compare)) // its event must not be released meanwhile
		if err != nil {
			return err
		}
		defer unlock()
		if has, err := p.has(ctx, e.ID); err != nil || has {
			return err
		}
		p.mu.Lock()
		waits, ok := p.ledger.Get(e.ID)
		p.mu.Unlock()
		if ok && slices.Contains(waits.Repos, e.Repos[0]) {
			return nil // it has found room by now
		}
		refs = e.Repos
	}
	var errs []error
	for _, ref := range refs {
		errs = append(errs, p.dropRef(ctx, ref, e.ID))
	}
	return errors.Join(errs...)
}

// eventOf reads the name of a pull request's ref.
func eventOf(name nip34.RefName) (graspsync.EventID, bool) { return eventIn(name.String()) }

func eventIn(name string) (graspsync.EventID, bool) {
	hex, ok := strings.CutPrefix(name, "refs/nostr/")
	if !ok {
		return graspsync.EventID{}, false
	}
	id, err := graspsync.ParseEventID(hex)
	return id, err == nil
}
