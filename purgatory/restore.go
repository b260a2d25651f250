package purgatory

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/purgatory/internal/ledger"
)

// load reads what waits. What can't be read is left where it is, counted and logged:
// the rest must not wait for it.
func (p *Purgatory) load(ctx context.Context) error {
	now := time.Now()
	if err := p.loadLeft(ctx, now); err != nil {
		return err
	}
	err := p.keep.each(ctx, keyEntry, func(key string, value []byte) error {
		id, err := graspsync.ParseEventID(key)
		var e ledger.Entry
		if err == nil {
			e, err = decode(id, value)
		}
		if err != nil {
			p.stats.unreadable.Add(1)
			p.cfg.Logger.Error("what waited can't be read", "key", graspsync.Printable(key), keyError, graspsync.Printable(err.Error()))
			return nil
		}
		if p.ledger.HasLeft(now, e) { // we were killed before it was struck off
			return p.keep.drop(ctx, keyEntry+key)
		}
		for _, old := range p.ledger.Restore(now, e) {
			if err := p.keep.drop(ctx, keyEntry+old.ID.String()); err != nil {
				return err
			}
		}
		if e.Class == ledger.Announcement && !e.Soft {
			p.touch(e.Repos[0]) // its repository may have to be made
		}
		return nil
	})
	if err != nil {
		return err
	}
	return p.keep.each(ctx, keyExpired, func(key string, value []byte) error {
		var until time.Time
		id, err := graspsync.ParseEventID(key)
		if err = errors.Join(err, until.UnmarshalText(value)); err != nil {
			p.stats.unreadable.Add(1)
			return p.keep.drop(ctx, keyExpired+key) // to forget it costs little
		}
		return p.forgetExpired(ctx, p.ledger.RememberExpired(now, id, until))
	})
}

// forgetExpired drops ids that are not remembered any more.
func (p *Purgatory) forgetExpired(ctx context.Context, ids []graspsync.EventID) error {
	var errs []error
	for _, id := range ids {
		errs = append(errs, p.keep.drop(ctx, keyExpired+id.String()))
	}
	return errors.Join(errs...)
}

// recover repairs every repository whose refs were being moved when we stopped, and
// has them moved again by whoever decides about them now. One that can't be repaired
// keeps its journal, is mended before anything else is done about it, and does not
// keep the others from being served.
func (p *Purgatory) recover(ctx context.Context) error {
	return p.keep.each(ctx, keyAligning, func(key string, value []byte) error {
		var j journal
		err := json.Unmarshal(value, &j)
		ref, rerr := graspsync.ParseRepoRef(j.Repo)
		if err = errors.Join(err, rerr); err != nil {
			p.stats.unreadable.Add(1)
			p.cfg.Logger.Error("a journal can't be read", "key", graspsync.Printable(key), keyError, graspsync.Printable(err.Error()))
			return p.keep.drop(ctx, keyAligning+key)
		}
		p.doubt(ref, j)
		p.touch(ref)
		if err = p.repair(ctx, ref); err == nil {
			_, err = p.settle(ctx, ref, causes{late: true}, p.cfg.fixed.Timeout)
		}
		if err == nil {
			return p.keep.drop(ctx, keyAligning+key)
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		p.cfg.Logger.Error("a repository could not be repaired", keyRepo, graspsync.Printable(ref.String()), keyError, graspsync.Printable(err.Error()))
		return nil
	})
}

// touch has a repository looked at, by the next look at its identifier.
func (p *Purgatory) touch(ref graspsync.RepoRef) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.touchNow(ref)
}

// touchNow is touch with mu held.
func (p *Purgatory) touchNow(ref graspsync.RepoRef) {
	if p.touched[ref.Identifier] == nil {
		p.touched[ref.Identifier] = make(map[graspsync.RepoRef]uint64)
	}
	p.touches++
	p.touched[ref.Identifier][ref] = p.touches
}

// untouch forgets that a repository was touched, unless it was again. mu is held.
func (p *Purgatory) untouch(ref graspsync.RepoRef, number uint64) {
	p.lookedAt(ref, number)
	if of := p.touched[ref.Identifier]; of[ref] == number {
		delete(of, ref)
		if len(of) == 0 {
			delete(p.touched, ref.Identifier)
		}
	}
}

// repair mends a repository that we were killed in, if there is one.
func (p *Purgatory) repair(ctx context.Context, ref graspsync.RepoRef) error {
	ctx, cancel := context.WithTimeout(ctx, p.cfg.fixed.Timeout)
	defer cancel()
	_, unlock, err := p.enter(ctx, ref, p.cfg.fixed.Timeout)
	if errors.Is(err, ErrNoRepository) {
		return p.keep.drop(ctx, keyAligning+hashed(ref))
	}
	if err != nil {
		return err
	}
	unlock()
	return nil
}
