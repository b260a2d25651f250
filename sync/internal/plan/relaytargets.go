package plan

import (
	"cmp"
	"slices"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/filters"
)

// relayTargets derives the targets of each relay from the wanted repositories.
type relayTargets struct {
	*core
	repos       *repoSyncIndex
	relays      *relaySyncIndex
	owners      *ownerShares
	dialer      *dialer
	byID        *byID
	checkpoints *checkpoints

	refused bool // a wanted relay found no room
}

// derive applies a batch window. Repositories come first because the others depend on them.
func (t *relayTargets) derive(in Changes) {
	for _, c := range in.Repos {
		t.setRepo(c)
	}
	for _, c := range in.Roots {
		t.setRoot(c)
	}
	for _, c := range in.Descendants {
		var repos []*repo
		for _, ref := range c.Repos {
			if r := t.repos.byRef[ref]; r != nil && !slices.Contains(repos, r) {
				repos = append(repos, r)
			}
		}
		t.setThread(c.Of, repos)
	}
}

// replace replaces everything by a Snapshot, starting with the newest root events, see addRoot.
func (t *relayTargets) replace(in Snapshot) {
	in.Roots = slices.SortedStableFunc(slices.Values(in.Roots), func(a, b RootChange) int { return cmp.Compare(b.CreatedAt, a.CreatedAt) })
	if w := t.repos; len(w.byRef)+len(w.roots)+len(w.descendants) == 0 {
		t.derive(Changes(in))
		return
	}
	repos := make(map[graspsync.RepoRef]struct{}, len(in.Repos))
	for _, c := range in.Repos {
		repos[c.Ref] = struct{}{}
	}
	roots := make(map[graspsync.EventID]struct{}, len(in.Roots))
	descendants := make(map[filters.Descendant]struct{}, len(in.Descendants))
	for _, c := range in.Roots {
		roots[c.ID] = struct{}{}
		descendants[filters.Descendant{ID: c.ID}] = struct{}{} // beyond MaxRoots
	}
	for _, c := range in.Descendants {
		descendants[c.Of] = struct{}{}
	}
	t.derive(Changes(in))
	for _, of := range sortedBy(without(t.repos.descendants, descendants), filters.Descendant.Compare) {
		t.setThread(of, nil)
	}
	for _, id := range sortedBy(without(t.repos.roots, roots), graspsync.EventID.Compare) {
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
	r.level = c.Level
	after := r.relays
	before = slices.DeleteFunc(slices.Clone(before), func(rel *relayState) bool { return rel.gone })
	for _, rel := range after {
		if r.level == LevelFull && (level != LevelFull || !slices.Contains(before, rel)) {
			t.follows(r, rel)
		}
	}
	for _, rel := range before {
		gone := !slices.Contains(after, rel)
		if gone {
			t.markDirty(rel)
		}
		if level == LevelFull && (gone || r.level != LevelFull) {
			t.unfollows(r, rel)
		}
	}
	t.unlisted(r)
	t.repos.drop(r)
}

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
	if o := t.owners.list(r, rel); rel.listed.owners[o] == 1 && rel.turn.waits() && !rel.bootstrap {
		t.dialer.queue.join(rel, o)
	}
}

func (t *relayTargets) leaves(r *repo, rel *relayState) {
	r.relays = slices.DeleteFunc(slices.Clone(r.relays), func(o *relayState) bool { return o == rel })
	if o, last := t.owners.unlist(r, rel); last {
		t.dialer.queue.quit(rel, o)
	}
}

func (t *relayTargets) follows(r *repo, rel *relayState) {
	rel.add(r.item)
	for it := range r.roots {
		rel.add(it)
	}
	for it := range r.descendants {
		rel.add(it)
	}
	t.markDirty(rel)
}

func (t *relayTargets) unfollows(r *repo, rel *relayState) {
	rel.remove(r.item)
	for it := range r.roots {
		if !t.repos.isTarget(it, rel) {
			rel.remove(it)
		}
	}
	for it := range r.descendants {
		if !t.repos.isTarget(it, rel) {
			rel.remove(it)
		}
	}
	t.markDirty(rel)
}

func (t *relayTargets) unlisted(r *repo) {
	if len(r.relays) > 0 {
		return
	}
	if o := t.owners.of[r.ref.Owner]; o != nil {
		delete(o.repos, r)
		t.owners.drop(o)
	}
}

// relayOf returns a relay that a repository of this owner lists, or nil if there is no room.
func (t *relayTargets) relayOf(u graspsync.RelayURL, key graspsync.PubKey) *relayState {
	r := t.relays.byURL[u]
	if r != nil && r.listed.record != nil {
		return r
	}
	known := r != nil
	if !known {
		r = t.newRelay(u)
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

func (t *relayTargets) newRelay(u graspsync.RelayURL) *relayState {
	r := &relayState{url: u, name: u.String(), host: u.HostPort().Host}
	r.listed.owners = make(map[*dialOwner]int)
	r.history = historyState{repos: t.repos, items: make(map[Item]itemStatus), resume: make(map[Item]*batchProgress)}
	r.pending.open = make(map[BatchID]*batch)
	r.live.reset()
	r.add(Layer1)
	return r
}

func (t *relayTargets) know(r *relayState) {
	t.relays.byURL[r.url] = r
	t.checkpoints.recall(r)
	t.markDirty(r)
}

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

func (t *relayTargets) refuse() {
	t.emit(Dropped{Reason: "relays", Count: 1})
	t.refused = true
}

// setRoot adds a root event to repositories, or removes it. Its tags never change.
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
	t.setThread(filters.Descendant{ID: id}, nil)
	it, repos := t.repos.dropRoot(id)
	if repos == nil {
		return
	}
	for _, r := range repos {
		for _, rel := range r.relays {
			rel.remove(it)
			t.markDirty(rel)
		}
	}
	t.repos.release(it)
	for _, r := range repos {
		t.repos.drop(r)
	}
}

// olderPerRoot is the maximum number of items of layer 4 per root event of a repository.
const olderPerRoot = 10

// addRoot adds a root event to a repository. The newest MaxRoots are items of layer 3, older ones
// of layer 4.
func (t *relayTargets) addRoot(c RootChange, r *repo) {
	at := rootTime(c.CreatedAt)
	if it, ok := t.repos.roots[c.ID]; ok && t.repos.belongs(it, r) {
		return
	}
	if it, ok := t.repos.descendants[filters.Descendant{ID: c.ID}]; ok && t.repos.belongs(it, r) {
		return
	}
	if len(r.roots) < t.cfg.MaxRoots {
		t.track(c.ID, at, r)
		return
	}
	it := t.repos.oldestRoot(r)
	oldest := t.repos.infos[it]
	if compareRoots(oldest.at, at, *oldest.root, c.ID) > 0 {
		t.addOlder(c.ID, r)
		return
	}
	t.displace(it, r)
	t.addOlder(*oldest.root, r)
	t.track(c.ID, at, r)
}

func (t *relayTargets) track(id graspsync.EventID, at uint32, r *repo) {
	it := t.repos.addRoot(id, at, r)
	if r.level != LevelFull {
		return
	}
	for _, rel := range r.relays {
		rel.add(it)
		t.markDirty(rel)
	}
}

func (t *relayTargets) displace(it Item, r *repo) {
	gone := t.repos.untrack(it, r)
	for _, rel := range r.relays {
		if gone || !t.repos.isTarget(it, rel) {
			rel.remove(it)
			t.markDirty(rel)
		}
	}
	if gone {
		t.repos.release(it)
	}
}

func (t *relayTargets) addOlder(id graspsync.EventID, r *repo) {
	if len(r.descendants) >= olderPerRoot*t.cfg.MaxRoots {
		t.emit(Dropped{Reason: "roots", Count: 1})
		return
	}
	of := filters.Descendant{ID: id}
	repos := []*repo{r}
	if it, ok := t.repos.descendants[of]; ok {
		repos = append(t.repos.reposOf(it), r)
	}
	t.setThread(of, repos)
}

// setThread sets the repositories of an item of layer 4.
func (t *relayTargets) setThread(of filters.Descendant, after []*repo) {
	w := t.repos
	it, known := w.descendants[of]
	var before []*repo
	if known {
		before = w.reposOf(it)
	}
	if slices.Equal(before, after) {
		return
	}
	if !known {
		id := of.ID
		it = w.intern(itemInfo{kind: itemDescendant, root: &id, hex: id.String()})
		w.descendants[of] = it
		if of.Address != "" {
			w.addresses[it] = of.Address
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
				rel.add(it)
			} else {
				rel.remove(it)
			}
			t.markDirty(rel)
		}
	}
	if len(after) == 0 {
		delete(w.descendants, of)
		delete(w.addresses, it)
		w.release(it)
	}
	for _, r := range before {
		w.drop(r)
	}
}
