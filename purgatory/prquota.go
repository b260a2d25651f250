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

// Limits of refs of pull requests by non-members, because every client that fetches receives all
// names.
const (
	maxPullsOfAuthor = 100
	maxPullsOfRepo   = 5_000
)

// prQuota decides which pull requests of non-members have a ref. Limits.MaxPullBytes bounds the
// bytes of these refs, and the bytes that came for pull requests since the last prune. An event
// whose ref was removed stays stored. An event whose ref was refused stays held, and each release
// judges it again.
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

type prUsage struct {
	refs      *prRefs // nil: not measured. Only the holder of the lock of the repository uses it.
	bytes     int64
	came      int64 // bytes that came since the last prune or that it left
	refused   bool
	nextPrune time.Time
}

type prRefs struct {
	counted []prRef // of non-members, the oldest first
	members map[graspsync.EventID]struct{}
}

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

// asks reports whether a pull request needs a new ref that counts.
func asks(r *repository, pr *nip34.PullRequest) bool {
	_, has := r.Refs.At[nip34.EventRef(pr.ID)]
	return !has && !r.IsMember(pr.Author)
}

// plan sets r.Refused and r.Evicted: the pull requests without a ref, and the refs that make room.
func (x *prQuota) plan(ctx context.Context, r *repository, pulls []*nip34.PullRequest, size func(*nip34.PullRequest) int64) error {
	r.Refused = make(map[graspsync.EventID]struct{})
	if len(pulls) == 0 {
		return nil
	}
	var need int64
	for _, pr := range pulls {
		need += size(pr)
	}
	refs := x.table.usage(r.Ref).refs
	if refs == nil || refs.bytes()+need > x.most(r.Ref) || !refs.match(r) {
		var err error
		if refs, err = x.measure(ctx, r, pulls); err != nil {
			return err
		}
	}
	slices.SortFunc(pulls, func(a, b *nip34.PullRequest) int {
		return cmp.Or(cmp.Compare(a.CreatedAt, b.CreatedAt), a.ID.Compare(b.ID))
	})
	for _, pr := range pulls {
		gone, ok := refs.put(prRef{id: pr.ID, author: pr.Author, bytes: size(pr)}, x.most(r.Ref))
		if !ok {
			r.Refused[pr.ID] = struct{}{}
		}
		for _, id := range gone {
			if name := nip34.EventRef(id); r.Refs.At[name].IsZero() {
				r.Refused[id] = struct{}{}
			} else {
				r.Evicted = append(r.Evicted, refplan.RefChange{Name: name, Old: r.Refs.At[name]})
			}
		}
	}
	x.table.changeUsage(r.Ref, func(u *prUsage) { u.refs, u.bytes = refs, refs.bytes() })
	for range r.Evicted {
		x.report.drop("pull_displaced")
	}
	for range r.Refused {
		x.report.drop("pull_refs")
	}
	return nil
}

// put counts a new ref and returns the refs that make room for it: the oldest of its author if that
// author has too many, and of the author with the most refs if there are too many refs or bytes. It
// returns false if it would have to remove the only ref of an author.
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

// match reports whether all refs of pull requests are known. It removes refs that are gone.
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

// measure counts the refs of pull requests, the oldest first. They are measured together and count
// equal parts. The events of asking may not be stored.
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

// weigh returns the bytes that ids need and but does not. It returns more than the limit if that
// takes too long, because an author can create such objects.
func (x *prQuota) weigh(ctx context.Context, r *repository, ids, but []nip34.ObjectID) (bytes int64, err error) {
	walk, cancel := halfTime(ctx)
	defer cancel()
	bytes, err = x.git.DiskUsage(walk, r.dir, ids, but)
	if err != nil && walk.Err() != nil && !errors.Is(err, gitops.ErrBusy) {
		return x.cfg.Limits.MaxPullBytes + 1, nil
	}
	return bytes, err
}

// ration decides about the refs of held pull requests. If a branch or tag contains the commit, no
// ref is needed.
func (x *prQuota) ration(ctx context.Context, g *refplan.Group, r *repository) error {
	r.Merged = make(map[graspsync.EventID]struct{})
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
	if err == nil {
		err = x.plan(ctx, r, pulls, func(pr *nip34.PullRequest) int64 { return sizes[pr.ID] })
	}
	if errors.Is(err, gitops.ErrBusy) { // not the fault of the repository
		r.trouble = errors.Join(r.trouble, fmt.Errorf("pull request: %w", err))
		r.Refused, r.Evicted = make(map[graspsync.EventID]struct{}), nil
		for _, h := range g.Pulls {
			r.Refused[h.ID] = struct{}{}
		}
		return nil
	}
	return err
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
	err = x.plan(short, r, pulls, func(*nip34.PullRequest) int64 { return bytes / int64(len(pulls)) })
	if err != nil || len(pulls) == 0 {
		return nil, err
	}
	if len(r.Evicted) > 0 {
		if err := x.refUpdater.Remove(ctx, ref, dir, r.Evicted); err != nil {
			return nil, fmt.Errorf("removing refs: %w", err)
		}
	}
	if len(r.Refused) < len(pulls) {
		x.brought(ref, bytes)
	}
	for id := range r.Refused {
		refused[id] = reasonPulls
	}
	return refused, nil
}

// errNoRoom means that more data for pull requests must wait for a prune.
var errNoRoom = errors.New("no room for a pull request")

// mayCome returns an error that wraps errNoRoom if there is no room, and ErrLimit if a prune cannot
// make room.
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

// mayPrune reports whether a prune is wanted and allowed now.
func (x *prQuota) mayPrune(ref graspsync.RepoRef, now time.Time) bool {
	u := x.table.usage(ref)
	return (u.refused || u.came > 0 && u.came >= x.cfg.Limits.MaxPullBytes/2) && !now.Before(u.nextPrune)
}

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
// reports whether there is more room.
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

// most returns the maximum bytes of pull requests in a repository. It shrinks with the share of
// MaxOwnerPullBytes that other repositories use, because strangers must not keep pull requests out
// of all of them.
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
