package purgatory

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory/internal/refplan"
	"github.com/graspsync/graspsync/state"
)

// refUpdater locks repositories and moves their refs. No reader sees a partial change, not even
// after a crash.
type refUpdater struct {
	// set by newRefUpdater, read-only
	cfg   *Config
	table *repoTable
	repos safeRepositories
	git   safeGit
	keep  state.Store
	step  func(name string)
}

func newRefUpdater(cfg *Config, table *repoTable, repos safeRepositories, git safeGit, keep state.Store, step func(name string)) *refUpdater {
	return &refUpdater{cfg: cfg, table: table, repos: repos, git: git, keep: keep, step: step}
}

// enter locks a repository, and repairs it if its last change of refs failed. It waits at most
// patience for the lock.
func (m *refUpdater) enter(ctx context.Context, ref graspsync.RepoRef, patience time.Duration) (dir string, unlock func(), err error) {
	waiting, cancel := context.WithTimeout(ctx, patience)
	dir, unlock, err = m.repos.Lock(waiting, ref)
	cancel()
	if errors.Is(err, ErrNoRepository) && m.doubts(ref) { // there is nothing left to undo
		if err := m.strikeOff(ctx, ref); err != nil {
			return "", nil, err
		}
	}
	if err != nil {
		return "", nil, fmt.Errorf("locking repository: %w", err)
	}
	if err := m.mend(ctx, ref, dir); err != nil {
		unlock()
		return "", nil, fmt.Errorf("mending a repository: %w", err)
	}
	return dir, unlock, nil
}

// move changes refs. It writes a journal first, because git may leave a partial transaction if it
// is killed. If the repository has an older journal, move repairs it first, so that no journal is
// overwritten and no later start undoes a finished change.
func (m *refUpdater) move(ctx context.Context, r *repository, changes []refplan.RefChange, head nip34.RefName) error {
	if err := m.mend(ctx, r.Ref, r.dir); err != nil {
		return fmt.Errorf("mending a repository: %w", err)
	}
	j := newJournal(r.Ref, r.Refs, changes, head)
	data, err := json.Marshal(j)
	if err != nil {
		return fmt.Errorf("writing the journal: %w", err)
	}
	key := keyAligning + hashed(r.Ref)
	if err := m.keep.Put(ctx, state.Record{Key: key, Value: data}); err != nil {
		m.doubt(r.Ref, journal{}) // the record may have been written
		return err
	}
	m.step("journalled")
	if err := m.git.UpdateRefs(ctx, r.dir, changes, head); err != nil {
		m.doubt(r.Ref, j)
		return fmt.Errorf("moving refs: %w", err)
	}
	m.step("aligned")
	if err := m.keep.Delete(ctx, key); err != nil {
		m.doubt(r.Ref, journal{}) // the change is complete, only its record is left
		return err
	}
	return nil
}

// point sets HEAD to a branch that does not exist yet.
func (m *refUpdater) point(ctx context.Context, r *repository, head nip34.RefName) error {
	return m.simply(ctx, r.Ref, r.dir, nil, head)
}

func (m *refUpdater) remove(ctx context.Context, ref graspsync.RepoRef, dir string, gone []refplan.RefChange) error {
	return m.simply(ctx, ref, dir, gone, nip34.RefName{})
}

// simply makes changes that need no journal, because any subset of them is valid. A crash leaves at
// most stale locks. A repository with a journal is repaired first.
func (m *refUpdater) simply(ctx context.Context, ref graspsync.RepoRef, dir string, changes []refplan.RefChange, head nip34.RefName) error {
	if err := m.mend(ctx, ref, dir); err != nil {
		return fmt.Errorf("mending a repository: %w", err)
	}
	err := m.git.UpdateRefs(ctx, dir, changes, head)
	if err != nil {
		m.doubt(ref, journal{})
	}
	return err
}

// doubt sets the journal of a repository, which is then repaired before any other use. The caller
// has repaired the repository before, so no other journal is lost.
func (m *refUpdater) doubt(ref graspsync.RepoRef, j journal) { m.table.setJournal(ref, &j) }

// doubts reports whether a repository has a journal and must be repaired.
func (m *refUpdater) doubts(ref graspsync.RepoRef) bool { return m.table.journal(ref) != nil }

// mend repairs a repository with a journal. It removes stale locks, undoes a partial transaction,
// and deletes the journal. After a failure the next call repeats all of that. The next release
// moves the refs again.
func (m *refUpdater) mend(ctx context.Context, ref graspsync.RepoRef, dir string) error {
	j := m.table.journal(ref)
	if j == nil {
		return nil
	}
	if err := m.git.Repair(ctx, dir); err != nil {
		return err
	}
	if err := m.takeBack(ctx, dir, *j); err != nil {
		return err
	}
	return m.strikeOff(ctx, ref)
}

// takeBack undoes a partial transaction. If the old objects no longer exist, the journal is old and
// its deletion had failed.
func (m *refUpdater) takeBack(ctx context.Context, dir string, j journal) error {
	refs, err := m.git.Refs(ctx, dir)
	if err != nil {
		return err
	}
	back, head := j.undo(refs)
	var ids []nip34.ObjectID
	for _, c := range back {
		if !c.New.IsZero() {
			ids = append(ids, c.New)
		}
	}
	if len(ids) > 0 {
		if here, err := m.git.has(ctx, dir, ids); err != nil || len(here) < len(ids) {
			return err
		}
	}
	if len(back) == 0 {
		return nil
	}
	return m.git.UpdateRefs(ctx, dir, back, head)
}

// strikeOff deletes a journal, first on the disk and then in memory.
func (m *refUpdater) strikeOff(ctx context.Context, ref graspsync.RepoRef) error {
	if err := m.keep.Delete(ctx, keyAligning+hashed(ref)); err != nil {
		return err
	}
	m.table.setJournal(ref, nil)
	return nil
}

// repair repairs a repository after a crash, if it exists.
func (m *refUpdater) repair(ctx context.Context, ref graspsync.RepoRef) error {
	ctx, cancel := context.WithTimeout(ctx, m.cfg.fixed.Timeout)
	defer cancel()
	_, unlock, err := m.enter(ctx, ref, m.cfg.fixed.Timeout)
	if errors.Is(err, ErrNoRepository) {
		return nil
	}
	if err != nil {
		return err
	}
	unlock()
	return nil
}
