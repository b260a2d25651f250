package purgatory

import (
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
)

// Limits of refs of pull requests by non-members. They exist because every client that fetches
// receives all ref names.
const (
	maxPullsOfAuthor = 100
	maxPullsOfRepo   = 5_000
)

// prQuota decides which pull requests of non-members have a ref in a repository.
// Limits.MaxPullBytes bounds the bytes of these refs, and also the bytes that came for pull requests
// since the last prune. An event whose ref was removed stays stored. An event whose ref was refused
// stays held, and every release judges it again.
type prQuota struct {
	// set by newPurgatory, read-only
	cfg         *Config
	report      *report
	git         safeGit
	pending     *pendingEvents
	table       *repoTable
	reader      *reader
	refUpdater  *refupdate.Updater
	maintenance *maintenance
}

// prUsage is the use of a repository by pull requests of non-members.
type prUsage struct {
	refs      *prRefs   // nil: not measured. Only the holder of the lock of the repository uses it.
	bytes     int64     // of refs
	came      int64     // bytes that came since the last prune or that it left
	refused   bool      // data was refused because of came
	nextPrune time.Time // earliest time of the next prune
}

// prRefs are the refs of pull requests in a repository.
type prRefs struct {
	counted []prRef                        // of non-members, the oldest first
	members map[graspsync.EventID]struct{} // refs of members
}

// prRef is the ref of a pull request.
type prRef struct {
	id     graspsync.EventID
	author graspsync.PubKey // zero if the event is unknown
	at     nostr.Timestamp
	bytes  int64
}

func (s *prRefs) bytes() (sum int64) {
	for _, ref := range s.counted {
		sum += ref.bytes
	}
	return sum
}

// prPlan is a decision about pull requests that need a ref.
type prPlan struct {
	refused map[graspsync.EventID]struct{}
	gone    []refplan.RefChange // refs to remove
}

// asks reports whether a pull request needs a new ref that counts.
func asks(r *repository, pr *nip34.PullRequest) bool {
	_, has := r.Refs.At[nip34.EventRef(pr.ID)]
	return !has && !r.IsMember(pr.Author)
}

// plan decides which pull requests get a ref in a locked repository, and which refs are removed to
// make room: the oldest of the author with the most.
func (x *prQuota) plan(ctx context.Context, r *repository, pulls []*nip34.PullRequest, size func(*nip34.PullRequest) int64) (prPlan, error) {
	p := prPlan{refused: make(map[graspsync.EventID]struct{})}
	if len(pulls) == 0 {
		return p, nil
	}
	var need int64
	for _, pr := range pulls {
		need += size(pr)
	}
	refs := x.table.usage(r.Ref).refs
	if refs == nil || refs.bytes()+need > x.most(r.Ref) || !refs.match(r) {
		var err error
		if refs, err = x.measure(ctx, r, pulls); err != nil {
			return p, err
		}
	}
	slices.SortFunc(pulls, func(a, b *nip34.PullRequest) int {
		return cmp.Or(cmp.Compare(a.CreatedAt, b.CreatedAt), a.ID.Compare(b.ID))
	})
	for _, pr := range pulls {
		gone, ok := refs.put(prRef{id: pr.ID, author: pr.Author, bytes: size(pr)}, x.most(r.Ref))
		if !ok {
			p.refused[pr.ID] = struct{}{}
		}
		for _, id := range gone {
			if name := nip34.EventRef(id); r.Refs.At[name].IsZero() { // of this plan
				p.refused[id] = struct{}{}
			} else {
				p.gone = append(p.gone, refplan.RefChange{Name: name, Old: r.Refs.At[name]})
			}
		}
	}
	x.table.changeUsage(r.Ref, func(u *prUsage) { u.refs, u.bytes = refs, refs.bytes() })
	for range p.gone {
		x.report.drop("pull_displaced")
	}
	for range p.refused {
		x.report.drop("pull_refs")
	}
	return p, nil
}

// put counts a new ref. It returns the refs that make room for it: the oldest of its author if that
// author has too many, and of the author with the most refs if there are too many or more than most
// bytes. It changes nothing and returns false if it would have to remove the only ref of an author.
func (s *prRefs) put(ref prRef, most int64) (gone []graspsync.EventID, ok bool) {
	left := append(slices.Clone(s.counted), ref)
	for {
		bytes, of := int64(0), make(map[graspsync.PubKey]int)
		for _, c := range left {
			bytes += c.bytes
			of[c.author]++
		}
		who := ref.author
		if of[who] <= maxPullsOfAuthor {
			if len(left) <= maxPullsOfRepo && bytes <= most {
				s.counted = left
				return gone, true
			}
			for author, n := range of {
				if n > of[who] || n == of[who] && who != ref.author && author.Compare(who) < 0 {
					who = author
				}
			}
			if of[who] < 2 || ref.bytes > most {
				return nil, false
			}
		}
		i := slices.IndexFunc(left, func(c prRef) bool { return c.author == who })
		gone = append(gone, left[i].id)
		left = slices.Delete(left, i, i+1)
	}
}

// match reports whether all refs of pull requests in a locked repository are known. It removes
// refs that are gone.
func (s *prRefs) match(r *repository) bool {
	s.counted = slices.DeleteFunc(s.counted, func(c prRef) bool { return r.Refs.At[nip34.EventRef(c.id)].IsZero() })
	known := maps.Clone(s.members)
	for _, c := range s.counted {
		known[c.id] = struct{}{}
	}
	for name := range r.Refs.At {
		if id, ok := refplan.EventOf(name); ok {
			if _, is := known[id]; !is {
				return false
			}
		}
	}
	return true
}

// measure counts the refs of pull requests in a locked repository, the oldest first. It measures
// them together, and each of them counts an equal part. asking are pull requests whose events may
// not be stored.
func (x *prQuota) measure(ctx context.Context, r *repository, asking []*nip34.PullRequest) (*prRefs, error) {
	found, now := make(map[graspsync.EventID]prRef), nostr.Now()
	know := func(pr *nip34.PullRequest) {
		if _, is := found[pr.ID]; is { // a date in the future counts as now
			found[pr.ID] = prRef{id: pr.ID, author: pr.Author, at: min(pr.CreatedAt, now)}
		}
	}
	for name := range r.Refs.At {
		if id, ok := refplan.EventOf(name); ok {
			found[id] = prRef{id: id}
			if e, _ := x.pending.get(id); e.Pull != nil {
				know(e.Pull)
			}
		}
	}
	for _, pr := range asking {
		know(pr)
	}
	if err := x.reader.relay.pulls(ctx, r.Ref, know); err != nil {
		return nil, err
	}
	refs := &prRefs{members: make(map[graspsync.EventID]struct{})}
	var tips, others []nip34.ObjectID
	for name, at := range r.Refs.At {
		id, _ := refplan.EventOf(name)
		ref, is := found[id]
		switch {
		case is && !r.IsMember(ref.author):
			tips = append(tips, at)
			continue
		case is:
			refs.members[id] = struct{}{}
			delete(found, id)
		}
		others = append(others, at)
	}
	if len(tips) == 0 {
		return refs, nil
	}
	bytes, err := x.weigh(ctx, r, tips, others)
	if err != nil {
		return nil, err
	}
	for _, ref := range found {
		ref.bytes = bytes / int64(len(found))
		refs.counted = append(refs.counted, ref)
	}
	slices.SortFunc(refs.counted, func(a, b prRef) int { return cmp.Or(cmp.Compare(a.at, b.at), a.id.Compare(b.id)) })
	return refs, nil
}

// weigh returns the bytes that objects need and but does not. It returns more than the limit if
// that takes too long, because an author can create objects for which it does.
func (x *prQuota) weigh(ctx context.Context, r *repository, ids, but []nip34.ObjectID) (bytes int64, err error) {
	walk, cancel := halfTime(ctx)
	defer cancel()
	bytes, err = x.git.DiskUsage(walk, r.dir, ids, but)
	if err != nil && walk.Err() != nil && !errors.Is(err, gitops.ErrBusy) {
		return x.cfg.Limits.MaxPullBytes + 1, nil
	}
	return bytes, err
}

// ration decides about the refs of held pull requests whose objects are in the repository. A pull
// request whose commit a branch or tag contains needs no ref.
func (x *prQuota) ration(ctx context.Context, g *refplan.Group, r *repository) error {
	r.Merged, r.Refused = make(map[graspsync.EventID]struct{}), make(map[graspsync.EventID]struct{})
	sizes := make(map[graspsync.EventID]int64)
	var pulls []*nip34.PullRequest
	var err error
	for _, h := range g.Pulls {
		if err != nil || !slices.Contains(h.Repos, r.Ref) || !r.Has(h.Pull.Tip) || !asks(r, h.Pull) {
			continue
		}
		if sizes[h.ID], err = x.weigh(ctx, r, []nip34.ObjectID{h.Pull.Tip}, r.Refs.State()); sizes[h.ID] == 0 && err == nil {
			r.Merged[h.ID] = struct{}{}
		} else {
			pulls = append(pulls, h.Pull)
		}
	}
	var p prPlan
	if err == nil {
		p, err = x.plan(ctx, r, pulls, func(pr *nip34.PullRequest) int64 { return sizes[pr.ID] })
	}
	if errors.Is(err, gitops.ErrBusy) { // not the fault of the repository
		r.trouble = errors.Join(r.trouble, fmt.Errorf("pull request: %w", err))
		for _, h := range g.Pulls {
			r.Refused[h.ID] = struct{}{}
		}
		return nil
	}
	if err != nil {
		return err
	}
	r.Refused, r.Evicted = p.refused, p.gone
	return nil
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
	g, err := x.reader.announced(ctx, ref.Identifier, refplan.Reasons{})
	if err != nil {
		return nil, err
	}
	r := &repository{Repository: g.Repository(ref), dir: dir}
	if r.Refs, err = x.git.Refs(ctx, dir); err != nil {
		return nil, err
	}
	pulls = slices.DeleteFunc(slices.Clone(pulls), func(pr *nip34.PullRequest) bool { return !asks(r, pr) })
	refused := make(map[graspsync.EventID]string)
	if len(pulls) > 0 && x.mayCome(ref, bytes) != nil {
		for _, pr := range pulls {
			refused[pr.ID] = reasonPulls
		}
		return refused, nil
	}
	short, stop := context.WithTimeout(ctx, pullsShare)
	defer stop()
	p, err := x.plan(short, r, pulls, func(*nip34.PullRequest) int64 { return bytes / int64(len(pulls)) })
	if err != nil || len(pulls) == 0 {
		return nil, err
	}
	if len(p.gone) > 0 {
		if err := x.refUpdater.Remove(ctx, ref, dir, p.gone); err != nil {
			return nil, fmt.Errorf("removing refs: %w", err)
		}
	}
	if len(p.refused) < len(pulls) {
		x.brought(ref, bytes)
	}
	for id := range p.refused {
		refused[id] = reasonPulls
	}
	return refused, nil
}

// errNoRoom means that more data for pull requests must wait for a prune.
var errNoRoom = errors.New("no room for a pull request")

// mayCome returns an error that wraps errNoRoom if there is no room for bytes for pull requests.
// The error also wraps ErrLimit if a prune cannot make room.
func (x *prQuota) mayCome(ref graspsync.RepoRef, bytes int64) error {
	most := x.most(ref)
	switch {
	case bytes > most:
		x.report.drop("pull_refs")
		return fmt.Errorf("%w: %w", ErrLimit, errNoRoom)
	case bytes > 0 && x.table.usage(ref).came+bytes > most:
		x.report.drop("pull_pending_gc")
		x.table.changeUsage(ref, func(u *prUsage) { u.refused = true })
		x.makeDue(ref)
		return errNoRoom
	}
	return nil
}

// brought records that bytes came for pull requests. Without maintenance nothing is pruned, and so
// nothing is counted.
func (x *prQuota) brought(ref graspsync.RepoRef, bytes int64) {
	if bytes > 0 && !x.cfg.NoMaintenance {
		x.table.changeUsage(ref, func(u *prUsage) { u.came += bytes })
		x.makeDue(ref)
	}
}

// mayPrune reports whether a prune is wanted and allowed now, because many bytes came for pull
// requests or some were refused.
func (x *prQuota) mayPrune(ref graspsync.RepoRef, now time.Time) bool {
	u := x.table.usage(ref)
	return (u.refused || u.came > 0 && u.came >= x.cfg.Limits.MaxPullBytes/2) && !now.Before(u.nextPrune)
}

// makeDue makes a repository due for maintenance if it may be pruned.
func (x *prQuota) makeDue(ref graspsync.RepoRef) {
	if x.mayPrune(ref, time.Now()) {
		x.maintenance.add(ref)
	}
}

func (x *prQuota) makeAllDue() {
	for ref := range x.table.usages() {
		x.makeDue(ref)
	}
}

// pruned records a prune that began after came bytes, and left left bytes of unnamed objects. It
// reports whether there is more room. The next prune waits longer than this one took.
func (x *prQuota) pruned(ref graspsync.RepoRef, began time.Time, came, left int64) (more bool) {
	x.table.changeUsage(ref, func(u *prUsage) {
		was := u.came
		u.came = max(0, u.came-came) + min(came, left)
		u.nextPrune = began.Add(max(min(crowdedGrace, x.cfg.Times.Grace), upkeepShare*time.Since(began)))
		if u.came < was {
			u.refused, more = false, true
		}
	})
	return more
}

// most returns the maximum number of bytes of pull requests in a repository. It shrinks with the
// share of MaxOwnerPullBytes that other repositories of the owner use, because strangers must not
// keep pull requests out of all of them.
func (x *prQuota) most(ref graspsync.RepoRef) int64 {
	most, all, u := x.cfg.Limits.MaxPullBytes, x.cfg.Limits.MaxOwnerPullBytes, x.table.usage(ref)
	left := all - x.ofOwner(ref.Owner) + u.bytes + u.came
	return max(1, int64(float64(most)*float64(max(0, left))/float64(all)))
}

// ofOwner implements [Purgatory.PullBytes].
func (x *prQuota) ofOwner(owner graspsync.PubKey) (bytes int64) {
	for ref, u := range x.table.usages() {
		if ref.Owner == owner {
			bytes += u.bytes + u.came
		}
	}
	return bytes
}
