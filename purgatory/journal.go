package purgatory

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/nip34"
)

// journal is what refs a repository is about to get: after a crash it is looked at
// before anybody reads from it.
type journal struct {
	Repo    string          `json:"repo"`
	At      time.Time       `json:"at"`
	Was     string          `json:"was,omitempty"`  // where HEAD pointed to
	Head    string          `json:"head,omitempty"` // where it is to
	Changes []journalChange `json:"changes"`
}

type journalChange struct {
	Ref string `json:"ref"`
	Old string `json:"old,omitempty"`
	New string `json:"new,omitempty"`
}

func newJournal(ref graspsync.RepoRef, now Refs, changes []RefChange, head nip34.RefName) journal {
	j := journal{Repo: ref.String(), At: time.Now().UTC(), Was: now.Head.String(), Head: head.String()}
	for _, c := range changes {
		j.Changes = append(j.Changes, journalChange{c.Name.String(), c.Old.String(), c.New.String()})
	}
	return j
}

// move changes refs. What is going to change is written down before, so that after a
// crash the repository is looked at before anybody reads it: git that is killed in a
// transaction may leave a part of it.
func (p *Purgatory) move(ctx context.Context, r *repository, changes []RefChange, head nip34.RefName) error {
	j := newJournal(r.ref, r.refs, changes, head)
	data, err := json.Marshal(j)
	if err != nil {
		return fmt.Errorf("writing the journal: %w", err)
	}
	key := keyAligning + hashed(r.ref)
	if err := p.keep.put(ctx, key, data); err != nil {
		return err
	}
	p.step("journalled")
	if err := p.git.Align(ctx, r.dir, changes, head); err != nil {
		p.doubt(r.ref, j)
		return fmt.Errorf("moving refs: %w", err)
	}
	p.step("aligned")
	return p.keep.drop(ctx, key)
}

// doubt notes that refs were being moved when something failed: the repository is
// mended before anything else is done about it.
func (p *Purgatory) doubt(ref graspsync.RepoRef, j journal) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.doubted[ref] = j
}

// enter locks a repository, for which it waits no longer than patience, and mends it if
// need be.
func (p *Purgatory) enter(ctx context.Context, ref graspsync.RepoRef, patience time.Duration) (dir string, unlock func(), err error) {
	waiting, cancel := context.WithTimeout(ctx, patience)
	dir, unlock, err = p.repos.Lock(waiting, ref)
	cancel()
	if errors.Is(err, ErrNoRepository) {
		p.mended(ref)
	}
	if err != nil {
		return "", nil, fmt.Errorf("locking repository: %w", err)
	}
	if err := p.mend(ctx, ref, dir); err != nil {
		unlock()
		return "", nil, fmt.Errorf("mending a repository: %w", err)
	}
	return dir, unlock, nil
}

// mend removes what was left of a transaction of refs that was not ended, and takes
// back what git had done of it. Whoever decides about the refs now moves them again.
func (p *Purgatory) mend(ctx context.Context, ref graspsync.RepoRef, dir string) error {
	p.mu.Lock()
	j, doubted := p.doubted[ref]
	p.mu.Unlock()
	if !doubted {
		return nil
	}
	if err := p.git.mend(ctx, dir); err != nil {
		return err
	}
	refs, err := p.git.Refs(ctx, dir)
	if err != nil {
		return err
	}
	if back, head := j.undo(refs); len(back) > 0 {
		if err := p.git.Align(ctx, dir, back, head); err != nil {
			return err
		}
	}
	if err := p.keep.drop(ctx, keyAligning+hashed(ref)); err != nil {
		return err
	}
	p.mended(ref)
	return nil
}

func (p *Purgatory) mended(ref graspsync.RepoRef) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.doubted, ref)
}

// undo returns what takes back a part of a transaction, and where HEAD was if it was
// moved; nothing if all of it was done, or none.
func (j journal) undo(now Refs) (back []RefChange, head nip34.RefName) {
	undone := 0
	for _, c := range j.Changes {
		name, ok := parseRef(c.Ref)
		before, after := parseObject(c.Old), parseObject(c.New)
		if !ok || before == after {
			continue
		}
		switch now.At[name] {
		case after:
			back = append(back, RefChange{Name: name, Old: after, New: before})
		case before:
			undone++
		}
	}
	if undone == 0 || len(back) == 0 {
		return nil, nip34.RefName{}
	}
	if to, ok := parseRef(j.Head); ok && now.Head == to {
		head, _ = parseRef(j.Was)
	}
	return back, head
}

func parseRef(s string) (nip34.RefName, bool) {
	name, err := nip34.ParseRefName(s)
	if err == nil {
		return name, true
	}
	if id, ok := eventIn(s); ok {
		return nip34.EventRef(id), true
	}
	return name, false
}

// parseObject reads an id; what is none is zero.
func parseObject(s string) nip34.ObjectID {
	id, err := nip34.ParseObjectID(s)
	if err != nil {
		return nip34.ObjectID{}
	}
	return id
}
