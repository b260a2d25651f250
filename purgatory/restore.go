package purgatory

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/graspsync/graspsync/filters"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory/internal/ledger"
)

// load reads what waits. What can't be read is left where it is, counted and logged:
// the rest must not wait for it.
func (p *Purgatory) load(ctx context.Context) error {
	now := time.Now()
	err := p.keep.each(ctx, keyEntry, func(key string, value []byte) error {
		id, err := filters.ParseEventID(key)
		var e ledger.Entry
		if err == nil {
			e, err = decode(id, value)
		}
		if err != nil {
			p.stats.unreadable.Add(1)
			p.cfg.Logger.Error("what waited can't be read", "key", printable(key), keyError, printable(err.Error()))
			return nil
		}
		for _, old := range p.ledger.Restore(now, e) {
			if err := p.keep.drop(ctx, keyEntry+old.ID.String()); err != nil {
				return err
			}
		}
		if e.Class == ledger.Announcement && !e.Soft {
			p.touched[e.Repos[0]] = struct{}{} // its repository may have to be made
		}
		return nil
	})
	if err != nil {
		return err
	}
	return p.keep.each(ctx, keyExpired, func(key string, value []byte) error {
		var until time.Time
		id, err := filters.ParseEventID(key)
		if err = errors.Join(err, until.UnmarshalText(value)); err != nil {
			p.stats.unreadable.Add(1)
			return p.keep.drop(ctx, keyExpired+key) // to forget it costs little
		}
		return p.forgetExpired(ctx, p.ledger.RememberExpired(now, id, until))
	})
}

// forgetExpired drops ids that are not remembered any more.
func (p *Purgatory) forgetExpired(ctx context.Context, ids []filters.EventID) error {
	var errs []error
	for _, id := range ids {
		errs = append(errs, p.keep.drop(ctx, keyExpired+id.String()))
	}
	return errors.Join(errs...)
}

// recover repairs every repository whose refs were being moved when we stopped. One
// that can't be repaired keeps its journal, and does not keep the others from being
// served.
func (p *Purgatory) recover(ctx context.Context) error {
	return p.keep.each(ctx, keyAligning, func(key string, value []byte) error {
		var j journal
		err := json.Unmarshal(value, &j)
		ref, rerr := filters.ParseRepoRef(j.Repo)
		if err = errors.Join(err, rerr); err != nil {
			p.stats.unreadable.Add(1)
			p.cfg.Logger.Error("a journal can't be read", "key", printable(key), keyError, printable(err.Error()))
			return p.keep.drop(ctx, keyAligning+key)
		}
		if err = p.repair(ctx, ref, j); err == nil {
			p.touch(ref)
			_, err = p.settle(ctx, ref.Identifier, causes{late: true})
		}
		if err == nil {
			return p.keep.drop(ctx, keyAligning+key)
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		p.cfg.Logger.Error("a repository could not be repaired", keyRepo, printable(ref.String()), keyError, printable(err.Error()))
		return nil
	})
}

func (p *Purgatory) touch(ref filters.RepoRef) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.touched[ref] = struct{}{}
}

// repair removes what a crash left in a repository, if there is one, and takes back
// what git did of a transaction that it did not end. Whoever decides about the refs
// now moves them again.
func (p *Purgatory) repair(ctx context.Context, ref filters.RepoRef, j journal) error {
	ctx, cancel := context.WithTimeout(ctx, p.cfg.Timeout)
	defer cancel()
	dir, unlock, err := p.repos.Lock(ctx, ref)
	if errors.Is(err, ErrNoRepository) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("locking repository: %w", err)
	}
	defer unlock()
	tidy := p.git.Tidy
	if m, ok := p.git.(Mender); ok {
		tidy = m.Mend
	}
	if err := tidy(ctx, dir); err != nil {
		return err
	}
	refs, err := p.git.Refs(ctx, dir)
	if err != nil {
		return err
	}
	back := j.undo(refs)
	if len(back) == 0 {
		return nil
	}
	return p.git.Align(ctx, dir, back, nip34.RefName{})
}

// undo returns what takes back a part of a transaction; nothing if all of it was
// done, or none.
func (j journal) undo(now Refs) (back []RefChange) {
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
	if undone == 0 {
		return nil
	}
	return back
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
