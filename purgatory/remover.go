package purgatory

import (
	"context"
	"errors"
	"fmt"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory/internal/keyed"
	"github.com/graspsync/graspsync/purgatory/internal/refplan"
)

// remover takes away what nothing needs any more: refs of events, and repositories.
type remover struct {
	cfg       *Config
	report    *report
	repos     containedRepositories
	git       containedGit
	step      func(name string)
	naming    *keyed.Locks[graspsync.RepoRef] // who looks at a repository
	findings  *findings
	sessions  *fetchSessions
	histories *histories
	mover     *mover
	quota     *prQuota
	orphans   *orphans
}

// erase is [Purgatory.RemoveRepository].
func (rm *remover) erase(ctx context.Context, ref graspsync.RepoRef) error {
	done, err := rm.naming.Lock(ctx, ref)
	if err != nil {
		return err
	}
	defer done()
	leave, free := rm.sessions.take(ref)
	if !free {
		return fmt.Errorf("removing a repository: %w", ErrInUse)
	}
	defer leave()
	if err := rm.repos.Erase(ctx, ref); err != nil {
		return fmt.Errorf("removing a repository: %w", err)
	}
	rm.step("removed")
	rm.forget(ref)
	rm.findings.forget(ref)
	return nil
}

// remove removes a repository that nobody announces: one with refs is taken out
// of service, and kept for a while. The error wraps ErrInUse if somebody is at it.
func (rm *remover) remove(ctx context.Context, ref graspsync.RepoRef) error {
	leave, free := rm.sessions.take(ref)
	if !free {
		return fmt.Errorf("removing a repository: %w", ErrInUse)
	}
	defer leave()
	err := rm.repos.Remove(ctx, ref)
	if errors.Is(err, ErrInUse) {
		waiting, cancel := context.WithTimeout(ctx, rm.cfg.fixed.Timeout/lockShare)
		defer cancel()
		if err = rm.repos.Depart(waiting, ref); err == nil {
			rm.report.drop("departed")
			rm.cfg.Logger.Info("repository out of service", keyRepo, graspsync.Printable(ref.String()))
		}
	}
	if err != nil {
		return fmt.Errorf("removing a repository: %w", err)
	}
	rm.step("removed")
	return nil
}

// hasState reports whether a repository has refs other than those of pull requests, which
// keep no announcement from expiring.
func (rm *remover) hasState(ctx context.Context, ref graspsync.RepoRef) (bool, error) {
	dir, unlock, err := rm.mover.enter(ctx, ref, rm.cfg.fixed.Timeout/lockShare)
	if errors.Is(err, ErrNoRepository) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer unlock()
	refs, err := rm.git.Refs(ctx, dir)
	return refs.HasState(), err
}

// dropRefs removes the refs of pull requests from a repository, as far as they exist.
func (rm *remover) dropRefs(ctx context.Context, ref graspsync.RepoRef, ids ...graspsync.EventID) error {
	if len(ids) == 0 {
		return nil
	}
	dir, unlock, err := rm.mover.enter(ctx, ref, rm.cfg.fixed.Timeout)
	if errors.Is(err, ErrNoRepository) {
		return nil
	}
	if err != nil {
		return err
	}
	defer unlock()
	refs, err := rm.git.Refs(ctx, dir)
	if err != nil {
		return err
	}
	var changes []refplan.RefChange
	for _, id := range ids {
		name := nip34.EventRef(id)
		if at, exists := refs.At[name]; exists {
			changes = append(changes, refplan.RefChange{Name: name, Old: at})
		}
	}
	if len(changes) == 0 {
		return nil
	}
	if err := rm.mover.remove(ctx, ref, dir, changes); err != nil {
		return fmt.Errorf("removing refs: %w", err)
	}
	return nil
}

// forget forgets what was found out about a repository that is not here any more.
func (rm *remover) forget(ref graspsync.RepoRef) {
	rm.histories.forget(ref)
	rm.quota.forget(ref)
	rm.orphans.forget(ref)
}
