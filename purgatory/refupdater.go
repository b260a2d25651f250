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

// refUpdater locks repositories and moves their refs. After a crash no reader sees a half-moved set
// of refs.
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

// enter locks a repository, and repairs it if its last change of refs has failed. It waits for the
// lock no longer than patience.
func (m *refUpdater) enter(ctx context.Context, ref graspsync.RepoRef, patience time.Duration) (dir string, unlock func(), err error) {
	waiting, cancel := context.WithTimeout(ctx, patience)
	dir, unlock, err = m.repos.Lock(waiting, ref)
	cancel()
	if errors.Is(err, ErrNoRepository) && m.doubts(ref) { // nothing is to be taken back any more
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

// move changes refs. It writes a journal first, because git that is killed in a transaction may
// leave a part of it. After a crash the repository is repaired before anybody reads it. A
// repository with a journal is repaired first, so that no journal is overwritten and no later start
// undoes a finished change.
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
		m.doubt(r.Ref, journal{}) // it may have been written
		return err
	}
	m.step("journalled")
	if err := m.git.UpdateRefs(ctx, r.dir, changes, head); err != nil {
		m.doubt(r.Ref, j)
		return fmt.Errorf("moving refs: %w", err)
	}
	m.step("aligned")
	if err := m.keep.Delete(ctx, key); err != nil {
		m.doubt(r.Ref, journal{}) // all was done: it is only to be struck off
		return err
	}
	return nil
}

// point has HEAD name a branch that does not exist yet.
func (m *refUpdater) point(ctx context.Context, r *repository, head nip34.RefName) error {
	return m.simply(ctx, r.Ref, r.dir, nil, head)
}

// remove removes refs of pull requests.
func (m *refUpdater) remove(ctx context.Context, ref graspsync.RepoRef, dir string, gone []refplan.RefChange) error {
	return m.simply(ctx, ref, dir, gone, nip34.RefName{})
}

// simply makes changes that need no journal: each is done or not, no intermediate state is wrong,
// and only locks can be left. A repository with a journal is repaired first.
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

// doubt has a repository repaired before anything else. The caller has repaired the repository before, so that the new
// journal replaces no other.
func (m *refUpdater) doubt(ref graspsync.RepoRef, j journal) { m.table.setJournal(ref, &j) }

// doubts reports whether a repository must be repaired before anything else.
func (m *refUpdater) doubts(ref graspsync.RepoRef) bool { return m.table.journal(ref) != nil }

// mend repairs a repository with a journal: it removes the leftovers of the transaction, undoes its
// done part, and deletes the journal. It is repeated until all of that has worked. The next release
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

// takeBack undoes the done part of a transaction. If the old objects are gone, the journal is of
// long ago and could not be deleted.
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

// strikeOff deletes a journal, on the disk first.
func (m *refUpdater) strikeOff(ctx context.Context, ref graspsync.RepoRef) error {
	if err := m.keep.Delete(ctx, keyAligning+hashed(ref)); err != nil {
		return err
	}
	m.table.setJournal(ref, nil)
	return nil
}

// repair mends a repository after a crash, if it exists.
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
