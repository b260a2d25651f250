package plan

import (
	"cmp"
	"math"
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
}

// derive applies a batch window. Repositories come first because the others depend on them.
func (t *relayTargets) derive(in Changes) {
	for _, c := range in.Repos {
		t.setRepo(c)
	}
	for _, c := range in.Roots {
		at := uint32(min(max(c.CreatedAt, 0), math.MaxUint32))
		t.setThread(itemInfo{kind: itemRoot, of: filters.Descendant{ID: c.ID}, at: at}, t.repos.known(c.Repos))
	}
	for _, c := range in.Descendants {
		t.setThread(itemInfo{kind: itemDescendant, of: c.Of}, t.repos.known(c.Repos))
	}
}

// replace replaces everything by a Snapshot, starting with the newest root events, see isTooOld.
func (t *relayTargets) replace(in Snapshot) {
	in.Roots = slices.SortedStableFunc(slices.Values(in.Roots), func(a, b RootChange) int { return cmp.Compare(b.CreatedAt, a.CreatedAt) })
	if len(t.repos.byRef)+len(t.repos.threads) == 0 {
		t.derive(Changes(in))
		return
	}
	repos := make(map[graspsync.RepoRef]struct{}, len(in.Repos))
	for _, c := range in.Repos {
		repos[c.Ref] = struct{}{}
	}
	threads := make(map[filters.Descendant]struct{}, len(in.Roots)+len(in.Descendants))
	for _, c := range in.Roots {
		threads[filters.Descendant{ID: c.ID}] = struct{}{}
	}
	for _, c := range in.Descendants {
		threads[c.Of] = struct{}{}
	}
	t.derive(Changes(in))
	for _, of := range sortedBy(without(t.repos.threads, threads), filters.Descendant.Compare) {
		t.setThread(t.repos.infos[t.repos.threads[of]], nil)
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
	for _, rel := range slices.Concat(before, r.relays) {
		same := r.level == level && slices.Contains(before, rel) == slices.Contains(r.relays, rel)
		if rel.gone || same {
			continue
		}
		t.retarget(r.item, rel)
		for _, threads := range r.threads {
			for it := range threads {
				t.retarget(it, rel)
			}
		}
	}
	t.unlisted(r)
	t.repos.drop(r)
}

// retarget adds an item to the targets of a relay, or removes it.
func (t *relayTargets) retarget(it Item, rel *relayState) {
	if t.repos.isTarget(it, rel) {
		rel.add(it)
	} else {
		rel.remove(it)
	}
	t.markDirty(rel)
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
		t.emit(Dropped{Reason: "relays", Count: 1})
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
	t.markDirty(r)
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
	t.emit(Dropped{Reason: "relays", Count: 1})
}

// setThread sets the repositories of a root event or thread event. The newest MaxRoots root events
// of a repository are items of layer 3, older ones of layer 4.
func (t *relayTargets) setThread(in itemInfo, after []*repo) {
	w := t.repos
	it, known := w.threads[in.of]
	var before []*repo
	if known {
		before = w.reposOf(it)
	}
	if in.kind == itemRoot && slices.ContainsFunc(after, func(r *repo) bool { return t.isTooOld(in, r) }) {
		in.kind = itemDescendant
		after = slices.DeleteFunc(after, func(r *repo) bool { return !slices.Contains(before, r) && !t.hasRoom(r) })
	}
	was := w.infos[it].kind
	switch {
	case len(after) == 0 && (!known || was == itemRoot && in.kind == itemDescendant):
		return // nothing is known of it, or it is a root event now
	case known && (len(after) == 0 || was == in.kind):
		t.move(it, before, after)
	case known:
		t.move(it, before, nil)
		in.hex = w.infos[it].hex
		w.infos[it] = in
		delete(w.hashes, it)
		t.move(it, nil, after)
	default:
		in.hex = in.of.ID.String()
		it = w.intern(in)
		w.threads[in.of] = it
		t.move(it, nil, after)
	}
	if len(after) == 0 {
		delete(w.threads, in.of)
		w.release(it)
	}
	for _, r := range before {
		w.drop(r)
	}
	t.displace(after)
}

func (t *relayTargets) move(it Item, before, after []*repo) {
	if slices.Equal(before, after) {
		return
	}
	t.repos.link(it, before, after)
	for _, repos := range [][]*repo{before, after} {
		for _, r := range repos {
			for _, rel := range r.relays {
				t.retarget(it, rel)
			}
		}
	}
}

// olderPerRoot is the maximum number of items of layer 4 per root event of a repository, if the
// items are older root events.
const olderPerRoot = 10

func (t *relayTargets) hasRoom(r *repo) bool {
	if len(r.threads[threadTier]) < olderPerRoot*t.cfg.MaxRoots {
		return true
	}
	t.emit(Dropped{Reason: "roots", Count: 1})
	return false
}

func (t *relayTargets) isTooOld(in itemInfo, r *repo) bool {
	if len(r.threads[mainTier]) < t.cfg.MaxRoots {
		return false
	}
	it, known := t.repos.threads[in.of]
	return !(known && has(r.threads[mainTier], it)) && compareRoots(t.repos.infos[t.repos.oldestRoot(r)], in) > 0
}

// displace moves the oldest root events of repositories that have too many to layer 4.
func (t *relayTargets) displace(repos []*repo) {
	for _, r := range repos {
		if len(r.threads[mainTier]) > t.cfg.MaxRoots {
			it := t.repos.oldestRoot(r)
			older := t.repos.infos[it]
			after := slices.DeleteFunc(t.repos.reposOf(it), func(r *repo) bool { return !t.hasRoom(r) })
			if len(after) > 0 {
				older.kind = itemDescendant
			}
			t.setThread(older, after)
		}
	}
}
