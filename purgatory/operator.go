package purgatory

import (
	"context"
	"errors"
	"fmt"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/purgatory/internal/refplan"
)

// Refetch starts a fetch of the missing data of a repository. It skips the waits after earlier
// attempts and for broken servers, but not the limits of requests per minute. It returns before
// data arrives. The error wraps [ErrNoRepository] if the repository is not announced.
func (p *Purgatory) Refetch(ctx context.Context, ref graspsync.RepoRef) error {
	about, _, err := p.Announced(ctx, ref)
	switch {
	case err != nil:
		return fmt.Errorf("fetching %s again: %w", graspsync.Printable(ref.String()), err)
	case about == nil:
		return fmt.Errorf("fetching %s again: %w", graspsync.Printable(ref.String()), ErrNoRepository)
	}
	p.table.forgetUnfit(ref)
	p.table.touch(ref)
	p.inbox.tell(refetchRequest{ref, about.Clones})
	return nil
}

// ForgetExpired deletes the records of expired events of a repository, and revives its softly
// expired announcement. It returns the ids of the other events. Sync no longer ignores them, and
// requests them after SyncManager.RulesChanged with [graspsync.OnOperatorRequest]. The error joins
// those of the store. The other events were forgotten.
func (p *Purgatory) ForgetExpired(ctx context.Context, ref graspsync.RepoRef) (ids []graspsync.EventID, err error) {
	var errs []error
	for _, s := range p.pending.givenUp(ref) {
		id := s.ID
		if err := p.pending.again(ctx, id); err != nil {
			errs = append(errs, fmt.Errorf("forgetting that event %s waited in vain: %w", id, err))
			continue
		}
		ids = append(ids, id)
	}
	p.revive(ctx, ref)
	return ids, errors.Join(errs...)
}

// RemovePull removes the ref of a pull request or update from a repository, for a takedown, after
// the event is deleted. The next maintenance deletes the objects. A missing ref is no error.
func (p *Purgatory) RemovePull(ctx context.Context, ref graspsync.RepoRef, id graspsync.EventID) error {
	return p.dropRefs(ctx, ref, id)
}

// Drop ends the holds of all events for which unwanted returns true, deletes their data, and
// returns their number. They may be submitted again. The error joins those of single events. The
// other events were dropped, and the call may be repeated.
func (p *Purgatory) Drop(ctx context.Context, unwanted func(graspsync.Event) bool) (n int, err error) {
	var errs []error
	for _, e := range p.pending.all(nil) {
		if !unwanted(e.Signed()) {
			continue
		}
		if err := p.dismiss(ctx, e); err != nil {
			errs = append(errs, fmt.Errorf("event %s: %w", e.ID, err))
			continue
		}
		n++
	}
	return n, errors.Join(errs...)
}

func (p *Purgatory) dismiss(ctx context.Context, e refplan.Entry) error {
	if err := p.dropPull(ctx, e); err != nil {
		return err
	}
	if err := p.pending.forget(ctx, e, Displaced); err != nil {
		return err
	}
	p.pending.surveyWithout(e)
	return nil
}
