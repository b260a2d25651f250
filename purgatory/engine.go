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
	mu       sync.Mutex
	queue    *syncqueue.SyncQueue // changed by the engine; guarded by mu
	wg       sync.WaitGroup
	surveys  *workqueue.Queue[string]
	releases *workqueue.Queue[graspsync.RepoRef]
	expiring map[graspsync.EventID]bool
	asking   map[syncqueue.RequestID]*request
	p        *Purgatory
}

const (
	expiryPause = 10 * time.Second
	expiryMost  = time.Hour
	// maxLeaving is the maximum number of unhandled authors of deletions, and of deleted pull
	// requests.
	maxLeaving = 10_000
)

func newEngine(p *Purgatory, seed uint64) *engine {
	limits := func(l Limit) syncqueue.Limit { return syncqueue.Limit(l) }
	cfg := syncqueue.Config{
		UserDelay: p.cfg.fixed.UserDelay, SyncDelay: p.cfg.fixed.SyncDelay, Backoff: p.cfg.Times.Backoff, MaxBackoff: p.cfg.fixed.MaxBackoff,
		BrokenMin: servers.BrokenMin, BrokenMax: servers.BrokenMax,
		MaxFetchJobs: p.cfg.Limits.MaxFetchJobs, MaxRepos: 2 * p.cfg.Limits.MaxEntries, MaxDomains: 10_000,
		DefaultLimit: limits(p.cfg.Limits.DomainLimit), Seed: seed,
	}
	cfg.Limits = mapValues(p.cfg.Limits.DomainLimits, limits)
	e := &engine{
		p: p, queue: syncqueue.New(cfg), expiring: make(map[graspsync.EventID]bool), asking: make(map[syncqueue.RequestID]*request),
	}
	e.surveys, e.releases = newQueues(p)
	return e
}

func newQueues(p *Purgatory) (surveys *workqueue.Queue[string], releases *workqueue.Queue[graspsync.RepoRef]) {
	n := int64(p.cfg.fixed.MaxReleases)
	surveys = workqueue.New(limit.NewSlots(n, 1), func(identifier string) limit.Stranger { return limit.Stranger{ID: identifier} },
		func(identifier string, slot *limit.Slot) { p.inbox.put(surveyTurn{identifier, slot}) })
	releases = workqueue.New(limit.NewSlots(n, max(1, n/2)), func(ref graspsync.RepoRef) limit.Stranger { return limit.Stranger{ID: ref.Owner.String()} },
		func(ref graspsync.RepoRef, slot *limit.Slot) { p.inbox.put(releaseTurn{ref, slot}) })
	return surveys, releases
}

func mapValues[K comparable, V, W any](m map[K]V, f func(V) W) map[K]W {
	out := make(map[K]W, len(m))
	for k, v := range m {
		out[k] = f(v)
	}
	return out
}

func (e *engine) resume(ctx context.Context) {
	for _, entry := range e.p.pending.all(nil) {
		for _, msg := range newsOf(entry) {
			msg.handle(ctx, e)
		}
	}
	for _, ref := range e.p.table.touched() {
		e.releases.Want(ref, refplan.Reasons{})
	}
}

// newsOf returns the messages about a new event.
func newsOf(entry refplan.Entry) (all []message) {
	first := entry.Repos[0]
	owners := map[graspsync.PubKey]bool{entry.Author: entry.ByUser}
	fresh := map[graspsync.EventID]bool{entry.ID: entry.ByUser}
	switch {
	case entry.Soft:
	case entry.Class == refplan.State:
		all = append(all, surveyRequest{first.Identifier, refplan.Reasons{Fresh: fresh}})
	case entry.Class == refplan.PullRequest:
		for _, ref := range entry.Repos {
			all = append(all, releaseRequest{ref, refplan.Reasons{Fresh: fresh}})
		}
	case entry.Class == refplan.Announcement: // it may name servers for events that are held already
		all = append(all, releaseRequest{first, refplan.Reasons{Owners: owners}}, surveyRequest{first.Identifier, refplan.Reasons{Owners: owners}})
	default:
		why := refplan.Reasons{Owners: owners}
		if entry.For == entry.Author { // the process may have been killed before the release
			why.Left = map[graspsync.RepoRef]bool{first: true}
		}
		all = append(all, surveyRequest{first.Identifier, why})
	}
	return all
}

func (e *engine) survey(identifier string, why refplan.Reasons) { e.surveys.Want(identifier, why) }

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
		e.surveys.Retry(now)
		e.releases.Retry(now)
		e.stepQueue(ctx, now, syncqueue.Tick{Received: e.received()})
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
	if len(e.expiring) < e.p.cfg.fixed.MaxReleases {
		if t, ok := e.p.pending.nextDue(); ok {
			consider(t)
		}
	}
	for _, at := range []time.Time{e.releases.NextRetry(), e.surveys.NextRetry()} {
		if !at.IsZero() {
			consider(at)
		}
	}
	if least := now.Add(10 * time.Millisecond); next.Before(least) {
		return least
	}
	return next
}

func (msg surveyRequest) handle(_ context.Context, e *engine) { e.survey(msg.identifier, msg.why) }

func (msg releaseRequest) handle(_ context.Context, e *engine) {
	e.p.table.touch(msg.ref)
	e.releases.Want(msg.ref, msg.why)
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

func (msg fetchEnd) handle(ctx context.Context, e *engine) {
	if msg.fault != nil {
		e.p.table.failed(msg.repo)
	}
	e.asking[msg.fetched.ID].stop(nil)
	delete(e.asking, msg.fetched.ID)
	e.stepQueue(ctx, time.Now(), msg.fetched)
	failures, until := e.queue.Broken(msg.server)
	e.p.servers.Broke(msg.server, backoff.Streak{Times: failures, Until: until})
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
				e.releases.Want(ref, why)
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
		e.releases.Want(a.Ref, why) // it may not list this service
	}
}

func (msg refetchRequest) handle(ctx context.Context, e *engine) {
	e.p.servers.Renew(msg.ref)
	e.p.table.setHopeless(msg.ref, false)
	e.stepQueue(ctx, time.Now(), syncqueue.Renew{Repo: msg.ref, URLs: msg.urls})
	e.releases.Want(msg.ref, refplan.Reasons{Check: true, Owners: map[graspsync.PubKey]bool{msg.ref.Owner: false}})
}

func (t surveyTurn) handle(ctx context.Context, e *engine) {
	why, _ := e.surveys.Begin(t.identifier, t.place)
	e.wg.Go(func() {
		refs, err := e.p.survey(ctx, t.identifier, why)
		e.p.inbox.put(surveyEnd{t.identifier, why, refs, err})
	})
}

func (t releaseTurn) handle(ctx context.Context, e *engine) {
	why, failures := e.releases.Begin(t.ref, t.place)
	e.wg.Go(func() {
		result, err := e.p.release(ctx, t.ref, why, e.p.releaseTime(failures))
		e.p.inbox.put(releaseEnd{t.ref, why, result, err})
	})
}

func (msg surveyEnd) handle(ctx context.Context, e *engine) {
	failed := msg.err != nil && ctx.Err() == nil
	if e.surveys.End(msg.identifier, time.Now(), failed, msg.why); failed {
		e.p.report.fault(msg.identifier, "looking for repositories failed", msg.err)
	}
	for _, ref := range msg.refs {
		e.releases.Want(ref, msg.why)
	}
}

func (msg releaseEnd) handle(ctx context.Context, e *engine) {
	now := time.Now()
	failed := msg.err != nil && ctx.Err() == nil
	if e.releases.End(msg.ref, now, failed, msg.why); failed && errors.Is(msg.err, errLocked) {
		e.p.cfg.Logger.Debug(releaseFailed, keyRepo, graspsync.Printable(msg.ref.String()), keyError, graspsync.Printable(msg.err.Error()))
	} else if failed {
		e.p.report.fault(msg.ref.String(), releaseFailed, msg.err)
	}
	if failed && !tookLong(msg.err) {
		e.p.table.failed(msg.ref)
	}
	if msg.result.gained {
		e.survey(msg.ref.Identifier, refplan.Reasons{Gained: map[graspsync.RepoRef]bool{msg.ref: true}})
	}
	if msg.result.whole {
		e.p.servers.Complete(msg.ref)
		e.stepQueue(ctx, now, syncqueue.Whole{Repo: msg.ref})
	}
	if len(msg.result.need.IDs) > 0 {
		e.queueFetch(ctx, now, msg.ref, msg.result.need, msg.why)
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
			asking, stop := context.WithCancelCause(ctx)
			r := &request{Fetch: x, stop: stop}
			e.asking[x.ID] = r
			e.wg.Go(func() { e.p.inbox.put(e.p.fetch(ctx, asking, r)) })
		case syncqueue.Stop:
			e.asking[x.ID].stop(errGaveWay)
		case syncqueue.Attempted:
			e.attempted(ctx, x)
		case syncqueue.Dropped:
			e.p.report.drop("fetch_jobs")
		}
	}
}

func (e *engine) received() map[syncqueue.RequestID]int64 {
	out := make(map[syncqueue.RequestID]int64, len(e.asking))
	for id, r := range e.asking {
		out[id] = r.received.Load()
	}
	return out
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
	return len(e.p.table.lacked(ref).Entries) > 0
}

// attemptsPerCheck is the number of attempts after a check for data that no held event needs.
const attemptsPerCheck = 3

func (e *engine) expire(ctx context.Context, now time.Time) {
	room := e.p.cfg.fixed.MaxReleases - len(e.expiring)
	if room <= 0 {
		return
	}
	due, prolonged := e.p.pending.due(now, room, e.held, e.owed)
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
		if e.expiring[entry.ID] {
			continue
		}
		e.expiring[entry.ID] = true
		e.wg.Go(func() { e.p.inbox.put(expiryEnd{entry, e.p.expire(ctx, entry.ID)}) })
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
		return e.surveys.Fails(ref.Identifier) || e.p.table.hasFailed(ref, now.Add(-faultFor-e.p.cfg.fixed.MaxBackoff))
	})
}

// owed reports whether a server of an event was not asked yet because of other requests.
func (e *engine) owed(now time.Time, entry refplan.Entry) bool {
	return slices.ContainsFunc(e.p.pending.needing(entry), func(ref graspsync.RepoRef) bool { return e.owes(now, ref, entry.Seen) })
}

// handle releases the repositories of an event that is still held, because they may be complete now.
func (msg expiryEnd) handle(ctx context.Context, e *engine) {
	delete(e.expiring, msg.entry.ID)
	entry, waits := e.p.pending.get(msg.entry.ID)
	if waits { // no release has stored it since
		for _, ref := range append(e.p.pending.needing(entry), entry.Repos...) {
			e.p.inbox.release(ref, refplan.Reasons{})
		}
	}
	if msg.err == nil || !waits {
		return
	}
	if ctx.Err() != nil {
		return
	}
	now := time.Now()
	e.p.pending.postpone(msg.entry.ID, now)
	if e.p.report.lines.May(line{who: msg.entry.ID.String(), what: "expiry"}, now) {
		e.p.cfg.Logger.Warn("expiring an event failed", keyEvent, msg.entry.ID.String(), keyError, graspsync.Printable(msg.err.Error()))
	}
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
			e.releases.Want(ref, why)
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
	// surveyRequest asks for a survey, because something may have changed.
	surveyRequest struct {
		identifier string
		why        refplan.Reasons
	}
	// releaseRequest asks for a release.
	releaseRequest struct {
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
	fetchEnd struct {
		repo    graspsync.RepoRef
		server  graspsync.HostPort
		fetched syncqueue.Fetched
		fault   error
	}
	surveyEnd struct {
		identifier string
		why        refplan.Reasons
		refs       []graspsync.RepoRef
		err        error
	}
	// surveyTurn grants a slot for a survey, releaseTurn for a release.
	surveyTurn struct {
		identifier string
		place      *limit.Slot
	}
	releaseTurn struct {
		ref   graspsync.RepoRef
		place *limit.Slot
	}
	releaseEnd struct {
		ref    graspsync.RepoRef
		why    refplan.Reasons
		result releaseResult
		err    error
	}
	expiryEnd struct {
		entry refplan.Entry
		err   error
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
	b.tell(releaseRequest{ref, why})
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
