package plan

import (
	"container/heap"
	"maps"
	"slices"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/filters"
)

// relayTargets derives the targets of each relay from the wanted repositories. It adds and forgets
// relays.
type relayTargets struct {
	*core
	repos       *repoSyncIndex
	relays      *relaySyncIndex
	owners      *ownerShares
	dialer      *dialer
	byID        *byID
	checkpoints *checkpoints
	threads     *threads

	refused bool // a wanted relay found no room
}

// derive applies a batch window. Repositories come first because root events and descendants depend
// on them.
func (t *relayTargets) derive(in Changes) {
	for _, c := range in.Repos {
		t.setRepo(c)
	}
	for _, c := range in.Roots {
		t.setRoot(c)
	}
	for _, c := range in.Descendants {
		t.setDescendant(c)
	}
}

// replace replaces all wanted repositories by those of a Snapshot.
func (t *relayTargets) replace(in Snapshot) {
	if w := t.repos; len(w.byRef)+len(w.roots)+len(w.descendants) == 0 { // nothing to remove
		w.expect(len(in.Repos), len(in.Roots))
		t.derive(Changes(in))
		return
	}
	repos := make(map[graspsync.RepoRef]struct{}, len(in.Repos))
	for _, c := range in.Repos {
		repos[c.Ref] = struct{}{}
	}
	roots := make(map[graspsync.EventID]struct{}, len(in.Roots))
	for _, c := range in.Roots {
		roots[c.ID] = struct{}{}
	}
	descendants := make(map[filters.Descendant]struct{}, len(in.Descendants))
	for _, c := range in.Descendants {
		descendants[c.Of] = struct{}{}
	}
	t.derive(Changes(in))
	for _, of := range sortedBy(without(t.repos.descendants, descendants), filters.Descendant.Compare) {
		t.setDescendant(DescendantChange{Of: of})
	}
	gone := make(map[graspsync.EventID]struct{})
	for id := range t.repos.rootIDs() {
		if _, ok := roots[id]; !ok {
			gone[id] = struct{}{}
		}
	}
	for r := range t.repos.overfull {
		maps.Copy(gone, without(r.untracked, roots))
	}
	for _, id := range sortedBy(gone, graspsync.EventID.Compare) {
		t.setRoot(RootChange{ID: id})
	}
	for _, ref := range sortedBy(without(t.repos.byRef, repos), graspsync.RepoRef.Compare) {
		t.setRepo(RepoChange{Ref: ref})
	}
}

func (t *relayTargets) setRepo(c RepoChange) {
	if c.Level == LevelNone {
		c.Relays = nil
	}
	r := t.repos.repoOf(c.Ref)
	before, level := r.relays, r.level
	t.list(r, c.Relays)
	t.repos.setLevel(r, c.Level)
	after := r.relays
	before = slices.DeleteFunc(slices.Clone(before), func(rel *relayState) bool { return rel.gone })
	for _, rel := range after {
		if !slices.Contains(before, rel) {
			if r.states != 0 { // at any level
				rel.add(r.states, itemStates)
				t.markDirty(rel)
			}
		}
		if r.level == LevelFull && (level != LevelFull || !slices.Contains(before, rel)) {
			t.follows(r, rel)
		}
	}
	for _, rel := range before {
		gone := !slices.Contains(after, rel)
		if gone {
			if r.states != 0 {
				rel.remove(r.states, itemStates)
			}
			t.markDirty(rel)
		}
		if level == LevelFull && (gone || r.level != LevelFull) {
			t.unfollows(r, rel)
		}
	}
	t.unlisted(r)
	t.repos.drop(r)
}

// list sets the relays of a repository as far as there is room.
func (t *relayTargets) list(r *repo, relays []graspsync.RelayURL) {
	after := make([]*relayState, 0, len(relays))
	for _, u := range relays {
		rel := t.relayOf(u, r.ref.Owner) // may evict a relay, also one in relays
		if rel == nil || slices.Contains(after, rel) {
			continue
		}
		after = append(after, rel)
		if !slices.Contains(r.relays, rel) {
			t.lists(r, rel)
			r.relays = append(slices.Clone(r.relays), rel)
		}
	}
	for _, rel := range r.relays {
		if !slices.Contains(after, rel) {
			t.leaves(r, rel)
		}
	}
	r.relays = slices.DeleteFunc(after, func(rel *relayState) bool { return rel.gone })
}

func (t *relayTargets) lists(r *repo, rel *relayState) {
	if o, first := t.owners.list(r, rel); first {
		t.dialer.listed(rel, o)
	}
	if len(rel.listed.examples) < maxExamples {
		rel.listed.examples = append(rel.listed.examples, r.ref)
	}
}

func (t *relayTargets) leaves(r *repo, rel *relayState) {
	r.relays = slices.DeleteFunc(slices.Clone(r.relays), func(o *relayState) bool { return o == rel })
	if o, last := t.owners.unlist(r, rel); last {
		t.dialer.unlisted(rel, o)
	}
	rel.listed.examples = slices.DeleteFunc(rel.listed.examples, func(ref graspsync.RepoRef) bool { return ref == r.ref })
}

// follows makes a repository, its root events and descendants targets of a relay.
func (t *relayTargets) follows(r *repo, rel *relayState) {
	rel.add(r.item, itemRepo)
	for it := range r.roots {
		rel.add(it, itemRoot)
	}
	for _, it := range slices.SortedFunc(maps.Keys(r.descendants), t.repos.compare) {
		t.threads.add(rel, it)
	}
	t.markDirty(rel)
}

// unfollows undoes follows, except for targets of other repositories.
func (t *relayTargets) unfollows(r *repo, rel *relayState) {
	rel.remove(r.item, itemRepo)
	for it := range r.roots {
		if !t.repos.isTarget(it, rel) {
			rel.remove(it, itemRoot)
		}
	}
	for it := range r.descendants {
		if !t.repos.isTarget(it, rel) {
			t.threads.remove(rel, it)
		}
	}
	t.markDirty(rel)
}

// unlisted updates a repository without relays.
func (t *relayTargets) unlisted(r *repo) {
	if len(r.relays) > 0 {
		return
	}
	if o := t.owners.of[r.ref.Owner]; o != nil {
		delete(o.repos, r)
		t.owners.drop(o)
	}
}

// relayOf returns a relay that a repository of this owner lists, and adds an unknown relay. If the
// table is full, a relay of the owner with the most relays is evicted. It returns nil if there is
// no room.
func (t *relayTargets) relayOf(u graspsync.RelayURL, key graspsync.PubKey) *relayState {
	r := t.relays.byURL[u]
	if r != nil && r.listed.record != nil {
		return r
	}
	known := r != nil
	if !known {
		r = newRelay(u)
	}
	o := t.owners.owner(key)
	evicted, ok := t.owners.enter(r, o)
	for _, gone := range evicted {
		t.evict(gone)
	}
	if !ok && !known {
		t.owners.drop(o)
		t.refuse()
		return nil
	}
	if !known {
		t.know(r)
	}
	return r
}

func newRelay(u graspsync.RelayURL) *relayState {
	r := &relayState{url: u, name: u.String(), host: u.HostPort().Host}
	r.listed.owners = make(map[*dialOwner]int)
	r.history.items, r.history.resume = make(map[Item]itemStatus), make(map[Item]*batchProgress)
	r.pending.open = make(map[BatchID]*batch)
	r.live.reset()
	r.add(Layer1, itemLayer1)
	return r
}

func (t *relayTargets) know(r *relayState) {
	t.relays.byURL[r.url], t.relays.unordered = r, true
	t.checkpoints.recall(r)
	t.markDirty(r)
}

// unwanted forgets a relay without targets. Refused relays may have room afterwards.
func (t *relayTargets) unwanted(r *relayState) {
	t.forget(r)
	if t.refused {
		t.refused = false
		t.emit(Incomplete{})
	}
}

func (t *relayTargets) forget(r *relayState) {
	t.dialer.forget(r)
	t.byID.reassign(r)
	t.checkpoints.forget(r)
	r.gone = true
	delete(t.relays.byURL, r.url)
	t.relays.unordered = true
	t.emit(Forget{Relay: r.url})
}

func (t *relayTargets) evict(rel *relayState) {
	var listing []*repo
	for o := range rel.listed.owners {
		for r := range o.repos {
			if slices.Contains(r.relays, rel) {
				listing = append(listing, r)
			}
		}
	}
	for _, r := range listing {
		t.leaves(r, rel)
		t.unlisted(r)
	}
	t.forget(rel)
	t.refuse()
}

// refuse counts a wanted relay without room.
func (t *relayTargets) refuse() {
	t.emit(Dropped{Reason: "relays", Count: 1})
	t.refused = true
}

// setRoot sets the repositories of a root event. Repositories are only added until the event is
// gone, because the tags of an event never change. Unwanted repositories are included, because they
// may become wanted.
func (t *relayTargets) setRoot(c RootChange) {
	if len(c.Repos) == 0 {
		t.dropRoot(c.ID)
		return
	}
	for _, ref := range c.Repos {
		if r, known := t.repos.byRef[ref]; known {
			t.addRoot(c, r)
		}
	}
}

func (t *relayTargets) dropRoot(id graspsync.EventID) {
	t.dropUntracked(id)
	it, repos := t.repos.dropRoot(id)
	if repos == nil {
		return
	}
	for _, r := range repos {
		for _, rel := range r.relays {
			rel.remove(it, itemRoot)
			t.markDirty(rel)
		}
	}
	t.repos.release(it)
	for _, r := range repos {
		t.refill(r)
		t.repos.drop(r)
	}
}

// If a repository has more than MaxRoots root events, the newest are tracked as items. Of the
// others only the ids are stored, and each pass requests some of them, see [rotation].

// untrackedPerRoot is the maximum number of untracked root events per tracked one.
const untrackedPerRoot = 10

// addRoot adds a root event to a repository, tracked or untracked.
func (t *relayTargets) addRoot(c RootChange, r *repo) {
	at := rootTime(c.CreatedAt)
	if it, ok := t.repos.roots[c.ID]; ok && t.repos.belongs(it, r) {
		return
	}
	if _, ok := r.untracked[c.ID]; ok {
		return
	}
	if len(r.roots) < t.cfg.MaxRoots {
		t.track(c.ID, at, r)
		return
	}
	h := t.oldestOf(r)
	oldest := t.repos.infos[h.items[0]]
	if compareRoots(oldest.at, at, *oldest.root, c.ID) > 0 {
		t.leaveUntracked(c.ID, at, r)
		return
	}
	it := heap.Pop(h).(Item)
	r.oldest = h.items
	t.displace(it, r)
	t.leaveUntracked(*oldest.root, oldest.at, r)
	t.track(c.ID, at, r)
}

// track makes a root event an item of the relays of its repository.
func (t *relayTargets) track(id graspsync.EventID, at uint32, r *repo) {
	it := t.repos.addRoot(id, at, r)
	if r.oldest != nil {
		h := &rootHeap{repos: t.repos, items: r.oldest}
		heap.Push(h, it)
		r.oldest = h.items
	}
	if r.level != LevelFull {
		return
	}
	for _, rel := range r.relays {
		rel.add(it, itemRoot)
		t.markDirty(rel)
	}
}

// displace stops the tracking of a root event for a repository.
func (t *relayTargets) displace(it Item, r *repo) {
	gone := t.repos.untrack(it, r)
	for _, rel := range r.relays {
		if gone || !t.repos.isTarget(it, rel) {
			rel.remove(it, itemRoot)
			t.markDirty(rel)
		}
	}
	if gone {
		t.repos.release(it)
	}
}

func (t *relayTargets) leaveUntracked(id graspsync.EventID, at uint32, r *repo) {
	if len(r.untracked) >= untrackedPerRoot*t.cfg.MaxRoots {
		t.emit(Dropped{Reason: "roots", Count: 1})
		return
	}
	if r.untracked == nil {
		r.untracked = make(map[graspsync.EventID]uint32)
		t.repos.overfull[r] = struct{}{}
	}
	r.untracked[id] = at
}

func (t *relayTargets) dropUntracked(id graspsync.EventID) {
	var repos []*repo
	for r := range t.repos.overfull {
		if _, ok := r.untracked[id]; ok {
			repos = append(repos, r)
		}
	}
	slices.SortFunc(repos, func(a, b *repo) int { return a.ref.Compare(b.ref) })
	for _, r := range repos {
		t.forgetUntracked(id, r)
		t.repos.drop(r)
	}
}

func (t *relayTargets) forgetUntracked(id graspsync.EventID, r *repo) {
	if delete(r.untracked, id); len(r.untracked) == 0 {
		r.untracked = nil
		delete(t.repos.overfull, r)
	}
}

// refill tracks the newest untracked root events while there is room.
func (t *relayTargets) refill(r *repo) {
	for len(r.roots) < t.cfg.MaxRoots && len(r.untracked) > 0 {
		var newest graspsync.EventID
		var newestAt uint32
		for id, at := range r.untracked {
			if compareRoots(newestAt, at, newest, id) < 0 {
				newest, newestAt = id, at
			}
		}
		t.forgetUntracked(newest, r)
		t.track(newest, newestAt, r)
	}
}

// oldestOf returns the heap of tracked root events, and builds it if necessary.
func (t *relayTargets) oldestOf(r *repo) *rootHeap {
	h := &rootHeap{repos: t.repos, items: r.oldest}
	if h.items == nil {
		h.items = slices.Collect(maps.Keys(r.roots))
		heap.Init(h)
		r.oldest = h.items
	}
	return h
}

// setDescendant sets the wanted repositories of a descendant. If another of its repositories
// becomes wanted, the caller reports the descendant again.
func (t *relayTargets) setDescendant(c DescendantChange) {
	w := t.repos
	it, known := w.descendants[c.Of]
	var before, after []*repo
	if known {
		before = append([]*repo{w.infos[it].repo}, w.other[it]...)
	}
	for _, ref := range c.Repos {
		if r := w.byRef[ref]; r != nil && !slices.Contains(after, r) {
			after = append(after, r)
		}
	}
	if slices.Equal(before, after) {
		return
	}
	if !known {
		id := c.Of.ID
		it = w.intern(itemInfo{kind: itemDescendant, root: &id, hex: id.String()})
		w.descendants[c.Of] = it
		if c.Of.Address != "" {
			w.addresses[it] = c.Of.Address
		}
	}
	for _, r := range before {
		delete(r.descendants, it)
	}
	for _, r := range after {
		put(&r.descendants, it)
	}
	if w.infos[it].repo = nil; len(after) > 0 {
		w.infos[it].repo = after[0]
	}
	if delete(w.other, it); len(after) > 1 {
		w.other[it] = after[1:]
	}
	for _, r := range append(before, after...) {
		for _, rel := range r.relays {
			if len(after) > 0 && w.isTarget(it, rel) {
				t.threads.add(rel, it)
			} else {
				t.threads.remove(rel, it)
			}
		}
	}
	if len(after) == 0 {
		delete(w.descendants, c.Of)
		delete(w.addresses, it)
		w.release(it)
	}
	for _, r := range before {
		w.drop(r)
	}
}
