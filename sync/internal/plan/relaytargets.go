package plan

import (
	"cmp"
	"math"
	"slices"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/filters"
	"github.com/graspsync/graspsync/sync/internal/lazy"
)

// apply applies a batch window. Repositories come first because the others depend on them.
func (in Changes) apply(p *Plan) {
	for _, c := range in.Repos {
		p.setRepo(c)
	}
	for _, c := range in.Roots {
		at := uint32(min(max(c.CreatedAt, 0), math.MaxUint32))
		p.setThread(itemInfo{kind: itemRoot, of: filters.Descendant{ID: c.ID}, at: at}, p.repos.known(c.Repos))
	}
	for _, c := range in.Descendants {
		p.setThread(itemInfo{kind: itemDescendant, of: c.Of}, p.repos.known(c.Repos))
	}
}

// apply replaces everything, starting with the newest root events, see isTooOld.
func (in Snapshot) apply(p *Plan) {
	in.Roots = slices.SortedStableFunc(slices.Values(in.Roots), func(a, b RootChange) int { return cmp.Compare(b.CreatedAt, a.CreatedAt) })
	if len(p.repos.byRef)+len(p.repos.threads) == 0 {
		Changes(in).apply(p)
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
	Changes(in).apply(p)
	for _, of := range sortedBy(without(p.repos.threads, threads), filters.Descendant.Compare) {
		p.setThread(p.repos.infos[p.repos.threads[of]], nil)
	}
	for _, ref := range sortedBy(without(p.repos.byRef, repos), graspsync.RepoRef.Compare) {
		p.setRepo(RepoChange{Ref: ref})
	}
}

func (p *Plan) setRepo(c RepoChange) {
	if c.Level == LevelNone {
		c.Relays = nil
	}
	r := p.repos.repoOf(c.Ref)
	before, level := r.relays, r.level
	p.list(r, c.Relays)
	r.level = c.Level
	for _, rel := range slices.Concat(before, r.relays) {
		same := r.level == level && slices.Contains(before, rel) == slices.Contains(r.relays, rel)
		if rel.gone || same {
			continue
		}
		p.retarget(r.item, rel)
		for _, threads := range r.threads {
			for it := range threads {
				p.retarget(it, rel)
			}
		}
	}
	p.unlisted(r)
	p.repos.drop(r)
}

func (p *Plan) retarget(it Item, rel *relayState) {
	if p.repos.isTarget(it, rel) {
		rel.add(it)
	} else {
		rel.remove(it)
	}
	p.markDirty(rel)
}

func (p *Plan) list(r *repo, relays []graspsync.RelayURL) {
	after := make([]*relayState, 0, len(relays))
	for _, u := range relays {
		rel := p.relayOf(u, r.ref.Owner) // may evict a relay, also one in relays
		if rel == nil || slices.Contains(after, rel) {
			continue
		}
		after = append(after, rel)
		if !slices.Contains(r.relays, rel) {
			p.lists(r, rel)
			r.relays = append(slices.Clone(r.relays), rel)
		}
	}
	for _, rel := range r.relays {
		if !slices.Contains(after, rel) {
			p.leaves(r, rel)
		}
	}
	r.relays = slices.DeleteFunc(after, func(rel *relayState) bool { return rel.gone })
}

func (p *Plan) lists(r *repo, rel *relayState) {
	if o := p.owners.list(r, rel); rel.listed.owners[o] == 1 && len(rel.dial.places) > 0 && !rel.bootstrap {
		p.queue.join(rel, o)
	}
}

func (p *Plan) leaves(r *repo, rel *relayState) {
	r.relays = slices.DeleteFunc(slices.Clone(r.relays), func(o *relayState) bool { return o == rel })
	if o, last := p.owners.unlist(r, rel); last {
		p.queue.quit(rel, o)
	}
}

func (p *Plan) unlisted(r *repo) {
	if len(r.relays) > 0 {
		return
	}
	if o := p.owners.of[r.ref.Owner]; o != nil {
		delete(o.repos, r)
		p.owners.drop(o)
	}
}

// relayOf returns a relay that a repository of this owner lists, or nil if there is no room.
func (p *Plan) relayOf(u graspsync.RelayURL, key graspsync.PubKey) *relayState {
	r := p.relays[u]
	if r != nil && r.listed.record != nil {
		return r
	}
	known := r != nil
	if !known {
		r = p.newRelay(u)
	}
	o := p.owners.owner(key)
	evicted, ok := p.owners.enter(r, o)
	for _, gone := range evicted {
		p.evict(gone)
	}
	if !ok && !known {
		p.owners.drop(o)
		p.dropped("relays", 1)
		return nil
	}
	if !known {
		p.know(r)
	}
	return r
}

func (p *Plan) newRelay(u graspsync.RelayURL) *relayState {
	r := &relayState{url: u, name: u.String(), host: u.HostPort().Host}
	r.listed.owners = make(map[*dialOwner]int)
	r.history = historyState{repos: p.repos, items: make(map[Item]itemStatus)}
	r.pending.open = make(map[BatchID]*batch)
	r.live.reset()
	r.add(Layer1)
	return r
}

func (p *Plan) know(r *relayState) {
	p.relays[r.url] = r
	p.markDirty(r)
}

func (p *Plan) forget(r *relayState) {
	if r.dial.connecting || r.dial.connected {
		p.emit(Hangup{Relay: r.url, Epoch: r.dial.epoch})
	}
	switch {
	case r.dial.connecting:
		p.attemptEnded(r)
	case r.dial.connected:
		p.connectionEnded(r)
	}
	p.queue.leave(r)
	if ids := sortedBy(r.byID.known, graspsync.EventID.Compare); len(ids) > 0 {
		p.fetchAnywhere(ids)
	}
	p.checkpoints.forgotten[r.url] = nil
	delete(p.checkpoints.restored, r.url)
	r.gone = true
	delete(p.relays, r.url)
	p.emit(Forget{Relay: r.url})
}

func (p *Plan) evict(rel *relayState) {
	var listing []*repo
	for o := range rel.listed.owners {
		for r := range o.repos {
			if slices.Contains(r.relays, rel) {
				listing = append(listing, r)
			}
		}
	}
	for _, r := range listing {
		p.leaves(r, rel)
		p.unlisted(r)
	}
	p.forget(rel)
	p.dropped("relays", 1)
}

// setThread sets the repositories of a root event or thread event. The newest MaxRoots root events
// of a repository are items of layer 3, older ones of layer 4.
func (p *Plan) setThread(in itemInfo, after []*repo) {
	w := p.repos
	it, known := w.threads[in.of]
	var before []*repo
	if known {
		before = w.reposOf(it)
	}
	if in.kind == itemRoot && slices.ContainsFunc(after, func(r *repo) bool { return p.isTooOld(in, r) }) {
		in.kind = itemDescendant
		after = slices.DeleteFunc(after, func(r *repo) bool { return !slices.Contains(before, r) && !p.hasRoom(r) })
	}
	was := w.infos[it].kind
	switch {
	case len(after) == 0 && (!known || was == itemRoot && in.kind == itemDescendant):
		return // nothing is known of it, or it is a root event now
	case known && (len(after) == 0 || was == in.kind):
		p.move(it, before, after)
	case known:
		p.move(it, before, nil)
		in.hex = w.infos[it].hex
		w.infos[it] = in
		delete(w.hashes, it)
		p.move(it, nil, after)
	default:
		in.hex = in.of.ID.String()
		it = w.intern(in)
		w.threads[in.of] = it
		p.move(it, nil, after)
	}
	if len(after) == 0 {
		delete(w.threads, in.of)
		w.release(it)
	}
	for _, r := range before {
		w.drop(r)
	}
	p.displace(after)
}

func (p *Plan) move(it Item, before, after []*repo) {
	if slices.Equal(before, after) {
		return
	}
	p.repos.link(it, before, after)
	for _, repos := range [][]*repo{before, after} {
		for _, r := range repos {
			for _, rel := range r.relays {
				p.retarget(it, rel)
			}
		}
	}
}

// olderPerRoot is the maximum number of items of layer 4 per root event of a repository, if the
// items are older root events.
const olderPerRoot = 10

func (p *Plan) hasRoom(r *repo) bool {
	if len(r.threads[threadTier]) < olderPerRoot*p.cfg.MaxRoots {
		return true
	}
	p.dropped("roots", 1)
	return false
}

func (p *Plan) isTooOld(in itemInfo, r *repo) bool {
	if len(r.threads[mainTier]) < p.cfg.MaxRoots {
		return false
	}
	it, known := p.repos.threads[in.of]
	return !(known && has(r.threads[mainTier], it)) && compareRoots(p.repos.infos[p.repos.oldestRoot(r)], in) > 0
}

// displace moves the oldest root events of repositories that have too many to layer 4.
func (p *Plan) displace(repos []*repo) {
	for _, r := range repos {
		if len(r.threads[mainTier]) > p.cfg.MaxRoots {
			it := p.repos.oldestRoot(r)
			older := p.repos.infos[it]
			after := slices.DeleteFunc(p.repos.reposOf(it), func(r *repo) bool { return !p.hasRoom(r) })
			if len(after) > 0 {
				older.kind = itemDescendant
			}
			p.setThread(older, after)
		}
	}
}

func (r *relayState) add(it Item) {
	if r.history.add(it) && r.dial.connected { // on connecting, all items become missing
		lazy.Put(&r.live.missing, it, struct{}{})
	}
}

// remove removes an item from the targets. A batch continues without it, and its subscription stays
// open.
func (r *relayState) remove(it Item) {
	was := r.history.remove(it)
	if was == inFlight {
		r.pending.without(it)
	}
	if has(r.live.missing, it) {
		drop(&r.live.missing, it)
	} else if was != 0 && r.dial.connected {
		r.live.idle++
	}
	drop(&r.live.resting, it)
}

func (r *repo) follows(rel *relayState) bool {
	return r.level == LevelFull && slices.Contains(r.relays, rel)
}

func (w *repoSyncIndex) isTarget(it Item, rel *relayState) bool {
	r := w.infos[it].repo
	return r != nil && r.follows(rel) || slices.ContainsFunc(w.other[it], func(r *repo) bool { return r.follows(rel) })
}
