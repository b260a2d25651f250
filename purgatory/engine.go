package purgatory

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/backoff"
	"github.com/graspsync/graspsync/limit"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory/internal/refplan"
	"github.com/graspsync/graspsync/purgatory/internal/servers"
	"github.com/graspsync/graspsync/purgatory/internal/syncqueue"
	"github.com/graspsync/graspsync/purgatory/internal/workqueue"
)

// engine is the goroutine that decides when to survey, release, fetch and expire.
type engine struct {
	mu    sync.Mutex
	queue *syncqueue.SyncQueue // changed by the engine; guarded by mu
	wg    sync.WaitGroup
	jobs  *workqueue.Queue // a jobRequest comes back as a jobTurn when a slot is free
	p     *Purgatory
}

const (
	expiryPause = 10 * time.Second
	expiryMost  = time.Hour
	// maxLeaving is the maximum number of unhandled authors of deletions, and of deleted pull
	// requests.
	maxLeaving = 10_000
)

func newEngine(p *Purgatory, seed uint64) *engine {
	return &engine{
		p: p,
		queue: syncqueue.New(syncqueue.Config{
			UserDelay: p.cfg.fixed.UserDelay, SyncDelay: p.cfg.fixed.SyncDelay, Backoff: p.cfg.Times.Backoff, MaxBackoff: p.cfg.fixed.MaxBackoff,
			BrokenMin: servers.BrokenMin, BrokenMax: servers.BrokenMax,
			MaxFetchJobs: p.cfg.Limits.MaxFetchJobs, MaxRepos: 2 * p.cfg.Limits.MaxEntries, MaxDomains: 10_000,
			DefaultLimit: p.cfg.Limits.DomainLimit, Limits: p.cfg.Limits.DomainLimits, Seed: seed,
		}),
		jobs: workqueue.New(p.cfg.fixed.MaxReleases, func(ref graspsync.RepoRef, slot *limit.Slot) { p.inbox.put(jobTurn{ref, slot}) }),
	}
}

func (e *engine) resume(ctx context.Context) {
	for _, entry := range e.p.pending.all(nil) {
		for _, msg := range newsOf(entry) {
			msg.handle(ctx, e)
		}
	}
	for _, ref := range e.p.table.touched() {
		e.jobs.Want(ref, refplan.Reasons{})
	}
}

// newsOf returns the jobs for a new event.
func newsOf(entry refplan.Entry) (all []jobRequest) {
	first := entry.Repos[0]
	owners := map[graspsync.PubKey]bool{entry.Author: entry.ByUser}
	fresh := map[graspsync.EventID]bool{entry.ID: entry.ByUser}
	switch {
	case entry.Soft:
	case entry.Class == refplan.State:
		all = append(all, jobRequest{workqueue.Survey(first.Identifier), refplan.Reasons{Fresh: fresh}})
	case entry.Class == refplan.PullRequest:
		for _, ref := range entry.Repos {
			all = append(all, jobRequest{ref, refplan.Reasons{Fresh: fresh}})
		}
	case entry.Class == refplan.Announcement: // it may name servers for events that are held already
		all = append(all, jobRequest{first, refplan.Reasons{Owners: owners}}, jobRequest{workqueue.Survey(first.Identifier), refplan.Reasons{Owners: owners}})
	default:
		why := refplan.Reasons{Owners: owners}
		if entry.For == entry.Author { // the process may have been killed before the release
			why.Left = map[graspsync.RepoRef]bool{first: true}
		}
		all = append(all, jobRequest{workqueue.Survey(first.Identifier), why})
	}
	return all
}

func (e *engine) survey(identifier string, why refplan.Reasons) {
	e.jobs.Want(workqueue.Survey(identifier), why)
}

func (e *engine) loop(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-e.p.inbox.wake:
			items, lost := e.p.inbox.take()
			for _, msg := range items {
				msg.handle(ctx, e)
			}
			if lost {
				e.resume(ctx)
			}
		case <-timer.C:
		}
		now := time.Now()
		e.expire(ctx, now)
		e.jobs.Retry(now)
		e.stepQueue(ctx, now, syncqueue.Tick{Received: e.p.fetches.received()})
		e.p.report.queue.Store(int64(e.queue.Len()))
		timer.Reset(time.Until(e.nextWake(now)))
	}
}

func (e *engine) nextWake(now time.Time) time.Time {
	next := now.Add(time.Hour)
	consider := func(t time.Time) {
		if t.Before(next) {
			next = t
		}
	}
	if t, ok := e.queue.NextWake(); ok {
		consider(t)
	}
	if t, ok := e.p.pending.nextDue(); ok {
		consider(t)
	}
	if at := e.jobs.NextRetry(); !at.IsZero() {
		consider(at)
	}
	if least := now.Add(10 * time.Millisecond); next.Before(least) {
		return least
	}
	return next
}

func (msg jobRequest) handle(_ context.Context, e *engine) {
	if !workqueue.IsSurvey(msg.ref) {
		e.p.table.touch(msg.ref)
	}
	e.jobs.Want(msg.ref, msg.why)
}

// about returns the state of a repository in the queue.
func (e *engine) about(now time.Time, ref graspsync.RepoRef) syncqueue.About {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.queue.About(now, ref)
}

// owes reports whether a server of a repository waits for its turn since a time.
func (e *engine) owes(now time.Time, ref graspsync.RepoRef, since time.Time) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.queue.Owes(now, ref, since)
}

func (x *request) handle(ctx context.Context, e *engine) {
	if x.fault != nil {
		e.p.table.failed(x.Repo)
	}
	e.stepQueue(ctx, time.Now(), x.fetched)
	server := x.URL.HostPort()
	failures, until := e.queue.Broken(server)
	e.p.servers.Broke(server, backoff.Streak{Times: failures, Until: until})
}

func (msg storedEvent) handle(ctx context.Context, e *engine) {
	author := msg.event.PubKey
	_, waits := e.p.pending.get(msg.event.ID)
	var affected []refplan.Entry
	if msg.event.Kind == graspsync.KindDeletion || msg.event.Kind == kindVanish {
		affected = e.p.pending.ofAuthor(author)
	}
	for _, w := range affected {
		why := refplan.Reasons{Deleters: map[graspsync.PubKey]bool{author: true}}
		for _, ref := range w.Repos {
			if e.survey(ref.Identifier, why); w.Class == refplan.PullRequest {
				e.jobs.Want(ref, why)
			}
		}
	}
	if !waits {
		e.arrivedPull(ctx, msg.event)
	}
	e.left(msg.event)
	if a, err := nip34.ParseAnnouncement(msg.event); err == nil {
		why := refplan.Reasons{Owners: map[graspsync.PubKey]bool{a.Ref.Owner: false}, Left: map[graspsync.RepoRef]bool{a.Ref: true}}
		e.survey(a.Ref.Identifier, why)
		e.jobs.Want(a.Ref, why) // it may not list this service
	}
}

func (msg refetchRequest) handle(ctx context.Context, e *engine) {
	e.p.servers.Renew(msg.ref)
	e.p.table.setHopeless(msg.ref, false)
	e.stepQueue(ctx, time.Now(), syncqueue.Renew{Repo: msg.ref, URLs: msg.urls})
	e.jobs.Want(msg.ref, refplan.Reasons{Check: true, Owners: map[graspsync.PubKey]bool{msg.ref.Owner: false}})
}

func (msg jobTurn) handle(ctx context.Context, e *engine) {
	why, failures := e.jobs.Begin(msg.ref, msg.place)
	e.wg.Go(func() {
		var end jobEnd
		if workqueue.IsSurvey(msg.ref) {
			end.refs, end.err = e.p.survey(ctx, msg.ref.Identifier, why)
		} else {
			end, end.err = e.p.release(ctx, msg.ref, why, e.p.releaseTime(failures))
		}
		end.ref, end.why = msg.ref, why
		e.p.inbox.put(end)
	})
}

func (msg jobEnd) handle(ctx context.Context, e *engine) {
	now := time.Now()
	failed := msg.err != nil && ctx.Err() == nil
	if e.jobs.End(msg.ref, now, failed, msg.why); failed && errors.Is(msg.err, errLocked) {
		e.p.cfg.Logger.Debug(releaseFailed, keyRepo, graspsync.Printable(msg.ref.String()), keyError, graspsync.Printable(msg.err.Error()))
	} else if failed {
		e.p.report.fault(msg.ref.String(), releaseFailed, msg.err)
	}
	for _, ref := range msg.refs {
		e.jobs.Want(ref, msg.why)
	}
	if workqueue.IsSurvey(msg.ref) {
		return
	}
	if failed && !tookLong(msg.err) {
		e.p.table.failed(msg.ref)
	}
	if msg.gained {
		e.survey(msg.ref.Identifier, refplan.Reasons{Gained: map[graspsync.RepoRef]bool{msg.ref: true}})
	}
	if msg.whole {
		e.p.servers.Complete(msg.ref)
		e.stepQueue(ctx, now, syncqueue.Whole{Repo: msg.ref})
	}
	if len(msg.need.IDs) > 0 {
		e.queueFetch(ctx, now, msg.ref, msg.need, msg.why)
	}
}

// queueFetch queues a fetch of missing data, if the reasons or the hourly check require it.
func (e *engine) queueFetch(ctx context.Context, now time.Time, ref graspsync.RepoRef, n refplan.Need, why refplan.Reasons) {
	by, told := anew(why, n)
	if !told {
		if !why.Check && len(why.Deleters) == 0 || e.p.servers.Futile(ref).Waits(now) {
			if e.queue.Due(ref).IsZero() {
				e.p.table.setHopeless(ref, true)
			}
			return
		}
		by = syncqueue.BySync
		e.p.servers.NoteFutile(ref)
	}
	e.p.table.setHopeless(ref, false)
	e.stepQueue(ctx, now, syncqueue.Wanted{Repo: ref, URLs: n.Own, Strangers: n.Strangers, Origin: by})
	e.p.cfg.Logger.Debug("git fetch queued", keyRepo, graspsync.Printable(ref.String()), "objects", len(n.IDs), "urls", len(n.Own), "at", e.queue.Due(ref))
}

func (e *engine) stepQueue(ctx context.Context, now time.Time, in syncqueue.Input) {
	e.mu.Lock()
	effects := e.queue.Step(now, in)
	e.mu.Unlock()
	e.perform(ctx, effects)
}

func (e *engine) perform(ctx context.Context, effects []syncqueue.Effect) {
	for _, x := range effects {
		switch x := x.(type) {
		case syncqueue.Fetch:
			e.p.servers.Started(x)
			e.ask(ctx, x)
		case syncqueue.Stop:
			e.p.fetches.stop(errGaveWay, func(o *request) bool { return o.ID == x.ID })
		case syncqueue.Attempted:
			e.attempted(ctx, x)
		case syncqueue.Dropped:
			e.p.report.drop("fetch_jobs")
		}
	}
}

// ask sends a request, unless its repository is being removed or recreated.
func (e *engine) ask(ctx context.Context, f syncqueue.Fetch) {
	x := &request{Fetch: f, fetched: syncqueue.Fetched{ID: f.ID, Outcome: syncqueue.Unasked}}
	var asking context.Context
	asking, x.stop = context.WithCancelCause(ctx)
	leave, ok := e.p.fetches.enter(x)
	e.wg.Go(func() {
		if ok {
			e.p.fetch(ctx, asking, x)
			leave()
		}
		x.stop(nil)
		e.p.inbox.put(x)
	})
}

func (e *engine) attempted(ctx context.Context, x syncqueue.Attempted) {
	if x.Next.IsZero() {
		e.p.cfg.Logger.Debug("git fetch ended", keyRepo, graspsync.Printable(x.Repo.String()), "attempt", x.Number)
		return
	}
	e.p.cfg.Logger.Debug("git data is incomplete", keyRepo, graspsync.Printable(x.Repo.String()), "attempt", x.Number,
		"next", time.Until(x.Next).Round(time.Millisecond))
	since := time.Time{}.Add(1)
	for _, w := range e.p.pending.of(x.Repo) {
		since = backoff.Later(since, w.Seen)
	}
	if x.Number < attemptsPerCheck || e.owes(time.Now(), x.Repo, since) {
		return
	}
	e.p.table.setHopeless(x.Repo, true)
	if !e.waits(x.Repo) {
		e.stepQueue(ctx, time.Now(), syncqueue.Whole{Repo: x.Repo})
	}
}

// waits reports whether a held event needs data of a repository.
func (e *engine) waits(ref graspsync.RepoRef) bool {
	return len(e.p.table.get(ref).need.Entries) > 0
}

// attemptsPerCheck is the number of attempts after a check for data that no held event needs.
const attemptsPerCheck = 3

func (e *engine) expire(ctx context.Context, now time.Time) {
	due, prolonged := e.p.pending.due(now, e.held, e.owed)
	if len(prolonged) > 0 {
		e.wg.Go(func() {
			for _, entry := range prolonged { // if that fails, a restart shortens the hold
				if err := e.p.pending.rewrite(ctx, entry.ID); ctx.Err() == nil {
					e.p.pending.warn(&entry, "saving a deadline failed", err)
				}
			}
		})
	}
	for _, entry := range due {
		e.wg.Go(func() { e.p.endHold(ctx, entry.ID) })
	}
}

// faultFor is the time for which a failure of our store, git or disk extends holds. It exceeds the
// wait for the next release. An event older than faultMost expires as usual.
const (
	faultFor  = 2 * workqueue.RetryMost
	faultMost = 7 * 24 * time.Hour
)

// held reports whether an event may be complete, and only our own store, git or disk fails.
func (e *engine) held(now time.Time, entry refplan.Entry) bool {
	return now.Sub(entry.Seen) < faultMost && slices.ContainsFunc(entry.Repos, func(ref graspsync.RepoRef) bool {
		return e.jobs.Fails(workqueue.Survey(ref.Identifier)) || e.p.table.get(ref).fault.After(now.Add(-faultFor-e.p.cfg.fixed.MaxBackoff))
	})
}

// owed reports whether a server of an event was not asked yet because of other requests.
func (e *engine) owed(now time.Time, entry refplan.Entry) bool {
	return slices.ContainsFunc(e.p.pending.needing(entry), func(ref graspsync.RepoRef) bool { return e.owes(now, ref, entry.Seen) })
}

// left surveys the repositories that a deletion names by address.
func (e *engine) left(deletion graspsync.Event) {
	author := deletion.PubKey
	_, addresses := nip34.Deletes(deletion)
	for _, a := range addresses {
		ref, ok := a.Repo()
		switch {
		case !ok:
		case a.Kind == graspsync.KindState:
			e.survey(ref.Identifier, refplan.Reasons{Deleters: map[graspsync.PubKey]bool{author: true}})
		case ref.Owner == author:
			why := refplan.Reasons{Owners: map[graspsync.PubKey]bool{author: false}, Left: map[graspsync.RepoRef]bool{ref: true}}
			e.survey(ref.Identifier, why)
			e.jobs.Want(ref, why)
		}
	}
}

// arrivedPull holds a stored pull request whose data was staged, because it has no ref yet.
func (e *engine) arrivedPull(ctx context.Context, ev graspsync.Event) {
	pr, err := nip34.ParsePullRequest(ev)
	if err != nil || !slices.ContainsFunc(pr.Repos, func(ref graspsync.RepoRef) bool {
		return len(e.p.repos.Staged(ref, pr.ID)) > 0
	}) {
		return
	}
	e.wg.Go(func() {
		if _, err := e.p.Submit(ctx, ev, graspsync.Source{Kind: graspsync.CatchUp}); err != nil && ctx.Err() == nil {
			e.p.cfg.Logger.Warn("importing staged data failed", keyEvent, pr.ID.String(), keyError, graspsync.Printable(err.Error()))
		}
	})
}

// message is an input of the engine.
type message interface {
	handle(ctx context.Context, e *engine)
}

type (
	// jobRequest asks for a release or, without owner, for a survey, because something may have
	// changed.
	jobRequest struct {
		ref graspsync.RepoRef
		why refplan.Reasons
	}
	// storedEvent reports an event that the relay has stored or deleted.
	storedEvent struct{ event graspsync.Event }
	// refetchRequest asks for an immediate fetch from these servers, for an operator.
	refetchRequest struct {
		ref  graspsync.RepoRef
		urls []graspsync.CloneURL
	}
	// jobTurn grants a slot.
	jobTurn struct {
		ref   graspsync.RepoRef
		place *limit.Slot
	}
	jobEnd struct {
		ref graspsync.RepoRef
		why refplan.Reasons
		err error

		refs []graspsync.RepoRef // a survey found them

		// results of a release
		need   refplan.Need
		whole  bool // nothing is missing any more
		gained bool // objects arrived
	}
)

// inbox is a queue of messages. Senders never block. If it is full, messages from outside are
// dropped and all held events are surveyed instead.
type inbox struct {
	wake   chan struct{}
	report *report
	table  *repoTable

	mu sync.Mutex
	// guarded by mu
	items []message
	lost  bool
}

const maxInbox = 20_000

func newInbox(report *report, table *repoTable) *inbox {
	return &inbox{wake: make(chan struct{}, 1), report: report, table: table}
}

// release asks for a release of a repository.
func (b *inbox) release(ref graspsync.RepoRef, why refplan.Reasons) {
	b.table.touch(ref)
	b.tell(jobRequest{ref, why})
}

// survey asks for a survey of the repositories with an identifier.
func (b *inbox) survey(identifier string, why refplan.Reasons) {
	b.tell(jobRequest{workqueue.Survey(identifier), why})
}

// put adds a message of a worker, whose number the engine bounds.
func (b *inbox) put(item message) {
	b.mu.Lock()
	b.items = append(b.items, item)
	b.mu.Unlock()
	b.ring()
}

// offer adds a message from outside, if there is room.
func (b *inbox) offer(item message) bool {
	b.mu.Lock()
	room := len(b.items) < maxInbox
	if room {
		b.items = append(b.items, item)
	} else {
		b.lost = true
	}
	b.mu.Unlock()
	b.ring()
	return room
}

func (b *inbox) ring() {
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

func (b *inbox) take() (items []message, lost bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	items, lost = b.items, b.lost
	b.items, b.lost = nil, false
	return items, lost
}

// tell is offer that counts dropped messages.
func (b *inbox) tell(item message) {
	if !b.offer(item) {
		b.report.drop("inbox")
	}
}

// anew reports whether missing data is fetched as if it were new.
func anew(why refplan.Reasons, n refplan.Need) (by syncqueue.Origin, anew bool) {
	by = syncqueue.ByUser
	because := func(byUser bool) {
		anew = true
		if !byUser {
			by = syncqueue.BySync
		}
	}
	for _, id := range n.Entries {
		if byUser, ok := why.Fresh[id]; ok {
			because(byUser)
		}
	}
	for owner, byUser := range why.Owners {
		if _, member := n.Members[owner]; member {
			because(byUser)
		}
	}
	return by, anew
}
