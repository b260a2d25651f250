package purgatory

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/purgatory/internal/hunt"
)

// recall takes in what earlier processes kept of hunting. What can't be read is
// counted and dropped: the next request writes it anew. It is called by Open, before
// anything else knows of the engine.
func (e *engine) recall(ctx context.Context) error {
	f := e.fetches
	now := time.Now()
	var domains []hunt.PastDomain
	var repos []hunt.PastRepo
	err := f.p.recallEach(ctx, keyServer, func(value []byte) (worth bool, err error) {
		d, worth, err := f.recallServer(value, now)
		if err == nil && worth {
			domains = append(domains, d)
		}
		return worth, err
	})
	if err != nil {
		return err
	}
	err = f.p.recallEach(ctx, keyHunted, func(value []byte) (worth bool, err error) {
		r, worth, err := f.recallHunted(value, now)
		if err == nil && worth {
			if r.Attempts > 0 {
				repos = append(repos, r)
			}
			if vain := f.hunted[r.Repo].vain; vain.failures > 0 {
				e.patient[r.Repo] = vain
			}
		}
		return worth, err
	})
	e.queue.Restore(now, repos, domains)
	return err
}

// recallEach reads the records under a prefix, and drops those that are of no use.
func (p *Purgatory) recallEach(ctx context.Context, prefix string, read func(value []byte) (worth bool, err error)) error {
	return p.keep.each(ctx, prefix, func(key string, value []byte) error {
		worth, err := read(value)
		if err != nil {
			p.stats.unreadable.Add(1)
			p.cfg.Logger.Error("what was kept of hunting can't be read", "key", graspsync.Printable(key), keyError, graspsync.Printable(err.Error()))
		}
		if err != nil || !worth {
			return p.keep.drop(ctx, prefix+key)
		}
		return nil
	})
}

func (f *fetches) recallServer(value []byte, now time.Time) (d hunt.PastDomain, worth bool, err error) {
	var r serverRecord
	if err := json.Unmarshal(value, &r); err != nil {
		return d, false, fmt.Errorf("%w: %w", errRecord, err)
	}
	u, err := graspsync.ParseURL("https://"+r.Server, graspsync.HTTPSchemes)
	if err != nil || u.HostPort.String() != r.Server {
		return d, false, fmt.Errorf("%w: server %s", errRecord, graspsync.Printable(r.Server))
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	a := u.HostPort
	if len(f.servers) >= f.p.cfg.fixed.MaxKept {
		f.p.stats.drop("kept")
		return d, false, nil
	}
	if b := r.Day.budget(now); b != nil {
		f.memory.hosts[a] = b
	}
	s := f.server(a)
	s.last, s.recent, s.failures = recalled(now, r.Last, 0), r.Recent, r.Failures
	s.brokenUntil = recalled(now, r.BrokenUntil, brokenMost)
	if _, worth = f.serverRecord(a, now); !worth {
		delete(f.servers, a)
	}
	return hunt.PastDomain{Domain: a, Last: s.last, Recent: s.recent, Failures: s.failures, BrokenUntil: s.brokenUntil}, worth, nil
}

func (f *fetches) recallHunted(value []byte, now time.Time) (p hunt.PastRepo, worth bool, err error) {
	var r huntedRecord
	if err := json.Unmarshal(value, &r); err != nil {
		return p, false, fmt.Errorf("%w: %w", errRecord, err)
	}
	ref, err := graspsync.ParseRepoRef(r.Repo)
	if err != nil || len(r.Lacks) > maxLacks {
		return p, false, errors.Join(errRecord, err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.hunted) >= f.p.cfg.fixed.MaxKept {
		f.p.stats.drop("kept")
		return p, false, nil
	}
	for _, d := range []struct {
		day      dayRecord
		stranger bool
	}{{r.Own, false}, {r.Strangers, true}} {
		if b := d.day.budget(now); b != nil {
			f.memory.repos[repoDay{ref, d.stranger}] = b
		}
	}
	for _, l := range r.Lacks {
		if err := f.memory.recall(ref, l, now); err != nil {
			return p, false, err
		}
	}
	h := f.repository(ref)
	h.attempts, h.next = r.Attempts, recalled(now, r.Next, f.p.cfg.Times.MaxBackoff)
	h.vain = patience{failures: max(0, min(r.Vain, mostVain)), until: recalled(now, r.VainUntil, patienceMost)}
	if _, worth = f.huntedRecord(ref, now); !worth {
		delete(f.hunted, ref)
	}
	return hunt.PastRepo{Repo: ref, Attempts: h.attempts, Next: h.next}, worth, nil
}

// mostVain is what is believed of a count on the disk: doubling has ended long before.
const mostVain = 1000

// recall remembers what a server lacked.
func (m *memory) recall(ref graspsync.RepoRef, r lackRecord, now time.Time) error {
	var u urlKey
	l := lack{whatever: r.IDs == "", times: max(0, min(r.Times, mostVain))}
	err := decodeHex(u[:], r.URL)
	if !l.whatever {
		herr := decodeHex(l.hash[:], r.IDs)
		err = errors.Join(err, herr)
	}
	if err != nil {
		return err
	}
	most := lackMost
	if l.whatever {
		most = day
	}
	l.until = recalled(now, r.Until, most)
	m.put(ref, u, l)
	return nil
}

func decodeHex(to []byte, s string) error {
	if len(s) != hex.EncodedLen(len(to)) {
		return fmt.Errorf("%w: hash of %d digits", errRecord, len(s))
	}
	if _, err := hex.Decode(to, []byte(s)); err != nil {
		return fmt.Errorf("%w: %w", errRecord, err)
	}
	return nil
}

// budget is what is left of a day; nil if it is over.
func (r dayRecord) budget(now time.Time) *dayBudget {
	since := recalled(now, r.Since, 0)
	if r.Bytes <= 0 || now.Sub(since) >= day {
		return nil
	}
	return &dayBudget{since: since, bytes: r.Bytes}
}

// recalled is a time that was read from a disk, which is not later than so long from now.
// It goes by the monotonic clock, as all else does: one that is set from here on moves
// nothing.
func recalled(now, at time.Time, most time.Duration) time.Time {
	if at.IsZero() {
		return at
	}
	return now.Add(min(at.Sub(now), most))
}
