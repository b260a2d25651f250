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
)

// Limits of refs of pull requests by non-members, because every client that fetches receives all
// names.
const (
	maxPullsOfAuthor = 100
	maxPullsOfRepo   = 5_000
)

// prUsage is the use of a repository by pull requests of non-members. Limits.MaxPullBytes bounds
// bytes and came. An event whose ref was removed stays stored. An event whose ref was refused stays
// held, and each release judges it again.
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

// needsRef reports whether a pull request needs a new ref that counts.
func needsRef(r *repository, pr *nip34.PullRequest) bool {
	_, has := r.Refs.At[nip34.EventRef(pr.ID)]
	return !has && !r.IsMember(pr.Author)
}

// planPulls sets r.Refused and r.Evicted: the pull requests without a ref, and the refs that make room.
func (p *Purgatory) planPulls(ctx context.Context, r *repository, pulls []*nip34.PullRequest, size func(*nip34.PullRequest) int64) error {
	r.Refused = make(map[graspsync.EventID]struct{})
	if len(pulls) == 0 {
		return nil
	}
	var need int64
	for _, pr := range pulls {
		need += size(pr)
	}
	refs := p.table.get(r.Ref).pulls.refs
	if refs == nil || refs.bytes()+need > p.mostPullBytes(r.Ref) || !refs.match(r) {
		var err error
		if refs, err = p.measurePulls(ctx, r, pulls); err != nil {
			return err
		}
	}
	slices.SortFunc(pulls, func(a, b *nip34.PullRequest) int {
		return cmp.Or(cmp.Compare(a.CreatedAt, b.CreatedAt), a.ID.Compare(b.ID))
	})
	for _, pr := range pulls {
		gone, ok := refs.put(prRef{id: pr.ID, author: pr.Author, bytes: size(pr)}, p.mostPullBytes(r.Ref))
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
	p.table.change(r.Ref, func(s *repoState) { s.pulls.refs, s.pulls.bytes = refs, refs.bytes() })
	for range r.Evicted {
		p.report.drop("pull_displaced")
	}
	for range r.Refused {
		p.report.drop("pull_refs")
	}
	return nil
}

// put counts a new ref and returns the refs that make room for it: the oldest ones of its author or
// of the author with the most refs. It returns false if each author has only one.
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

// measurePulls counts the refs of pull requests, the oldest first. They are measured together and count
// equal parts. The events of asking may not be stored.
func (p *Purgatory) measurePulls(ctx context.Context, r *repository, asking []*nip34.PullRequest) (*prRefs, error) {
	found, now := make(map[graspsync.EventID]prRef), nostr.Now()
	know := func(pr *nip34.PullRequest) {
		if _, is := found[pr.ID]; is { // a date in the future counts as now
			found[pr.ID] = prRef{id: pr.ID, author: pr.Author, at: min(pr.CreatedAt, now)}
		}
	}
	for name := range r.Refs.At {
		if id, ok := refplan.EventOf(name); ok {
			found[id] = prRef{id: id}
			if e, _ := p.pending.get(id); e.Pull != nil {
				know(e.Pull)
			}
		}
	}
	for _, pr := range asking {
		know(pr)
	}
	if err := p.relay.pulls(ctx, r.Ref, know); err != nil {
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
	bytes, err := p.weighObjects(ctx, r, tips, others)
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

// weighObjects returns the bytes that ids need and but does not. It returns more than the limit if that
// takes too long, because an author can create such objects.
func (p *Purgatory) weighObjects(ctx context.Context, r *repository, ids, but []nip34.ObjectID) (bytes int64, err error) {
	walk, cancel := halfTime(ctx)
	defer cancel()
	bytes, err = p.git.DiskUsage(walk, r.dir, ids, but)
	if err != nil && walk.Err() != nil && !errors.Is(err, gitops.ErrBusy) {
		return p.cfg.Limits.MaxPullBytes + 1, nil
	}
	return bytes, err
}

// planHeldPulls decides about the refs of held pull requests. A merged commit needs no ref.
func (p *Purgatory) planHeldPulls(ctx context.Context, g *refplan.Group, r *repository) error {
	r.Merged = make(map[graspsync.EventID]struct{})
	sizes := make(map[graspsync.EventID]int64)
	var pulls []*nip34.PullRequest
	var err error
	for _, h := range g.HeldPulls {
		if err != nil || !slices.Contains(h.Repos, r.Ref) || !r.Has(h.Pull.Tip) || !needsRef(r, h.Pull) {
			continue
		}
		if sizes[h.ID], err = p.weighObjects(ctx, r, []nip34.ObjectID{h.Pull.Tip}, r.Refs.State()); sizes[h.ID] == 0 && err == nil {
			r.Merged[h.ID] = struct{}{}
		} else {
			pulls = append(pulls, h.Pull)
		}
	}
	if err == nil {
		err = p.planPulls(ctx, r, pulls, func(pr *nip34.PullRequest) int64 { return sizes[pr.ID] })
	}
	if errors.Is(err, gitops.ErrBusy) { // not the fault of the repository
		r.partialErr = errors.Join(r.partialErr, fmt.Errorf("pull request: %w", err))
		r.Refused, r.Evicted = make(map[graspsync.EventID]struct{}), nil
		for _, h := range g.HeldPulls {
			r.Refused[h.ID] = struct{}{}
		}
		return nil
	}
	return err
}

// AdmitPullRefs returns the pull requests whose refs a push of bytes may not create, each with a
// reason for the client, and makes room for the others. The caller holds the lock of the repository.
func (p *Purgatory) AdmitPullRefs(ctx context.Context, ref graspsync.RepoRef, dir string, pulls []*nip34.PullRequest, bytes int64) (map[graspsync.EventID]string, error) {
	ctx, cancel := context.WithTimeout(ctx, p.cfg.fixed.Timeout)
	defer cancel()
	if err := p.refUpdater.Mend(ctx, ref, dir); err != nil { // the push has locked it without refUpdater
		return nil, fmt.Errorf("mending a repository: %w", err)
	}
	if len(pulls) == 0 {
		return nil, nil
	}
	g, err := p.readGroup(ctx, ref.Identifier, refplan.Reasons{})
	if err != nil {
		return nil, err
	}
	r := &repository{Repository: g.Repository(ref), dir: dir}
	if r.Refs, err = p.git.Refs(ctx, dir); err != nil {
		return nil, err
	}
	pulls = slices.DeleteFunc(slices.Clone(pulls), func(pr *nip34.PullRequest) bool { return !needsRef(r, pr) })
	refused := make(map[graspsync.EventID]string)
	if len(pulls) > 0 && p.checkPullRoom(ref, bytes) != nil {
		for _, pr := range pulls {
			refused[pr.ID] = reasonPulls
		}
		return refused, nil
	}
	short, stop := context.WithTimeout(ctx, pullsShare)
	defer stop()
	err = p.planPulls(short, r, pulls, func(*nip34.PullRequest) int64 { return bytes / int64(len(pulls)) })
	if err != nil || len(pulls) == 0 {
		return nil, err
	}
	if len(r.Evicted) > 0 {
		if err := p.refUpdater.MoveEach(ctx, ref, dir, r.Evicted, nip34.RefName{}); err != nil {
			return nil, fmt.Errorf("removing refs: %w", err)
		}
	}
	if len(r.Refused) < len(pulls) {
		p.addPullBytes(ref, bytes)
	}
	for id := range r.Refused {
		refused[id] = reasonPulls
	}
	return refused, nil
}

// errNoRoom means that more data for pull requests must wait for a prune.
var errNoRoom = errors.New("no room for a pull request")

// checkPullRoom returns an error that wraps errNoRoom if there is no room, and ErrLimit if a prune
// cannot make room.
func (p *Purgatory) checkPullRoom(ref graspsync.RepoRef, bytes int64) error {
	most := p.mostPullBytes(ref)
	switch {
	case bytes > most:
		p.report.drop("pull_refs")
		return fmt.Errorf("%w: %w", ErrLimit, errNoRoom)
	case bytes > 0 && p.table.get(ref).pulls.came+bytes > most:
		p.report.drop("pull_pending_gc")
		p.table.change(ref, func(s *repoState) { s.pulls.refused = true })
		p.makePruneDue(ref)
		return errNoRoom
	}
	return nil
}

// addPullBytes records that bytes came for pull requests. Without maintenance nothing is pruned, and
// so nothing is counted.
func (p *Purgatory) addPullBytes(ref graspsync.RepoRef, bytes int64) {
	if bytes > 0 && !p.cfg.NoMaintenance {
		p.table.change(ref, func(s *repoState) { s.pulls.came += bytes })
		p.makePruneDue(ref)
	}
}

// mayPrune reports whether a prune is wanted and allowed now.
func (p *Purgatory) mayPrune(ref graspsync.RepoRef, now time.Time) bool {
	u := p.table.get(ref).pulls
	return (u.refused || u.came > 0 && u.came >= p.cfg.Limits.MaxPullBytes/2) && !now.Before(u.nextPrune)
}

func (p *Purgatory) makePruneDue(ref graspsync.RepoRef) {
	if p.mayPrune(ref, time.Now()) {
		p.maintenance.add(ref)
	}
}

func (p *Purgatory) makeAllPrunesDue() {
	for ref := range p.table.usages() {
		p.makePruneDue(ref)
	}
}

func (p *Purgatory) recordPrune(ref graspsync.RepoRef, began time.Time, came, left int64) (more bool) {
	p.table.change(ref, func(s *repoState) {
		u := &s.pulls
		was := u.came
		u.came = max(0, u.came-came) + min(came, left)
		u.nextPrune = began.Add(max(min(crowdedGrace, p.cfg.Times.Grace), upkeepShare*time.Since(began)))
		if u.came < was {
			u.refused, more = false, true
		}
	})
	return more
}

// mostPullBytes returns the maximum bytes of pull requests in a repository. It shrinks with the share
// of MaxOwnerPullBytes that other repositories use, so that some room is left in each.
func (p *Purgatory) mostPullBytes(ref graspsync.RepoRef) int64 {
	most, all, u := p.cfg.Limits.MaxPullBytes, p.cfg.Limits.MaxOwnerPullBytes, p.table.get(ref).pulls
	left := all + u.bytes + u.came
	for other, u := range p.table.usages() {
		if other.Owner == ref.Owner {
			left -= u.bytes + u.came
		}
	}
	return max(1, int64(float64(most)*float64(max(0, left))/float64(all)))
}

// pullsShare is the maximum time of one release for pull requests, because anyone can write them.
const pullsShare = 5 * time.Second

// movePulls is findAndMove for pull requests, in at most pullsShare.
func (p *Purgatory) movePulls(ctx context.Context, g *refplan.Group, r *repository) error {
	sets := g.PullObjects(r.Repository)
	if len(sets) == 0 {
		return nil
	}
	short, cancel := context.WithTimeout(ctx, pullsShare)
	defer cancel()
	err := p.findPulls(short, g, r, sets)
	if err != nil && short.Err() != nil && ctx.Err() == nil {
		r.partialErr = errors.Join(r.partialErr, fmt.Errorf("pull requests: %w", err))
		r.Refused, r.Evicted = nil, nil
		return nil
	}
	if err != nil {
		return err
	}
	if err := p.readAgain(ctx, g, r); err != nil {
		return err
	}
	return p.moveRefs(ctx, g, r)
}

func (p *Purgatory) findPulls(ctx context.Context, g *refplan.Group, r *repository, sets []refplan.Objects) error {
	if err := p.findObjects(ctx, r, sets); err != nil {
		return err
	}
	p.importStaged(ctx, g, r)
	if err := p.share(ctx, g, r, sets); err != nil {
		return err
	}
	return p.planHeldPulls(ctx, g, r)
}

// importStaged imports the data that was pushed for pull requests before their events.
func (p *Purgatory) importStaged(ctx context.Context, g *refplan.Group, r *repository) {
	for _, h := range g.HeldPulls {
		if !slices.Contains(h.Repos, r.Ref) {
			continue
		}
		uploads := p.repos.Staged(r.Ref, h.ID)
		if len(uploads) == 0 {
			continue
		}
		err := p.importUpload(ctx, r, h.Pull, uploads)
		if errors.Is(err, errNoRoom) {
			continue
		}
		if err != nil {
			// The import is repeated and blocks nothing else.
			r.partialErr = errors.Join(r.partialErr, fmt.Errorf("importing staged data: %w", err))
			continue
		}
		for _, u := range uploads {
			p.repos.unlock(u.Discard)
		}
		p.step("unstaged")
	}
}

// importUpload imports the tip of a pull request from the first complete upload.
func (p *Purgatory) importUpload(ctx context.Context, r *repository, pr *nip34.PullRequest, uploads []Upload) error {
	tip := pr.Tip
	for _, u := range uploads {
		if !r.IsIncomplete(tip) || tip.Format() != r.Refs.Format {
			return nil
		}
		if u.Tip != tip {
			continue
		}
		if !r.IsMember(pr.Author) {
			if err := p.checkPullRoom(r.Ref, u.Bytes); err != nil {
				return err
			}
		}
		if err := p.repos.Reserve(ctx, r.Ref, true, u.Bytes); err != nil { // staged bytes are in no quota yet
			return err
		}
		work, cancel := halfTime(ctx)
		err := p.git.ImportPacks(work, r.dir, u.Dir, []nip34.ObjectID{tip})
		cancel()
		switch {
		case err == nil:
			p.step("taken")
			p.addPullBytes(r.Ref, u.Bytes)
			delete(r.Missing, tip)
			r.Found[tip] = struct{}{}
			r.receivedObjects = true
		case errors.Is(err, ErrNotServed):
			p.report.drop("incomplete")
		default:
			return err
		}
	}
	return nil
}

// queueForTips releases the other repositories that lack a tip which this one received.
func (p *Purgatory) queueForTips(g *refplan.Group, r *repository) {
	lacking := p.table.lackingUnder
	for _, h := range g.HeldPulls {
		for _, ref := range h.Repos {
			if _, lacks := lacking(ref.Identifier)[ref]; lacks && ref != r.Ref && r.Has(h.Pull.Tip) {
				p.jobs.AddRelease(ref, refplan.Reasons{})
			}
		}
	}
}

func (p *Purgatory) releasePulls(ctx context.Context, g *refplan.Group, r *repository) error {
	var errs []error
	g.HeldPulls = slices.DeleteFunc(g.HeldPulls, func(h refplan.Entry) bool {
		done, err := p.releasePull(ctx, r, h)
		if errors.Is(err, ErrRefused) {
			g.Ending = append(g.Ending, refplan.Ended{Entry: h, Reason: refplan.NotStored})
			done, err = true, nil
		}
		errs = append(errs, err)
		return done && err == nil
	})
	return errors.Join(errs...)
}

// releasePull stores a pull request when the first repository has its ref. The hold goes on until
// the other hosted repositories have it.
func (p *Purgatory) releasePull(ctx context.Context, r *repository, h refplan.Entry) (done bool, err error) {
	_, merged := r.Merged[h.ID]
	has := slices.Contains(h.Repos, r.Ref) && (merged || r.Refs.At[nip34.EventRef(h.ID)] == h.Pull.Tip)
	if len(h.Repos) == 1 {
		if has && r.Active {
			err = p.storeHeld(ctx, h)
		}
		if errors.Is(err, errNotHeld) {
			return true, nil
		}
		return has && r.Active && err == nil, err
	}
	unlock, err := p.storing.Lock(ctx, h.ID) // other repositories may release it concurrently
	if err != nil {
		return false, err
	}
	defer unlock()
	if served := p.pending.isServed(h.ID); !served && !(has && r.Active) {
		return false, nil
	} else if !served {
		if err := p.store(ctx, h); err != nil {
			return false, err
		}
	}
	if lacks, err := p.lackRef(ctx, r, h, p.pending.markServed(h.ID, r.Ref, has)); err != nil || lacks {
		return false, err
	}
	return true, p.pending.forget(ctx, h, Released)
}

func (p *Purgatory) lackRef(ctx context.Context, r *repository, h refplan.Entry, has map[graspsync.RepoRef]struct{}) (bool, error) {
	for _, ref := range h.Repos {
		if _, ok := has[ref]; ok {
			continue
		}
		if r.Ref == ref && r.Refs.Format != h.Pull.Tip.Format() {
			continue
		}
		if held, ok := p.pending.announcement(ref); ok && !held.Soft {
			return true, nil
		}
		if ours, err := p.announcementStored(ctx, ref); err != nil || ours {
			return ours, err
		}
	}
	return false, nil
}

// endPulls removes the refs of ended pull requests, and ends their holds. No repository is locked.
func (p *Purgatory) endPulls(ctx context.Context, g *refplan.Group) error {
	var errs []error
	for _, o := range g.Ending {
		if o.Entry.Class != refplan.PullRequest {
			continue
		}
		err := p.dropPull(ctx, o.Entry)
		if err == nil {
			err = p.pending.forget(ctx, o.Entry, o.Reason)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// dropOrphans removes refs of pull requests whose events were evicted or deleted. If sync brings an
// event again, its objects still exist. The repository is not locked.
func (p *Purgatory) dropOrphans(ctx context.Context, r *repository) error {
	var ids []graspsync.EventID
	for name := range r.Refs.At {
		if id, ok := refplan.EventOf(name); ok && !p.pending.holdsFor(id, r.Ref) { // before the relay is asked, because a release may store it
			ids = append(ids, id)
		}
	}
	unknown, err := p.relay.lacks(ctx, ids)
	if err != nil {
		return err
	}
	return p.dropRefs(ctx, r.Ref, slices.DeleteFunc(unknown, func(id graspsync.EventID) bool { return p.pending.holdsFor(id, r.Ref) })...)
}

func (p *Purgatory) withRoom(ctx context.Context, g *refplan.Group, r *repository, dir string, ids []nip34.ObjectID) (out []nip34.ObjectID, bytes int64, err error) {
	decided := setOf(refplan.IDsOf(g.StateObjects(r.Repository)))
	ofPull := func(id nip34.ObjectID) bool { _, is := decided[id]; return !is }
	if !slices.ContainsFunc(ids, ofPull) {
		return ids, 0, nil
	}
	out = slices.DeleteFunc(slices.Clone(ids), ofPull)
	both, err := p.has(ctx, dir, slices.Collect(maps.Values(r.Refs.At)))
	if err != nil {
		return nil, 0, err
	}
	walk, cancel := halfTime(ctx)
	defer cancel()
	bytes, err = p.git.DiskUsage(walk, dir, without(ids, out), both)
	if ctx.Err() != nil || errors.Is(err, gitops.ErrBusy) {
		return nil, 0, err
	}
	if err == nil {
		err = p.checkPullRoom(r.Ref, bytes)
	}
	if err != nil { // too slow, incomplete or no room, which blocks nothing else
		p.cfg.Logger.Debug("copying objects of pull requests postponed", keyRepo, graspsync.Printable(r.Ref.String()), keyError, graspsync.Printable(err.Error()))
		return out, 0, nil
	}
	return ids, bytes, nil
}

func without(ids, others []nip34.ObjectID) []nip34.ObjectID {
	return slices.DeleteFunc(slices.Clone(ids), func(id nip34.ObjectID) bool { return slices.Contains(others, id) })
}
