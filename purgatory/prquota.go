package purgatory

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory/internal/gitops"
	"github.com/graspsync/graspsync/purgatory/internal/refplan"
	"github.com/graspsync/graspsync/purgatory/internal/refupdate"
	"github.com/graspsync/graspsync/purgatory/internal/stopwatch"
)

// Limits of refs of pull requests by non-members. They exist because every client that fetches
// receives all ref names.
const (
	maxPullsOfAuthor = 100
	maxPullsOfRepo   = 5_000
)

// prQuota decides which pull requests of non-members have a ref in a repository.
// Limits.MaxPullBytes bounds the bytes that only these refs need, and also the bytes that came for
// pull requests since the last prune. An event whose ref was removed stays stored. An event whose
// ref was refused stays held, and every release judges it again.
type prQuota struct {
	// set by newPRQuota, read-only
	cfg         *Config
	report      *report
	git         safeGit
	pending     *pendingEvents
	table       *repoTable
	reader      *reader
	refUpdater  *refupdate.Updater
	maintenance *maintenance
}

type prUsage struct {
	needed int64 // upper bound of the bytes that only their refs need, measured when it exceeds the limit
	came   int64 // bytes for pull requests that came since the last prune or that it left
	// unmeasured is true if needed is unknown.
	unmeasured bool
	refused    bool          // a pull request was refused because of came
	pruned     time.Time     // start of the last prune
	took       time.Duration // duration of the last prune
}

func newPRQuota(cfg *Config, report *report, git safeGit, pending *pendingEvents, table *repoTable, reader *reader, refUpdater *refupdate.Updater, maintenance *maintenance) *prQuota {
	return &prQuota{
		cfg: cfg, report: report, git: git, pending: pending, table: table, reader: reader, refUpdater: refUpdater, maintenance: maintenance,
	}
}

// prPlan is a decision about pull requests that need a ref.
type prPlan struct {
	refused map[graspsync.EventID]struct{}
	gone    []refplan.RefChange // refs to remove
	soon    bool                // refused only until the next prune
	needed  int64               // bytes that only refs of pull requests need, afterwards
}

// asks reports whether a pull request needs a new ref that counts.
func asks(r *repository, pr *nip34.PullRequest) bool {
	_, has := r.Refs.At[nip34.EventRef(pr.ID)]
	return !has && !r.IsMember(pr.Author)
}

// plan decides which pull requests get a ref in a locked repository, and which refs are removed to
// make room. bytes is the total number of new bytes, or -1 if the objects are in the repository.
func (x *prQuota) plan(ctx context.Context, r *repository, pulls []*nip34.PullRequest, bytes int64) (prPlan, error) {
	p := prPlan{refused: make(map[graspsync.EventID]struct{})}
	pulls = slices.DeleteFunc(slices.Clone(pulls), func(pr *nip34.PullRequest) bool { return !asks(r, pr) })
	u := x.table.usage(r.Ref)
	if p.needed = u.needed; len(pulls) == 0 {
		return p, nil
	}
	most := x.most(r.Ref)
	if bytes > most || bytes > 0 && u.came+bytes > most {
		for _, pr := range pulls {
			p.refused[pr.ID] = struct{}{}
		}
		if p.soon = bytes <= most; p.soon {
			x.refuse(r.Ref)
		}
		return p, nil
	}
	s := newPRRefs(x, r)
	if len(s.at) == 0 {
		p.needed, u.unmeasured = 0, false
	}
	if u.unmeasured || len(s.at)+len(pulls) > maxPullsOfAuthor {
		if err := s.load(ctx, pulls); err != nil {
			return p, err
		}
	}
	if u.unmeasured {
		if err := s.measure(ctx, &p.needed); err != nil {
			return p, err
		}
	}
	slices.SortFunc(pulls, func(a, b *nip34.PullRequest) int {
		return cmp.Or(cmp.Compare(a.CreatedAt, b.CreatedAt), a.ID.Compare(b.ID))
	})
	for _, pr := range pulls {
		need, atMost := bytes/int64(len(pulls)), false
		if bytes < 0 {
			need, atMost = r.beyond[pr.ID], true
		}
		room, err := s.admit(ctx, pr, need, atMost, pulls, &p)
		if err != nil {
			return p, err
		}
		if !room {
			p.refused[pr.ID] = struct{}{}
		}
	}
	return p, nil
}

// prRef is a ref of a pull request of an author who is no member.
type prRef struct {
	id     graspsync.EventID
	author graspsync.PubKey // zero if the event is unknown
	at     nostr.Timestamp
	tip    nip34.ObjectID
}

func (p prRef) compare(o prRef) int { return cmp.Or(cmp.Compare(p.at, o.at), p.id.Compare(o.id)) }

// prRefs are the refs of a repository after a plan.
type prRefs struct {
	x        *prQuota
	r        *repository
	at       map[graspsync.EventID]prRef
	others   []nip34.ObjectID // tips of branches, tags and members' pull requests
	loaded   bool             // the authors are known
	measured bool
	full     bool                       // all places are used, by authors with one ref each
	stays    map[graspsync.EventID]bool // refs whose removal frees nothing
}

func newPRRefs(x *prQuota, r *repository) *prRefs {
	s := &prRefs{x: x, r: r, at: make(map[graspsync.EventID]prRef), stays: make(map[graspsync.EventID]bool)}
	for name, at := range r.Refs.At {
		if id, ok := refplan.EventOf(name); ok {
			s.at[id] = prRef{id: id, tip: at}
		} else {
			s.others = append(s.others, at)
		}
	}
	return s
}

func (s *prRefs) tips() []nip34.ObjectID {
	tips := setOf(s.others)
	for _, p := range s.at {
		tips[p.tip] = struct{}{}
	}
	return slices.Collect(maps.Keys(tips))
}

func (s *prRefs) load(ctx context.Context, asking []*nip34.PullRequest) error {
	if s.loaded {
		return nil
	}
	s.loaded = true
	now := nostr.Now() // a date in the future counts as now
	know := func(pr *nip34.PullRequest) {
		p, has := s.at[pr.ID]
		switch {
		case !has:
		case s.r.IsMember(pr.Author):
			delete(s.at, pr.ID)
			s.others = append(s.others, p.tip)
		default:
			p.author, p.at = pr.Author, min(pr.CreatedAt, now)
			s.at[pr.ID] = p
		}
	}
	for id := range s.at {
		if e, _ := s.x.pending.get(id); e.Pull != nil {
			know(e.Pull)
		}
	}
	for _, pr := range asking {
		know(pr)
	}
	return s.x.reader.relay.pulls(ctx, s.r.Ref, know)
}

func (s *prRefs) measure(ctx context.Context, needed *int64) error {
	if s.measured {
		return nil
	}
	s.measured = true
	var tips []nip34.ObjectID
	for _, p := range s.at {
		tips = append(tips, p.tip)
	}
	bytes, err := int64(0), error(nil)
	if len(tips) > 0 {
		err = s.r.work(ctx, s.r.left()/2, func(ctx context.Context) (err error) {
			bytes, err = s.x.git.DiskUsage(ctx, s.r.dir, tips, s.others)
			return err
		})
	}
	if errors.Is(err, errLong) {
		*needed = s.x.cfg.Limits.MaxPullBytes
		return nil
	}
	if err == nil {
		*needed = bytes
		s.x.table.changeUsage(s.r.Ref, func(u *prUsage) { u.needed, u.unmeasured = bytes, false })
	}
	return err
}

// weigh returns the bytes that an object needs and but does not. It returns more than the limit if
// that takes too long, because an author can create objects for which it does.
func (s *prRefs) weigh(ctx context.Context, most time.Duration, tip nip34.ObjectID, but []nip34.ObjectID) (bytes int64, err error) {
	err = s.r.work(ctx, most, func(ctx context.Context) (err error) {
		bytes, err = s.x.git.DiskUsage(ctx, s.r.dir, []nip34.ObjectID{tip}, but)
		return err
	})
	if errors.Is(err, errLong) {
		return s.x.cfg.Limits.MaxPullBytes + 1, nil
	}
	return bytes, err
}

// admit reports whether a pull request that needs need bytes may have a ref, and removes other refs
// from the plan until it fits. If it cannot fit, nothing changes. atMost means that need is an
// upper bound, which is measured if it does not fit.
func (s *prRefs) admit(ctx context.Context, pr *nip34.PullRequest, need int64, atMost bool, asking []*nip34.PullRequest, p *prPlan) (bool, error) {
	most := s.x.most(s.r.Ref)
	if atMost && p.needed+need > most {
		var err error
		if need, err = s.weigh(ctx, s.r.left()/2, pr.Tip, s.tips()); err != nil {
			return false, err
		}
	}
	if need > most || s.full && !s.hasOf(pr.Author) {
		return false, nil
	}
	added := prRef{pr.ID, pr.Author, min(pr.CreatedAt, nostr.Now()), pr.Tip}
	if p.needed+need > most {
		if err := errors.Join(s.load(ctx, asking), s.measure(ctx, &p.needed)); err != nil {
			return false, err
		}
	}
	before, needed := maps.Clone(s.at), p.needed
	for {
		v, found, full := s.victim(added, needed+need > most)
		if !full {
			break
		}
		if !found && len(s.at) >= maxPullsOfRepo && !s.full {
			var err error
			if v, found, err = s.merged(ctx); err != nil {
				return false, err
			}
			s.full = !found
		}
		if !found {
			s.at = before
			return false, nil
		}
		delete(s.at, v.id)
		if needed+need <= most {
			continue
		}
		freed, err := s.weigh(ctx, s.r.left()/2, v.tip, s.tips())
		if err != nil {
			return false, err
		}
		if freed == 0 || freed > most { // nothing is freed, or measuring took too long
			s.at[v.id], s.stays[v.id] = v, true
			continue
		}
		needed = max(0, needed-freed)
	}
	for id, v := range before {
		if _, stays := s.at[id]; stays {
			continue
		}
		if name := nip34.EventRef(id); !s.r.Refs.At[name].IsZero() {
			p.gone = append(p.gone, refplan.RefChange{Name: name, Old: v.tip})
		} else {
			p.refused[id] = struct{}{}
		}
	}
	slices.SortFunc(p.gone, func(a, b refplan.RefChange) int { return cmp.Compare(a.Name.String(), b.Name.String()) })
	s.at[pr.ID], p.needed = added, needed+need
	return true, nil
}

// victim returns the ref to remove for a new one. full reports whether a removal is necessary,
// found whether it is possible.
func (s *prRefs) victim(added prRef, bytesFull bool) (v prRef, found, full bool) {
	own, of := 0, make(map[graspsync.PubKey]int)
	for id, p := range s.at {
		if p.author == added.author {
			own++
		}
		if !s.stays[id] {
			of[p.author]++
		}
	}
	var oldest prRef
	largest := added.author
	switch {
	case own >= maxPullsOfAuthor:
	case len(s.at) < maxPullsOfRepo && !bytesFull:
		return v, false, false
	default:
		of[added.author]++
		for who, n := range of {
			if n > of[largest] || n == of[largest] && largest != added.author && bytes.Compare(who[:], largest[:]) < 0 {
				largest = who
			}
		}
		if of[largest] < 2 {
			return v, false, true
		}
	}
	for id, p := range s.at {
		if p.author == largest && !s.stays[id] && (!found || p.compare(oldest) < 0) {
			oldest, found = p, true
		}
	}
	if largest == added.author && found && added.compare(oldest) < 0 {
		return v, false, true // the new one is the oldest
	}
	return oldest, found, true
}

// mergedSample is the number of refs that one plan checks for merged commits.
const mergedSample = 16

// merged searches a random sample for a ref whose commit is contained in a branch or tag now.
func (s *prRefs) merged(ctx context.Context) (v prRef, found bool, err error) {
	n := 0
	for _, p := range s.at { // in random order
		bytes, err := s.weigh(ctx, s.r.left()/mergedSample, p.tip, s.r.Refs.State())
		if err != nil || bytes == 0 {
			return p, err == nil, err
		}
		if n++; n == mergedSample {
			break
		}
	}
	return v, false, nil
}

func (s *prRefs) hasOf(author graspsync.PubKey) bool {
	for _, p := range s.at {
		if p.author == author {
			return true
		}
	}
	return false
}

// apply records a plan whose refs were created and removed.
func (x *prQuota) apply(ref graspsync.RepoRef, p prPlan) {
	for range p.gone {
		x.report.drop("pull_displaced")
	}
	for range p.refused {
		if p.soon {
			x.report.drop("pull_pending_gc")
		} else {
			x.report.drop("pull_refs")
		}
	}
	x.table.changeUsage(ref, func(u *prUsage) { u.needed, u.unmeasured = p.needed, false })
}

// ration decides about the refs of held pull requests whose objects are in the repository.
func (x *prQuota) ration(ctx context.Context, g *refplan.Group, r *repository) error {
	var pulls []*nip34.PullRequest
	for _, h := range g.Pulls {
		if slices.Contains(h.Repos, r.Ref) && r.Has(h.Pull.Tip) {
			pulls = append(pulls, h.Pull)
		}
	}
	r.Merged, r.beyond = make(map[graspsync.EventID]struct{}), make(map[graspsync.EventID]int64)
	asking, err := x.unmerged(ctx, r, pulls)
	var p prPlan
	if err == nil {
		p, err = x.plan(ctx, r, asking, -1)
	}
	if errors.Is(err, gitops.ErrBusy) { // not the fault of the repository
		r.trouble = errors.Join(r.trouble, fmt.Errorf("pull request: %w", err))
		r.Refused = make(map[graspsync.EventID]struct{})
		for _, pr := range pulls {
			r.Refused[pr.ID] = struct{}{}
		}
		return nil
	}
	if err != nil {
		return err
	}
	if len(asking) > 0 {
		x.apply(r.Ref, p)
	}
	r.Refused, r.Evicted = p.refused, p.gone
	return nil
}

// unmerged returns the pull requests that need a ref. It records those that need none, because a
// branch or tag contains their commit.
func (x *prQuota) unmerged(ctx context.Context, r *repository, pulls []*nip34.PullRequest) (left []*nip34.PullRequest, err error) {
	s := &prRefs{x: x, r: r}
	state := r.Refs.State()
	for _, pr := range pulls {
		if !asks(r, pr) {
			continue
		}
		merged := slices.Contains(state, pr.Tip)
		if !merged {
			bytes, err := s.weigh(ctx, r.left()/2, pr.Tip, state)
			if err != nil {
				return nil, err
			}
			merged = bytes == 0
			r.beyond[pr.ID] = bytes
		}
		if merged {
			r.Merged[pr.ID] = struct{}{}
		} else {
			left = append(left, pr)
		}
	}
	return left, nil
}

// hasRoom reports whether a pull request with bytes of new data may have a ref.
func (x *prQuota) hasRoom(ctx context.Context, r *repository, pr *nip34.PullRequest, bytes int64) (bool, error) {
	p, err := x.plan(ctx, r, []*nip34.PullRequest{pr}, bytes)
	_, refused := p.refused[pr.ID]
	return !refused, err
}

// open reads the input of a plan for the locked repository in dir.
func (x *prQuota) open(ctx context.Context, ref graspsync.RepoRef, dir string) (*repository, error) {
	g, err := x.reader.announced(ctx, ref.Identifier, false)
	if err != nil {
		return nil, err
	}
	r := &repository{Repository: g.Repository(ref)}
	r.dir, r.until, r.watch = dir, pullsShare, stopwatch.New(pullsShare, gitops.ErrBusy)
	r.Refs, err = x.git.Refs(ctx, dir)
	return r, err
}

// hasRoomFor reports whether fetched objects may be added to a locked repository. Objects for pull
// requests are refused if each of these has no room or is no longer held. soon is true if the next
// prune makes room, or if no held event needs the objects.
func (x *prQuota) hasRoomFor(ctx context.Context, ref graspsync.RepoRef, dir string, came []nip34.ObjectID, bytes int64, forPulls bool) (room, soon bool, err error) {
	states := x.table.lacked(ref).States
	entries := x.pending.of(ref)
	if slices.ContainsFunc(came, func(id nip34.ObjectID) bool { return slices.Contains(states, id) }) {
		return true, false, nil
	}
	var pulls []*nip34.PullRequest
	for _, e := range entries {
		if pr := e.Pull; pr != nil && slices.Contains(came, pr.Tip) {
			pulls = append(pulls, pr)
		}
	}
	if len(pulls) == 0 {
		return !forPulls, forPulls, nil
	}
	r, err := x.open(ctx, ref, dir)
	if err != nil {
		return false, false, err
	}
	p, err := x.plan(ctx, r, pulls, bytes)
	room = slices.ContainsFunc(pulls, func(pr *nip34.PullRequest) bool {
		_, refused := p.refused[pr.ID]
		return !refused
	})
	return room, p.soon, err
}

// forPush implements [Purgatory.AdmitPullRefs].
func (x *prQuota) forPush(ctx context.Context, ref graspsync.RepoRef, dir string, pulls []*nip34.PullRequest, bytes int64) (map[graspsync.EventID]string, error) {
	ctx, cancel := context.WithTimeout(ctx, x.cfg.fixed.Timeout)
	defer cancel()
	if err := x.refUpdater.Mend(ctx, ref, dir); err != nil { // the push has locked it without refUpdater
		return nil, fmt.Errorf("mending a repository: %w", err)
	}
	if len(pulls) == 0 {
		return nil, nil
	}
	r, err := x.open(ctx, ref, dir)
	if err != nil {
		return nil, err
	}
	pulls = slices.DeleteFunc(slices.Clone(pulls), func(pr *nip34.PullRequest) bool { return !asks(r, pr) })
	p, err := x.plan(ctx, r, pulls, bytes)
	if err != nil || len(pulls) == 0 {
		return nil, err
	}
	if len(p.gone) > 0 {
		if err := x.refUpdater.Remove(ctx, ref, dir, p.gone); err != nil {
			return nil, fmt.Errorf("removing refs: %w", err)
		}
	}
	x.apply(ref, p)
	if len(p.refused) < len(pulls) {
		x.brought(ref, bytes)
	}
	refused := make(map[graspsync.EventID]string)
	for id := range p.refused {
		refused[id] = reasonPulls
	}
	return refused, nil
}

// brought records that bytes came for pull requests. Without maintenance nothing is pruned, and so
// nothing is counted.
func (x *prQuota) brought(ref graspsync.RepoRef, bytes int64) {
	if bytes > 0 && !x.cfg.NoMaintenance {
		x.table.changeUsage(ref, func(u *prUsage) { u.came += bytes })
		x.makeDue(ref)
	}
}

// refuse records that a pull request waits for a prune.
func (x *prQuota) refuse(ref graspsync.RepoRef) {
	x.table.changeUsage(ref, func(u *prUsage) { u.refused = true })
	x.makeDue(ref)
}

// mayPrune reports whether a prune is wanted and allowed now, because many bytes came for pull
// requests or one waits for room. grace is the grace of unnamed objects.
func (x *prQuota) mayPrune(ref graspsync.RepoRef, now time.Time) (grace time.Duration, may bool) {
	u := x.table.usage(ref)
	grace = min(crowdedGrace, x.cfg.Times.Grace)
	wanted := u.refused || u.came > 0 && u.came >= x.cfg.Limits.MaxPullBytes/2
	return grace, wanted && (u.pruned.IsZero() || now.Sub(u.pruned) >= max(grace, upkeepShare*u.took))
}

// makeDue makes a repository due for maintenance if it may be pruned.
func (x *prQuota) makeDue(ref graspsync.RepoRef) {
	if _, may := x.mayPrune(ref, time.Now()); may {
		x.maintenance.add(ref)
	}
}

func (x *prQuota) makeAllDue() {
	for ref := range x.table.usages() {
		x.makeDue(ref)
	}
}

// pruned records a prune that started after came bytes, and left left bytes of unnamed objects. It
// reports whether there is more room.
func (x *prQuota) pruned(ref graspsync.RepoRef, began time.Time, came, left int64) (more bool) {
	x.table.changeUsage(ref, func(u *prUsage) {
		was := *u
		u.came = max(0, u.came-came) + min(came, left)
		u.pruned, u.took = began, time.Since(began)
		if u.came < was.came {
			u.refused, more = false, true
		}
	})
	return more
}

// pruneFailed records a failed prune. The next one waits as long as after a successful one.
func (x *prQuota) pruneFailed(ref graspsync.RepoRef, began time.Time) {
	x.table.changeUsage(ref, func(u *prUsage) { u.pruned, u.took = began, time.Since(began) })
}

// most returns the maximum number of bytes of pull requests in a repository. It shrinks with the
// share of MaxOwnerPullBytes that other repositories of the owner use, because strangers must not
// keep pull requests out of all of them.
func (x *prQuota) most(ref graspsync.RepoRef) int64 {
	most, all, u := x.cfg.Limits.MaxPullBytes, x.cfg.Limits.MaxOwnerPullBytes, x.table.usage(ref)
	left := all - x.ofOwner(ref.Owner) + u.needed + u.came
	return int64(float64(most) * float64(max(0, left)) / float64(all))
}

// ofOwner implements [Purgatory.PullBytes].
func (x *prQuota) ofOwner(owner graspsync.PubKey) (bytes int64) {
	for ref, u := range x.table.usages() {
		if ref.Owner == owner {
			bytes += u.needed + u.came
		}
	}
	return bytes
}
