package purgatory

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/purgatory/internal/ledger"
	"github.com/graspsync/graspsync/state"
)

// remembered is what is remembered, on the disk too, of what waited: which events have done so
// in vain, so that sync does not bring them again, and by which versions owners took
// repositories from us.
type remembered struct {
	cfg     *Config
	report  *report
	keep    state.Store
	step    func(name string)
	waiting *waiting
}

// departure is what is kept of the version by which an owner took a repository from us. The
// names of its JSON fields never change their meaning.
type departure struct {
	Repo      string          `json:"repo"`
	CreatedAt nostr.Timestamp `json:"created_at"`
	ID        string          `json:"id"`
	Until     time.Time       `json:"until"`
}

// load reads what was kept.
func (r *remembered) load(ctx context.Context) error {
	now := time.Now()
	var told []EventState
	err := readEach(ctx, r.keep, keyExpired, func(key string, value []byte) error {
		id, err := graspsync.ParseEventID(key)
		v, verr := decodeVain(value)
		if err = errors.Join(err, verr); err != nil {
			r.report.unreadable.Add(1)
			return r.keep.Delete(ctx, keyExpired+key) // to forget it costs little
		}
		if n, is := v.ending(id, now); is {
			told = append(told, n)
		}
		return r.forgetExpired(ctx, r.waiting.rememberExpired(now, id, v.Until))
	})
	r.report.restored(told)
	return err
}

// noteExpired writes down that an event waited in vain.
func (r *remembered) noteExpired(ctx context.Context, now time.Time, e ledger.Entry) error {
	data, err := encodeVain(e, now, now.Add(r.cfg.fixed.Remember))
	if err == nil {
		err = r.keep.Put(ctx, state.Record{Key: keyExpired + e.ID.String(), Value: data})
	}
	switch {
	case errors.Is(err, state.ErrFull): // else nothing would ever make room
		r.report.drop("remembered")
	case err != nil:
		return err
	default:
		r.step("remembered")
	}
	return nil
}

// noteLeft remembers the version of a relative that waits no longer and is not stored: nobody
// brings back one by which its repository was ours.
func (r *remembered) noteLeft(ctx context.Context, e ledger.Entry) error {
	now := time.Now()
	until, ref := now.Add(r.cfg.fixed.Remember), e.Repos[0]
	data, err := json.Marshal(departure{ref.String(), e.Version.CreatedAt, e.Version.ID.String(), until.Round(0).UTC()})
	if err == nil {
		err = r.keep.Put(ctx, state.Record{Key: keyLeft + hashed(ref), Value: data})
	}
	switch {
	case errors.Is(err, state.ErrFull): // else nothing would ever make room
		r.report.drop("remembered")
	case err != nil:
		return err
	}
	if err := r.forgetLeft(ctx, r.waiting.leave(now, ref, e.Version, until)); err != nil {
		r.cfg.Logger.Warn("departures could not be forgotten", keyError, graspsync.Printable(err.Error()))
	}
	return nil
}

// forgetLeft drops departures that are not remembered any more.
func (r *remembered) forgetLeft(ctx context.Context, refs []graspsync.RepoRef) error {
	if len(refs) == 0 {
		return nil
	}
	keys := make([]string, len(refs))
	for i, ref := range refs {
		keys[i] = keyLeft + hashed(ref)
	}
	return r.keep.Delete(ctx, keys...)
}

// loadLeft reads the departures that were kept.
func (r *remembered) loadLeft(ctx context.Context, now time.Time) error {
	return readEach(ctx, r.keep, keyLeft, func(key string, value []byte) error {
		var d departure
		err := json.Unmarshal(value, &d)
		ref, rerr := graspsync.ParseRepoRef(d.Repo)
		id, ierr := graspsync.ParseEventID(d.ID)
		if err = errors.Join(err, rerr, ierr); err != nil || hashed(ref) != key {
			r.report.unreadable.Add(1)
			return r.keep.Delete(ctx, keyLeft+key) // to forget it costs little
		}
		return r.forgetLeft(ctx, r.waiting.leave(now, ref, graspsync.Stamp{CreatedAt: d.CreatedAt, ID: id}, d.Until))
	})
}

// forgetExpired drops ids that are not remembered any more.
func (r *remembered) forgetExpired(ctx context.Context, ids []graspsync.EventID) error {
	if len(ids) == 0 {
		return nil
	}
	keys := make([]string, len(ids))
	for i, id := range ids {
		keys[i] = keyExpired + id.String()
	}
	return r.keep.Delete(ctx, keys...)
}
