// Package refupdate moves the refs of repositories. No reader sees a partial change, not even after a
// crash.
package refupdate

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory/internal/gitops"
	"github.com/graspsync/graspsync/purgatory/internal/refplan"
	"github.com/graspsync/graspsync/state"
)

// Updater locks repositories and moves their refs. It is safe for concurrent use.
type Updater struct {
	// set by New, read-only
	cfg  Config
	keep state.Store

	mu       sync.Mutex
	journals map[graspsync.RepoRef]journal // of failed changes, which must be repaired first; guarded by mu
}

// Config are the collaborators of an [Updater].
type Config struct {
	Git gitops.Operations
	// Lock locks a repository. The error wraps Absent if the repository does not exist.
	Lock    func(ctx context.Context, ref graspsync.RepoRef) (dir string, unlock func(), err error)
	Absent  error
	Timeout time.Duration     // of the repair after a crash
	Step    func(name string) // called after each durable step
}

// New returns an Updater without journals.
func New(keep state.Store, cfg Config) *Updater {
	return &Updater{cfg: cfg, keep: keep, journals: make(map[graspsync.RepoRef]journal)}
}

const prefix = "purgatory/aligning/"

func keyOf(ref graspsync.RepoRef) string {
	sum := sha256.Sum256([]byte(ref.String()))
	return prefix + hex.EncodeToString(sum[:16])
}

// Load reads all journals, before the first release, because a release also moves refs of other
// repositories. An unreadable journal is reported and deleted.
func (u *Updater) Load(ctx context.Context, unreadable func(key string, err error)) (refs []graspsync.RepoRef, _ error) {
	for r, err := range u.keep.Each(ctx, prefix) {
		if err != nil {
			return refs, err
		}
		var j journal
		err = json.Unmarshal(r.Value, &j)
		ref, rerr := graspsync.ParseRepoRef(j.Repo)
		if err = errors.Join(err, rerr); err != nil {
			unreadable(strings.TrimPrefix(r.Key, prefix), err)
			if err := u.keep.Delete(ctx, r.Key); err != nil {
				return refs, err
			}
			continue
		}
		u.doubt(ref, j)
		refs = append(refs, ref)
	}
	return refs, nil
}

// Lock locks a repository, waiting at most patience, and repairs it if its last change of refs
// failed.
func (u *Updater) Lock(ctx context.Context, ref graspsync.RepoRef, patience time.Duration) (dir string, unlock func(), err error) {
	waiting, cancel := context.WithTimeout(ctx, patience)
	dir, unlock, err = u.cfg.Lock(waiting, ref)
	cancel()
	if errors.Is(err, u.cfg.Absent) && u.Doubts(ref) { // there is nothing left to undo
		if err := u.strikeOff(ctx, ref); err != nil {
			return "", nil, err
		}
	}
	if err != nil {
		return "", nil, fmt.Errorf("locking repository: %w", err)
	}
	mended, release := false, unlock
	defer func() {
		if !mended { // also after a panic
			release()
		}
	}()
	if err := u.Mend(ctx, ref, dir); err != nil {
		return "", nil, fmt.Errorf("mending a repository: %w", err)
	}
	mended = true
	return dir, unlock, nil
}

// MoveAll makes all changes or none, and returns the refs afterwards. It writes a journal first,
// because git may leave a partial transaction if it is killed.
func (u *Updater) MoveAll(ctx context.Context, ref graspsync.RepoRef, dir string, now refplan.Refs, changes []refplan.RefChange, head nip34.RefName,
) (refplan.Refs, error) {
	if err := u.Mend(ctx, ref, dir); err != nil {
		return now, fmt.Errorf("mending a repository: %w", err)
	}
	j := newJournal(ref, now, changes, head)
	data, err := json.Marshal(j)
	if err != nil {
		return now, fmt.Errorf("writing the journal: %w", err)
	}
	key := keyOf(ref)
	if err := u.keep.Put(ctx, state.Record{Key: key, Value: data}); err != nil {
		u.doubt(ref, journal{}) // the record may have been written
		return now, err
	}
	u.cfg.Step("journalled")
	if err := u.cfg.Git.UpdateRefs(ctx, dir, changes, head); err != nil {
		u.doubt(ref, j)
		return now, fmt.Errorf("moving refs: %w", err)
	}
	u.cfg.Step("aligned")
	if err := u.keep.Delete(ctx, key); err != nil {
		u.doubt(ref, journal{}) // the change is complete, only its record is left
		return now, err
	}
	return now.Apply(changes, head), nil
}

// MoveEach makes changes that need no journal, because any subset of them is valid: deletions of
// refs that no state decides about, or HEAD set to a branch that does not exist yet.
func (u *Updater) MoveEach(ctx context.Context, ref graspsync.RepoRef, dir string, changes []refplan.RefChange, head nip34.RefName) error {
	if err := u.Mend(ctx, ref, dir); err != nil {
		return fmt.Errorf("mending a repository: %w", err)
	}
	err := u.cfg.Git.UpdateRefs(ctx, dir, changes, head)
	if err != nil {
		u.doubt(ref, journal{})
	}
	return err
}

// journal is the record of planned ref changes. After a crash it is checked before the repository
// is read.
type journal struct {
	Repo    string          `json:"repo"`
	At      time.Time       `json:"at"`
	Was     string          `json:"was,omitempty"`  // target of HEAD before
	Head    string          `json:"head,omitempty"` // target of HEAD afterwards
	Changes []journalChange `json:"changes"`
}

type journalChange struct {
	Ref string `json:"ref"`
	Old string `json:"old,omitempty"`
	New string `json:"new,omitempty"`
}

func newJournal(ref graspsync.RepoRef, now refplan.Refs, changes []refplan.RefChange, head nip34.RefName) journal {
	j := journal{Repo: ref.String(), At: time.Now().UTC(), Was: now.Head.String(), Head: head.String()}
	for _, c := range changes {
		j.Changes = append(j.Changes, journalChange{c.Name.String(), c.Old.String(), c.New.String()})
	}
	return j
}

// undo returns the changes that revert a partial transaction, and the old target of HEAD if it was
// moved. It returns nothing if all or nothing was applied, or if another writer has moved HEAD or a
// ref since, which then has neither its old nor its new value.
func (j journal) undo(now refplan.Refs) (back []refplan.RefChange, head nip34.RefName) {
	if at := now.Head.String(); at != j.Was && (j.Head == "" || at != j.Head) {
		return nil, head
	}
	undone := 0
	for _, c := range j.Changes {
		name, err := refplan.ParseRef(c.Ref)
		before, after := parseObject(c.Old), parseObject(c.New)
		switch at := now.At[name]; {
		case err != nil || before == after && at == after:
		case at == after:
			back = append(back, refplan.RefChange{Name: name, Old: after, New: before})
		case at == before:
			undone++
		default:
			return nil, head
		}
	}
	if undone == 0 || len(back) == 0 {
		return nil, head
	}
	if to, err := refplan.ParseRef(j.Head); err == nil && now.Head == to {
		head, _ = refplan.ParseRef(j.Was)
	}
	return back, head
}

func parseObject(s string) nip34.ObjectID {
	id, err := nip34.ParseObjectID(s)
	if err != nil {
		return nip34.ObjectID{}
	}
	return id
}

// doubt sets the journal of a repository that has none.
func (u *Updater) doubt(ref graspsync.RepoRef, j journal) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.journals[ref] = j
}

func (u *Updater) journal(ref graspsync.RepoRef) (j journal, exists bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	j, exists = u.journals[ref]
	return j, exists
}

// Doubts reports whether a repository must be repaired.
func (u *Updater) Doubts(ref graspsync.RepoRef) bool {
	_, exists := u.journal(ref)
	return exists
}

// Mend removes stale locks, undoes a partial transaction, and deletes the journal. The next release
// moves the refs again.
func (u *Updater) Mend(ctx context.Context, ref graspsync.RepoRef, dir string) error {
	j, exists := u.journal(ref)
	if !exists {
		return nil
	}
	if err := u.cfg.Git.Repair(ctx, dir); err != nil {
		return err
	}
	if err := u.takeBack(ctx, dir, j); err != nil {
		return err
	}
	return u.strikeOff(ctx, ref)
}

// takeBack undoes a partial transaction. If the old objects are missing, the journal is old and its
// deletion had failed.
func (u *Updater) takeBack(ctx context.Context, dir string, j journal) error {
	refs, err := u.cfg.Git.Refs(ctx, dir)
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
		kinds, err := u.cfg.Git.Stat(ctx, dir, ids)
		if err != nil || slices.ContainsFunc(ids, func(id nip34.ObjectID) bool { return kinds[id] == 0 }) {
			return err
		}
	}
	if len(back) == 0 {
		return nil
	}
	return u.cfg.Git.UpdateRefs(ctx, dir, back, head)
}

func (u *Updater) strikeOff(ctx context.Context, ref graspsync.RepoRef) error {
	if err := u.keep.Delete(ctx, keyOf(ref)); err != nil {
		return err
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.journals, ref)
	return nil
}

// Repair repairs a repository after a crash, if it exists.
func (u *Updater) Repair(ctx context.Context, ref graspsync.RepoRef) error {
	ctx, cancel := context.WithTimeout(ctx, u.cfg.Timeout)
	defer cancel()
	_, unlock, err := u.Lock(ctx, ref, u.cfg.Timeout)
	if errors.Is(err, u.cfg.Absent) {
		return nil
	}
	if err != nil {
		return err
	}
	unlock()
	return nil
}
