package purgatory

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/purgatory/internal/keyed"
	"github.com/graspsync/graspsync/purgatory/internal/ledger"
)

// expirer ends the waiting of what was waited for in vain.
type expirer struct {
	cfg      *Config
	naming   *keyed.Locks[graspsync.RepoRef] // who looks at a repository
	findings *findings
	waiting  *waiting
	pins     *pins
	served   *servedPulls
	entries  *entries
	reader   *reader
	remover  *remover
}

// expire ends the waiting of an entry whose time is over, on the disk first. What is
// released, deleted or extended meanwhile is left alone.
func (x *expirer) expire(ctx context.Context, id graspsync.EventID) error {
	ctx, cancel := context.WithTimeout(ctx, x.cfg.fixed.Timeout)
	defer cancel()
	e, due := x.entries.overdue(id)
	if !due {
		return nil // or it is being released: it is due again soon
	}
	defer x.pins.notEnding(id)
	if e.Class == ledger.Announcement && !e.Soft {
		return x.expireSoftly(ctx, e)
	}
	has, err := x.reader.stored.has(ctx, id)
	if err != nil {
		return err
	}
	if has || x.served.has(id) { // before a crash, or it waited on for another repository
		return x.entries.forget(ctx, e, Released)
	}
	if err := x.dropRefs(ctx, e); err != nil {
		return err
	}
	return x.entries.expireForGood(ctx, e)
}

// expireSoftly removes the repository of an announcement, unless a push or a fetch is
// using it, or has brought data to it that a state names. What pull requests have brought
// does not count: anybody may write these.
func (x *expirer) expireSoftly(ctx context.Context, e ledger.Entry) error {
	ref := e.Repos[0]
	served, err := x.reader.accepted(ctx, ref) // we were killed before it was struck off
	if err != nil {
		return err
	}
	has := served
	if !served {
		has, err = x.remover.hasState(ctx, ref)
	}
	if err != nil {
		return err
	}
	if has {
		x.findings.touch(ref) // it is released for that
		return fmt.Errorf("removing a repository: it is served, or has branches or tags: %w", ErrInUse)
	}
	if err := x.remover.remove(ctx, ref); err != nil {
		return err
	}
	return x.entries.soften(ctx, e)
}

// dropRefs removes the refs of data whose event did not come, or whose event was
// never served.
func (x *expirer) dropRefs(ctx context.Context, e ledger.Entry) error {
	if e.Class != ledger.Placeholder && e.Class != ledger.PullRequest {
		return nil
	}
	var errs []error
	for _, ref := range slices.Concat(e.Repos, e.Strays) {
		errs = append(errs, x.remover.dropRef(ctx, ref, e.ID))
	}
	return errors.Join(errs...)
}

// dropStrays removes refs of data that was pushed to repositories which its event does
// not name, or whose event can't wait, and is not stored.
func (x *expirer) dropStrays(ctx context.Context, e ledger.Entry) error {
	ctx, cancel := context.WithTimeout(ctx, x.cfg.fixed.Timeout)
	defer cancel()
	refs := e.Strays
	if e.Class == ledger.Placeholder {
		unlock, err := x.naming.LockAll(ctx, slices.SortedFunc(slices.Values(e.Repos), graspsync.RepoRef.Compare)) // its event must not be released meanwhile
		if err != nil {
			return err
		}
		defer unlock()
		if has, err := x.reader.stored.has(ctx, e.ID); err != nil || has {
			return err
		}
		waits, ok := x.waiting.get(e.ID)
		if ok && slices.Contains(waits.Repos, e.Repos[0]) {
			return nil // it has found room by now
		}
		refs = e.Repos
	}
	var errs []error
	for _, ref := range refs {
		errs = append(errs, x.remover.dropRef(ctx, ref, e.ID))
	}
	return errors.Join(errs...)
}
