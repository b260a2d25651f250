package purgatory

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory/internal/ration"
	"github.com/graspsync/graspsync/purgatory/internal/resolve"
	"github.com/graspsync/graspsync/purgatory/internal/stopwatch"
)

// The refs of pull requests are for anybody to have made, of commits that are here, and
// everybody who pushes is told of all of them. Those without a say in a repository have so
// many each, and all together; what they take up is bounded by Limits.MaxPullBytes.
const (
	maxPullsOfAuthor = 100
	maxPullsOfRepo   = 5_000
)

// rations decides which pull requests have a ref, whatever comes first, the event or its data, and
// whoever makes it. Package ration has the rule. An event whose ref was removed stays; one whose ref
// was refused waits, and is judged again at each look.
type rations struct {
	// set by newRations, read-only
	cfg          *Config
	report       *report
	git          containedGit
	waiting      *waiting
	findings     *findings
	reader       *reader
	mover        *mover
	displacement *displacement

	mu      sync.Mutex
	weights map[graspsync.RepoRef]weighed // guarded by mu
}

func newRations(cfg *Config, report *report, git containedGit, waiting *waiting, findings *findings, reader *reader,
	mover *mover, displacement *displacement,
) *rations {
	return &rations{
		cfg: cfg, report: report, git: git, waiting: waiting, findings: findings, reader: reader, mover: mover, displacement: displacement,
		weights: make(map[graspsync.RepoRef]weighed),
	}
}

// weighed is what the pull requests of a repository were found to take up that have refs,
// when its branches and tags were what a hash says.
type weighed struct {
	of    map[graspsync.EventID]int64
	state [sha256.Size]byte
	// merged says of those that were looked up whether a branch or a tag has their commit.
	merged map[graspsync.EventID]bool
	// stale are those of which it must be found again: what they need somebody else had as
	// well, for whom it counted, and who has no ref any more, or may not have been weighed.
	stale map[graspsync.EventID]struct{}
	again bool // one more has gone since these began to be weighed
}

// begin has all weighed again if one has gone for which anything counted: others may keep
// that. Those that are being weighed again are done with first.
func (w weighed) begin(refs resolve.Refs) weighed {
	gone := w.again
	for id, bytes := range w.of {
		_, has := refs.At[nip34.EventRef(id)]
		gone = gone || bytes > 0 && !has
	}
	if w.again = gone; !gone || len(w.stale) > 0 {
		return w
	}
	w.again, w.stale = false, make(map[graspsync.EventID]struct{}, len(w.of))
	for id := range w.of {
		w.stale[id] = struct{}{}
	}
	return w
}

// stateOf is a hash of what branches and tags are at.
func stateOf(refs resolve.Refs) [sha256.Size]byte {
	return sha256.Sum256(fmt.Append(nil, refs.State()))
}

// asked are pull requests that are to have a ref in a repository that is locked.
type asked struct {
	*repository
	pulls []*nip34.PullRequest
	bytes int64 // that each may bring; -1: it is here, and can be weighed
}

// asks reports whether a pull request is to have a ref for which there must be room.
func (a asked) asks(pr *nip34.PullRequest) bool {
	_, has := a.Refs.At[nip34.EventRef(pr.ID)]
	return !has && !a.IsMember(pr.Author)
}

// answered is what becomes of that.
type answered struct {
	over    map[graspsync.EventID]struct{} // of those that were asked for, and of others
	gone    []resolve.RefChange            // what others had
	leaves  int64                          // bytes that only those needed
	unswept bool                           // there was room but for what has given way before
	weighed weighed
}

// weighShare bounds the time in which it is found out, at a time, what refs take up of
// which that is not known: those that a push has moved, and all after a restart.
const weighShare = time.Second

// judge says which pull requests may have a ref, and whose ref must go for that.
func (x *rations) judge(ctx context.Context, a asked) (answered, error) {
	out := answered{over: make(map[graspsync.EventID]struct{})}
	a.pulls = slices.DeleteFunc(slices.Clone(a.pulls), func(pr *nip34.PullRequest) bool { return !a.asks(pr) })
	if len(a.pulls) == 0 {
		return out, nil
	}
	var err error
	if out.weighed, err = x.weigh(ctx, a); err != nil {
		return out, err
	}
	sum, refs := int64(0), len(a.pulls)
	for _, w := range out.weighed.of {
		sum += w
	}
	for name := range a.Refs.At {
		if !resolve.IsState(name) {
			refs++
		}
	}
	if x.waitsForPrune(a, &out, nil) || refs <= maxPullsOfAuthor && sum <= x.cfg.Limits.MaxPullBytes {
		return out, nil
	}
	ids, err := x.choose(ctx, a, &out.weighed)
	if err != nil {
		return out, err
	}
	out.leaves = x.leaving(ctx, a, ids, out.weighed.of)
	if x.waitsForPrune(a, &out, ids) {
		out.leaves = 0
		return out, nil
	}
	for _, id := range ids {
		name := nip34.EventRef(id)
		out.over[id] = struct{}{}
		if at, has := a.Refs.At[name]; has {
			out.gone = append(out.gone, resolve.RefChange{Name: name, Old: at})
		}
	}
	return out, nil
}

// waitsForPrune reports whether pull requests that take up anything must wait until what
// has given way is gone from the disk, and for which others would have to as well, and
// refuses them then: else who pushes again and again could have any number of bytes there.
func (x *rations) waitsForPrune(a asked, out *answered, over []graspsync.EventID) bool {
	there := x.displacement.besides(a, out.weighed.of, over)
	most := x.cfg.Limits.MaxPullBytes
	if there <= x.displacement.little() || there < most && there+out.leaves <= most {
		return false
	}
	x.displacement.makeDue(a.Ref)
	for _, pr := range a.pulls {
		if out.weighed.of[pr.ID] > 0 || len(over) > 0 {
			out.over[pr.ID] = struct{}{}
			out.unswept = true
		}
	}
	return out.unswept
}

// leaving weighs what only refs need that are to go: what others need as well counted for
// one of them and stays. What there is no time for is as it was.
func (x *rations) leaving(ctx context.Context, a asked, ids []graspsync.EventID, weights map[graspsync.EventID]int64) (sum int64) {
	goes := setOf(ids)
	here := make(map[nip34.ObjectID]struct{})
	for name, at := range a.Refs.At {
		id, of := resolve.EventOf(name)
		if _, going := goes[id]; !of || !going {
			here[at] = struct{}{}
		}
	}
	but := slices.Collect(maps.Keys(here))
	until := min(a.until, a.watch.Worked()+weighShare)
	for _, id := range ids {
		at, has := a.Refs.At[nip34.EventRef(id)]
		if _, stays := here[at]; stays || !has {
			continue
		}
		bytes := weights[id]
		if a.watch.Worked() < until {
			err := a.work(ctx, weighShare, func(ctx context.Context) error {
				w, err := x.git.Weigh(ctx, a.dir, at, but)
				if err == nil {
					bytes = w
				}
				return err
			})
			if err != nil {
				x.cfg.Logger.Debug("what gives way could not be weighed", keyRepo, graspsync.Printable(a.Ref.String()), keyError, graspsync.Printable(err.Error()))
			}
		}
		sum += bytes
		here[at] = struct{}{}
		but = append(but, at)
	}
	return sum
}

// chooseMost is how long it waits in all for places in which git may run to choose what is
// kept: nobody waits for that, and no lock is held.
const chooseMost = 10 * time.Minute

// worthKeeping returns what strangers' pull requests name that wait and whose data is here,
// as far as they would have a ref if there were nothing but what has one, and what each
// takes up. What can't be weighed in the time that there is has no room. The lock of the
// repository, which is in dir, is not needed.
func (x *rations) worthKeeping(ctx context.Context, ref graspsync.RepoRef, dir string) ([]nip34.ObjectID, map[graspsync.EventID]int64, error) {
	waiting := x.waiting.pulls(ref)
	if len(waiting) == 0 {
		return nil, nil, nil
	}
	a, err := x.ask(ctx, ref, dir, waiting, 0)
	if err != nil {
		return nil, nil, err
	}
	waiting = slices.DeleteFunc(inTurns(waiting), func(pr *nip34.PullRequest) bool {
		return !a.asks(pr) || pr.Tip.Format() != a.Refs.Format
	})
	a.watch = stopwatch.New(chooseMost, ErrCrowded)
	var weights weighed
	for fits := false; !fits; {
		if weights, err = x.weighWaiting(ctx, &a, waiting); err != nil {
			return nil, nil, err
		}
		over, err := x.chooseWaiting(ctx, a, weights)
		if err != nil {
			return nil, nil, err
		}
		waiting = slices.DeleteFunc(slices.Clone(a.pulls), func(pr *nip34.PullRequest) bool {
			_, is := over[pr.ID]
			return is
		})
		fits = len(waiting) == len(a.pulls) // else others may need what those do that go
	}
	var tips []nip34.ObjectID
	waits := make(map[graspsync.EventID]int64)
	for _, pr := range a.pulls {
		tips = append(tips, pr.Tip)
		waits[pr.ID] = weights.of[pr.ID]
	}
	return tips, waits, nil
}

// weighWaiting weighs pull requests that have no ref, and has those be asked for whose data
// is here.
func (x *rations) weighWaiting(ctx context.Context, a *asked, waiting []*nip34.PullRequest) (weighed, error) {
	var tips []nip34.ObjectID
	for _, pr := range waiting {
		tips = append(tips, pr.Tip)
	}
	tips, err := x.git.has(ctx, a.dir, tips)
	if err != nil {
		return weighed{}, err
	}
	a.pulls, a.bytes = nil, -1
	weights, err := x.weigh(ctx, *a)
	if err != nil {
		return weighed{}, err
	}
	here := setOf(tips)
	but := slices.Collect(maps.Values(a.Refs.At))
	for _, pr := range waiting {
		if _, is := here[pr.Tip]; !is {
			continue
		}
		bytes, err := x.weighOne(ctx, *a, pr.Tip, but, a.left()/2)
		switch {
		case err == nil:
			weights.of[pr.ID] = bytes
			a.pulls = append(a.pulls, pr)
			but = append(but, pr.Tip)
		case ctx.Err() != nil || errors.Is(err, ErrCrowded):
			return weighed{}, err
		default: // something that it needs is not here: to keep it is of no use
			x.cfg.Logger.Debug("what waits could not be weighed", keyRepo, graspsync.Printable(a.Ref.String()), keyError, graspsync.Printable(err.Error()))
		}
	}
	return weights, nil
}

// chooseWaiting returns which of the pull requests that are asked for would have no ref.
func (x *rations) chooseWaiting(ctx context.Context, a asked, weights weighed) (map[graspsync.EventID]struct{}, error) {
	over, err := x.choose(ctx, a, &weights)
	return setOf(over), err
}

// inTurns orders pull requests so that each author's newest come first, then each one's second.
func inTurns(pulls []*nip34.PullRequest) []*nip34.PullRequest {
	slices.SortFunc(pulls, func(a, b *nip34.PullRequest) int {
		return cmp.Or(cmp.Compare(b.CreatedAt, a.CreatedAt), a.ID.Compare(b.ID))
	})
	had := make(map[graspsync.PubKey]int)
	turn := make(map[graspsync.EventID]int)
	for _, pr := range pulls {
		turn[pr.ID] = had[pr.Author]
		had[pr.Author]++
	}
	slices.SortStableFunc(pulls, func(a, b *nip34.PullRequest) int { return cmp.Compare(turn[a.ID], turn[b.ID]) })
	return pulls
}

// forget is for a repository that is not here any more: nobody looks for what gave way there,
// which would count for its owner for good.
func (x *rations) forget(ref graspsync.RepoRef) {
	x.mu.Lock()
	delete(x.weights, ref)
	x.mu.Unlock()
	x.displacement.forget(ref)
}

// remove removes the ref of an event from a repository that is locked, and counts what
// only that needed.
func (x *rations) remove(ctx context.Context, ref graspsync.RepoRef, dir string, refs resolve.Refs, c resolve.RefChange) error {
	bytes := x.weightOf(ctx, ref, dir, refs, c)
	if err := x.mover.remove(ctx, ref, dir, []resolve.RefChange{c}); err != nil {
		return fmt.Errorf("removing a ref: %w", err)
	}
	x.displacement.displace(ref, bytes)
	return nil
}

// weightOf returns what a ref takes up that is about to go. What can't be weighed is taken
// for much, so that it is looked for.
func (x *rations) weightOf(ctx context.Context, ref graspsync.RepoRef, dir string, refs resolve.Refs, c resolve.RefChange) int64 {
	id, _ := resolve.EventOf(c.Name)
	x.mu.Lock()
	bytes, known := x.weights[ref].of[id]
	x.mu.Unlock()
	if known {
		return bytes
	}
	var but []nip34.ObjectID
	for name, at := range refs.At {
		if at == c.Old && name != c.Name {
			return 0
		}
		if name != c.Name {
			but = append(but, at)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, weighShare)
	defer cancel()
	bytes, err := x.git.Weigh(ctx, dir, c.Old, but)
	if err != nil {
		return x.displacement.much()
	}
	return bytes
}

// choose returns those that must have no ref, of all that have or want one.
func (x *rations) choose(ctx context.Context, a asked, weights *weighed) ([]graspsync.EventID, error) {
	known, err := x.list(ctx, a)
	if err != nil {
		return nil, err
	}
	pulls := x.pulls(a, known, weights.of)
	if len(ration.Over(pulls, x.limits())) == 0 {
		return nil, nil
	}
	if err := x.findMerged(ctx, a, pulls, weights); err != nil {
		return nil, err
	}
	return ration.Over(pulls, x.limits()), nil
}

func (x *rations) limits() ration.Limits {
	return ration.Limits{PerAuthor: maxPullsOfAuthor, All: maxPullsOfRepo, Bytes: x.cfg.Limits.MaxPullBytes}
}

// list returns the pull requests that have or want a ref, as far as they are here, by id.
func (x *rations) list(ctx context.Context, a asked) (map[graspsync.EventID]*nip34.PullRequest, error) {
	known := make(map[graspsync.EventID]*nip34.PullRequest)
	for name := range a.Refs.At {
		if id, ok := resolve.EventOf(name); ok {
			if pr := x.waiting.pullRequest(id); pr != nil {
				known[id] = pr
			}
		}
	}
	err := x.reader.stored.pulls(ctx, a.Ref, func(pr *nip34.PullRequest) {
		if _, has := a.Refs.At[nip34.EventRef(pr.ID)]; has {
			known[pr.ID] = pr
		}
	})
	for _, pr := range a.pulls {
		known[pr.ID] = pr
	}
	return known, err
}

// pulls returns what is to be chosen from: all but what those have written who have a say.
// The refs of events that are not here are nobody's.
func (x *rations) pulls(a asked, known map[graspsync.EventID]*nip34.PullRequest, weights map[graspsync.EventID]int64) (out []ration.Pull) {
	now := nostr.Now() // nobody is younger than that
	add := func(id graspsync.EventID) {
		p := ration.Pull{ID: id, Bytes: weights[id]}
		if pr := known[id]; pr != nil {
			if _, member := a.Members[pr.Author]; member {
				return
			}
			p.Author, p.At = pr.Author, min(pr.CreatedAt, now)
		}
		_, has := a.Refs.At[nip34.EventRef(id)]
		p.New = !has
		out = append(out, p)
	}
	for name := range a.Refs.At {
		if id, ok := resolve.EventOf(name); ok {
			add(id)
		}
	}
	for _, pr := range a.pulls {
		add(pr.ID)
	}
	return out
}

// weigh returns what pull requests take up: those that have a ref, as it was found before,
// and those that want one.
func (x *rations) weigh(ctx context.Context, a asked) (weighed, error) {
	weights := make(map[graspsync.EventID]int64)
	out := weighed{of: weights, state: stateOf(a.Refs), stale: make(map[graspsync.EventID]struct{})}
	var but []nip34.ObjectID
	here := make(map[nip34.ObjectID]struct{})
	needed := func(id nip34.ObjectID) {
		if _, again := here[id]; !again {
			here[id] = struct{}{}
			but = append(but, id)
		}
	}
	var unknown, stale []graspsync.EventID
	x.mu.Lock()
	past := x.weights[a.Ref]
	x.mu.Unlock()
	if past.of != nil {
		past = past.begin(a.Refs)
		out.state, out.merged, out.again = past.state, past.merged, past.again
	}
	for name, at := range a.Refs.At {
		id, ok := resolve.EventOf(name)
		w, weighed := past.of[id]
		_, again := past.stale[id]
		switch {
		case ok && !weighed:
			unknown = append(unknown, id)
		case ok && again:
			weights[id] = w // until it is weighed
			stale = append(stale, id)
		case ok:
			weights[id] = w
			needed(at)
		default:
			needed(at)
		}
	}
	until := min(a.until, a.watch.Worked()+weighShare)
	var later []nip34.ObjectID
	for _, id := range append(unknown, stale...) {
		at := a.Refs.At[nip34.EventRef(id)]
		if _, has := here[at]; has {
			weights[id] = 0
		} else if a.watch.Worked() < until {
			w, err := x.weighOne(ctx, a, at, but, weighShare)
			if err != nil {
				return out, err
			}
			weights[id] = w
		} else { // what it needs counts for nobody yet
			later = append(later, at)
			if _, weighed := weights[id]; weighed {
				out.stale[id] = struct{}{}
			}
			continue
		}
		needed(at)
	}
	for _, at := range later {
		needed(at)
	}
	for _, pr := range a.pulls {
		if weights[pr.ID] = a.bytes; a.bytes >= 0 {
			continue
		}
		w, err := x.weighOne(ctx, a, pr.Tip, but, a.left()/2)
		if err != nil {
			return out, err
		}
		weights[pr.ID] = w
		if len(later) > 0 {
			out.stale[pr.ID] = struct{}{}
		}
		needed(pr.Tip)
	}
	return out, nil
}

// weighOne weighs what a commit needs and others don't. What takes too long to be weighed
// has no room: else objects would be made that do.
func (x *rations) weighOne(ctx context.Context, a asked, tip nip34.ObjectID, but []nip34.ObjectID, most time.Duration) (w int64, err error) {
	err = a.work(ctx, most, func(ctx context.Context) (err error) {
		w, err = x.git.Weigh(ctx, a.dir, tip, but)
		return err
	})
	if errors.Is(err, errLong) {
		return x.cfg.Limits.MaxPullBytes + 1, nil
	}
	return w, err
}

// findMerged finds the refs whose commit a branch or a tag has. The search goes on at the next call if
// there is no time for all.
func (x *rations) findMerged(ctx context.Context, a asked, pulls []ration.Pull, w *weighed) error {
	if state := stateOf(a.Refs); w.merged == nil || w.state != state {
		w.state, w.merged = state, make(map[graspsync.EventID]bool)
	}
	until := min(a.until, a.watch.Worked()+weighShare)
	for i := range pulls {
		p := &pulls[i]
		if _, known := w.merged[p.ID]; !known && !p.New && a.watch.Worked() < until {
			bytes, err := x.weighOne(ctx, a, a.Refs.At[nip34.EventRef(p.ID)], a.Refs.State(), weighShare)
			if err != nil {
				return err
			}
			w.merged[p.ID], w.of[p.ID] = bytes == 0, min(bytes, p.Bytes)
		}
		p.Merged, p.Bytes = w.merged[p.ID], min(p.Bytes, w.of[p.ID])
	}
	return nil
}

// note remembers what refs take up that there are now, and counts what has none.
func (x *rations) note(a asked, out answered) {
	for id := range out.over {
		switch _, had := a.Refs.At[nip34.EventRef(id)]; {
		case had: // what counted for it others may need
			x.report.drop("pull_displaced")
		case out.unswept:
			x.report.drop("pull_unswept")
		default:
			x.report.drop("pull_refs")
			delete(out.weighed.of, id)
		}
	}
	if len(out.gone) > 0 {
		x.displacement.displace(a.Ref, out.leaves)
	}
	for _, pr := range a.pulls {
		if _, over := out.over[pr.ID]; !over {
			weight := out.weighed.of[pr.ID]
			if a.bytes >= 0 { // a push brings it
				weight = 0
			}
			x.displacement.placed(a.Ref, pr.ID, weight)
		}
	}
	if a.bytes >= 0 { // what a push brings is weighed when it is here
		for _, pr := range a.pulls {
			if _, has := a.Refs.At[nip34.EventRef(pr.ID)]; !has {
				delete(out.weighed.of, pr.ID)
			}
		}
	}
	if out.weighed.of == nil {
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	delete(x.weights, a.Ref)
	for ref := range x.weights { // any
		if len(x.weights) < maxWalked {
			break
		}
		delete(x.weights, ref)
	}
	x.weights[a.Ref] = out.weighed
}

// ration finds out which pull requests may have no ref: they wait until there is room; and
// which others give theirs.
func (x *rations) ration(ctx context.Context, g *resolve.Group, r *repository) error {
	var pulls []*nip34.PullRequest
	for _, h := range g.Pulls {
		if slices.Contains(h.Pull.Repos, r.Ref) && r.Has(h.Pull.Tip) {
			pulls = append(pulls, h.Pull)
		}
	}
	came := x.cameTo(r)
	a := asked{r, pulls, -1}
	err := x.exempt(ctx, &a)
	var out answered
	var waits map[graspsync.EventID]int64
	if err == nil {
		out, waits, err = x.judgeAll(ctx, a)
	}
	if errors.Is(err, ErrCrowded) { // it is no fault of the repository's that they wait
		r.trouble = errors.Join(r.trouble, fmt.Errorf("pull request: %w", err))
		r.Over, waits = make(map[graspsync.EventID]struct{}), make(map[graspsync.EventID]int64)
		for _, pr := range pulls {
			r.Over[pr.ID] = struct{}{}
			if a.asks(pr) {
				waits[pr.ID] = 1
			}
		}
		for id := range came(pulls, waits) { // nobody knows how much it is: so that it is looked for
			x.displacement.came(r.Ref, map[graspsync.EventID]int64{id: x.displacement.much()})
			break
		}
		return nil
	}
	if err != nil {
		return err
	}
	x.note(a, out)
	x.displacement.came(r.Ref, came(pulls, waits))
	r.Over, r.Displaced = out.over, out.gone
	return nil
}

// exempt takes out the pull requests that need no ref because a branch or a tag has their commit.
func (x *rations) exempt(ctx context.Context, a *asked) error {
	a.Merged = make(map[graspsync.EventID]struct{})
	state := a.Refs.State()
	left := a.pulls[:0:0]
	for _, pr := range a.pulls {
		if !a.asks(pr) {
			continue
		}
		merged := slices.Contains(state, pr.Tip)
		if !merged {
			bytes, err := x.weighOne(ctx, *a, pr.Tip, state, a.left()/2)
			if err != nil {
				return err
			}
			merged = bytes == 0
		}
		if merged {
			a.Merged[pr.ID] = struct{}{}
		} else {
			left = append(left, pr)
		}
	}
	a.pulls = left
	return nil
}

// cameTo returns what leaves of pull requests, and what they take up, those whose data has
// come since the repository was looked at before.
func (x *rations) cameTo(r *repository) func(pulls []*nip34.PullRequest, bytes map[graspsync.EventID]int64) map[graspsync.EventID]int64 {
	lacked := setOf(x.findings.lacked(r.Ref).IDs)
	return func(pulls []*nip34.PullRequest, bytes map[graspsync.EventID]int64) map[graspsync.EventID]int64 {
		out := make(map[graspsync.EventID]int64)
		for _, pr := range pulls {
			_, before := lacked[pr.Tip]
			_, now := r.came[pr.Tip]
			if w, waits := bytes[pr.ID]; waits && (before || now) {
				out[pr.ID] = w
			}
		}
		return out
	}
}

// judgeAll judges pull requests whose data is here, again without those that have no room,
// until all others have: what two of them need counted for one. It returns what those take
// up together that have none.
func (x *rations) judgeAll(ctx context.Context, a asked) (answered, map[graspsync.EventID]int64, error) {
	waits := make(map[graspsync.EventID]int64)
	a.pulls = slices.DeleteFunc(slices.Clone(a.pulls), func(pr *nip34.PullRequest) bool { return !a.asks(pr) })
	var first map[graspsync.EventID]int64 // in which each byte counts once
	for unswept := false; ; {
		out, err := x.judge(ctx, a)
		if err != nil {
			return out, nil, err
		}
		unswept = unswept || out.unswept
		if first == nil {
			first = maps.Clone(out.weighed.of)
		}
		rest := slices.DeleteFunc(slices.Clone(a.pulls), func(pr *nip34.PullRequest) bool {
			_, over := out.over[pr.ID]
			if over {
				waits[pr.ID] = first[pr.ID]
			}
			return over
		})
		if len(rest) == 0 || len(rest) == len(a.pulls) {
			for id := range waits {
				out.over[id] = struct{}{}
			}
			out.unswept = unswept
			return out, waits, nil
		}
		a.pulls = rest
	}
}

// hasRoom reports whether a pull request could have a ref that brings so much.
func (x *rations) hasRoom(ctx context.Context, r *repository, pr *nip34.PullRequest, bytes int64) (bool, error) {
	out, err := x.judge(ctx, asked{r, []*nip34.PullRequest{pr}, bytes})
	_, over := out.over[pr.ID]
	return !over, err
}

// ask says what some pull requests ask for that are to be in a repository, with the lock of
// it, and bring so many bytes together.
func (x *rations) ask(ctx context.Context, ref graspsync.RepoRef, dir string, pulls []*nip34.PullRequest, bytes int64) (asked, error) {
	g, err := x.reader.announced(ctx, ref.Identifier, false)
	if err != nil {
		return asked{}, err
	}
	r := &repository{Repository: g.Repository(ref)}
	r.dir, r.until, r.watch = dir, pullsShare, stopwatch.New(pullsShare, ErrCrowded)
	r.Refs, err = x.git.Refs(ctx, dir)
	return asked{r, pulls, bytes / int64(len(pulls))}, err
}

// hasRoomFor reports whether anything that was fetched for a repository may be in it, with
// the lock of it: all is of use but what only pull requests name that may have no ref, and
// what came for some that wait no more. soon says that there is none only until what has
// given way is gone, or that nobody asks any more.
func (x *rations) hasRoomFor(ctx context.Context, ref graspsync.RepoRef, dir string, came []nip34.ObjectID, bytes int64, forPulls bool) (room, soon bool, err error) {
	states := x.findings.lacked(ref).States
	entries := x.waiting.of(ref)
	if slices.ContainsFunc(came, func(id nip34.ObjectID) bool { return slices.Contains(states, id) }) {
		return true, false, nil
	}
	var pulls []*nip34.PullRequest
	for _, e := range entries {
		if pr := x.waiting.pullRequest(e.ID); pr != nil && slices.Contains(came, pr.Tip) {
			pulls = append(pulls, pr)
		}
	}
	if len(pulls) == 0 {
		return !forPulls, forPulls, nil
	}
	a, err := x.ask(ctx, ref, dir, pulls, bytes)
	if err != nil {
		return false, false, err
	}
	out, err := x.judge(ctx, a)
	room = slices.ContainsFunc(pulls, func(pr *nip34.PullRequest) bool {
		_, over := out.over[pr.ID]
		return !over
	})
	return room, out.unswept, err
}

// forPush is [Purgatory.Ration].
func (x *rations) forPush(ctx context.Context, ref graspsync.RepoRef, dir string, pulls []*nip34.PullRequest, bytes int64) (map[graspsync.EventID]string, error) {
	ctx, cancel := context.WithTimeout(ctx, x.cfg.fixed.Timeout)
	defer cancel()
	if err := x.mover.mend(ctx, ref, dir); err != nil { // whoever pushes has locked it without that
		return nil, fmt.Errorf("mending a repository: %w", err)
	}
	if len(pulls) == 0 {
		return nil, nil
	}
	a, err := x.ask(ctx, ref, dir, pulls, bytes)
	if err != nil {
		return nil, err
	}
	out, err := x.judge(ctx, a)
	if err != nil {
		return nil, err
	}
	if len(out.gone) > 0 {
		if err := x.mover.remove(ctx, ref, dir, out.gone); err != nil {
			return nil, fmt.Errorf("removing refs: %w", err)
		}
	}
	x.note(a, out)
	refused := make(map[graspsync.EventID]string)
	for _, pr := range pulls {
		if _, over := out.over[pr.ID]; over {
			refused[pr.ID] = reasonPulls
		}
	}
	return refused, nil
}
