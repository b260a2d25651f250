package purgatory

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/backoff"
	"github.com/graspsync/graspsync/purgatory/internal/refplan"
	"github.com/graspsync/graspsync/purgatory/internal/servers"
	"github.com/graspsync/graspsync/purgatory/internal/syncqueue"
	"github.com/graspsync/graspsync/purgatory/internal/workqueue"
)

const (
	expiryPause = 10 * time.Second
	expiryMost  = time.Hour
)

func newSyncQueue(cfg *Config, seed uint64) *syncqueue.SyncQueue {
	return syncqueue.New(syncqueue.Config{
		UserDelay: cfg.fixed.UserDelay, SyncDelay: cfg.fixed.SyncDelay, Backoff: cfg.Times.Backoff, MaxBackoff: cfg.fixed.MaxBackoff,
		BrokenMin: servers.BrokenMin, BrokenMax: servers.BrokenMax,
		MaxFetchJobs: cfg.Limits.MaxFetchJobs, MaxRepos: 2 * cfg.Limits.MaxEntries, MaxDomains: 10_000,
		DefaultLimit: cfg.Limits.DomainLimit, Limits: cfg.Limits.DomainLimits, Seed: seed,
	})
}

// loop starts fetches and ends holds when they are due.
func (p *Purgatory) loop(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.wake:
		case <-timer.C:
		}
		now := time.Now()
		for _, e := range p.pending.due(now) {
			p.wg.Go(func() { p.endHold(ctx, e) })
		}
		p.stepQueue(ctx, now, syncqueue.Tick{Received: p.fetches.received()})
		timer.Reset(time.Until(p.nextWake(now)))
	}
}

func (p *Purgatory) nextWake(now time.Time) time.Time {
	next := now.Add(time.Hour)
	p.mu.Lock()
	if t, ok := p.queue.NextWake(); ok {
		next = backoff.Earlier(next, t)
	}
	p.mu.Unlock()
	if t, ok := p.pending.nextDue(); ok {
		next = backoff.Earlier(next, t)
	}
	return backoff.Later(next, now.Add(10*time.Millisecond))
}

func ring(wake chan<- struct{}) {
	select {
	case wake <- struct{}{}:
	default:
	}
}

// owes reports whether a server of a repository waits for its turn since a time.
func (p *Purgatory) owes(now time.Time, ref graspsync.RepoRef, since time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.queue.Owes(now, ref, since)
}

func (p *Purgatory) about(ref graspsync.RepoRef) syncqueue.About {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.queue.About(time.Now(), ref)
}

// runJob surveys or releases. It may be called for several jobs concurrently.
func (p *Purgatory) runJob(ctx context.Context, ref graspsync.RepoRef, why refplan.Reasons, failures int) (failed bool) {
	var err error
	if workqueue.IsSurvey(ref) {
		var refs []graspsync.RepoRef
		refs, err = p.survey(ctx, ref.Identifier, why)
		for _, ref := range refs {
			p.jobs.Want(ref, why)
		}
	} else {
		var done released
		done, err = p.release(ctx, ref, why, p.releaseTime(failures))
		if err != nil && ctx.Err() == nil && !tookLong(err) {
			p.table.failed(ref)
		}
		p.afterRelease(ctx, ref, done, why)
	}
	failed = err != nil && ctx.Err() == nil
	if failed && errors.Is(err, errLocked) {
		p.cfg.Logger.Debug(releaseFailed, keyRepo, graspsync.Printable(ref.String()), keyError, graspsync.Printable(err.Error()))
	} else if failed {
		p.report.fault(ref.String(), releaseFailed, err)
	}
	return failed
}

type released struct {
	need   refplan.Need
	whole  bool // nothing is missing any more
	gained bool // objects arrived
}

func (p *Purgatory) afterRelease(ctx context.Context, ref graspsync.RepoRef, done released, why refplan.Reasons) {
	if done.gained {
		p.jobs.Survey(ref.Identifier, refplan.Reasons{Gained: map[graspsync.RepoRef]bool{ref: true}})
	}
	if done.whole {
		p.servers.Complete(ref)
		p.stepQueue(ctx, time.Now(), syncqueue.Whole{Repo: ref})
	}
	if len(done.need.IDs) > 0 {
		p.queueFetch(ctx, ref, done.need, why)
	}
	ring(p.wake)
}

// faultFor is the time for which a failure of our store, git or disk extends holds. It exceeds the
// wait for the next release. An event older than faultMost expires as usual.
const (
	faultFor  = 2 * workqueue.RetryMost
	faultMost = 7 * 24 * time.Hour
)

// mayBeComplete reports whether an event may be complete, and only our own store, git or disk fails.
func (p *Purgatory) mayBeComplete(now time.Time, entry refplan.Entry) bool {
	return now.Sub(entry.Seen) < faultMost && slices.ContainsFunc(entry.Repos, func(ref graspsync.RepoRef) bool {
		return p.jobs.Fails(graspsync.RepoRef{Identifier: ref.Identifier}) || p.table.get(ref).fault.After(now.Add(-faultFor-p.cfg.fixed.MaxBackoff))
	})
}

// owed reports whether a server of an event was not asked yet because of other requests.
func (p *Purgatory) owed(now time.Time, entry refplan.Entry) bool {
	return slices.ContainsFunc(p.pending.needing(entry), func(ref graspsync.RepoRef) bool { return p.owes(now, ref, entry.Seen) })
}
