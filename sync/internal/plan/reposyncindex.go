package plan

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"maps"
	"slices"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/filters"
	"github.com/graspsync/graspsync/sync/internal/lazy"
)

// Level is the part of a repository that is wanted.
type Level uint8

const (
	// LevelNone: nothing.
	LevelNone Level = iota
	// LevelStateOnly: announcements and states. The announcement of the repository is held.
	LevelStateOnly
	// LevelFull: everything.
	LevelFull
)

// Item is a unit of sync with a relay: a small number for an address or id that many relays share.
type Item uint32

// Layer1 is the item for announcements and states. Every relay has it.
const Layer1 Item = 0

type itemKind uint8

const (
	itemFree itemKind = iota
	itemLayer1
	itemRepo
	itemRoot
	itemDescendant // a thread event
	itemKinds
)

// tier is the priority of items. Anyone can add items of layer 4, so layer 4 uses only the room that
// layers 1 to 3 leave.
type tier uint8

const (
	mainTier   tier = iota // layers 1 to 3
	threadTier             // layer 4
	tiers
)

func (x *repoSyncIndex) tier(it Item) tier {
	if x.infos[it].kind == itemDescendant {
		return threadTier
	}
	return mainTier
}

type itemInfo struct {
	kind itemKind
	at   uint32             // created_at of a root event
	of   filters.Descendant // the root event or thread event
	hex  string             // of its id, shared by the filters of all relays
	repo *repo
}

type repo struct {
	ref     graspsync.RepoRef
	item    Item
	level   Level
	relays  []*relayState
	threads [tiers]map[Item]struct{} // root events, thread events
	oldest  []Item                   // the oldest root events, sorted; empty if unknown
}

// repoSyncIndex contains the wanted repositories and assigns the items.
type repoSyncIndex struct {
	salt    []byte
	infos   []itemInfo
	hashes  map[Item]uint64
	other   map[Item][]*repo // further repositories of an item
	free    []Item
	byRef   map[graspsync.RepoRef]*repo
	threads map[filters.Descendant]Item // root events and thread events
}

func newRepoSyncIndex(salt []byte) *repoSyncIndex {
	return &repoSyncIndex{
		salt: salt, infos: []itemInfo{{kind: itemLayer1}}, hashes: make(map[Item]uint64), other: make(map[Item][]*repo),
		byRef: make(map[graspsync.RepoRef]*repo), threads: make(map[filters.Descendant]Item),
	}
}

func (x *repoSyncIndex) intern(in itemInfo) Item {
	if n := len(x.free); n > 0 {
		it := x.free[n-1]
		x.free = x.free[:n-1]
		x.infos[it] = in
		return it
	}
	x.infos = append(x.infos, in)
	return Item(len(x.infos) - 1)
}

func (x *repoSyncIndex) release(it Item) {
	x.infos[it] = itemInfo{}
	delete(x.hashes, it)
	delete(x.other, it)
	x.free = append(x.free, it)
}

// repoOf returns a repository. An unknown repository is added with an item, without relays.
func (x *repoSyncIndex) repoOf(ref graspsync.RepoRef) *repo {
	if r, ok := x.byRef[ref]; ok {
		return r
	}
	r := &repo{ref: ref}
	r.item = x.intern(itemInfo{kind: itemRepo, repo: r})
	x.byRef[ref] = r
	return r
}

func (x *repoSyncIndex) drop(r *repo) {
	if r.level == LevelNone && len(r.threads[mainTier])+len(r.threads[threadTier]) == 0 {
		delete(x.byRef, r.ref)
		x.release(r.item)
	}
}

// known returns the known repositories among refs, without repetitions.
func (x *repoSyncIndex) known(refs []graspsync.RepoRef) (repos []*repo) {
	for _, ref := range refs {
		if r := x.byRef[ref]; r != nil && !slices.Contains(repos, r) {
			repos = append(repos, r)
		}
	}
	return repos
}

func (x *repoSyncIndex) reposOf(it Item) []*repo {
	return append([]*repo{x.infos[it].repo}, x.other[it]...)
}

// link moves a root event or thread event to other repositories.
func (x *repoSyncIndex) link(it Item, before, after []*repo) {
	tier := x.tier(it)
	for _, r := range before {
		delete(r.threads[tier], it)
	}
	for _, r := range after {
		lazy.Put(&r.threads[tier], it, struct{}{})
	}
	if tier == mainTier {
		x.updateOldest(it, before, after)
	}
	if x.infos[it].repo = nil; len(after) > 0 {
		x.infos[it].repo = after[0]
	}
	if delete(x.other, it); len(after) > 1 {
		x.other[it] = after[1:]
	}
}

// maxOldest is the number of oldest root events that are found together, because finding them reads
// all root events of a repository.
const maxOldest = 64

func (x *repoSyncIndex) updateOldest(it Item, before, after []*repo) {
	for _, r := range before {
		r.oldest = slices.DeleteFunc(r.oldest, func(o Item) bool { return o == it })
	}
	for _, r := range after {
		if i, _ := slices.BinarySearchFunc(r.oldest, it, x.compareRoots); i < len(r.oldest) {
			r.oldest = slices.Insert(r.oldest, i, it)
		}
	}
}

func (x *repoSyncIndex) oldestRoot(r *repo) Item {
	if len(r.oldest) == 0 {
		all := slices.SortedFunc(maps.Keys(r.threads[mainTier]), x.compareRoots)
		r.oldest = slices.Clone(all[:min(len(all), maxOldest)])
	}
	return r.oldest[0]
}

func (x *repoSyncIndex) compareRoots(a, b Item) int { return compareRoots(x.infos[a], x.infos[b]) }

func compareRoots(a, b itemInfo) int {
	return cmp.Or(cmp.Compare(a.at, b.at), a.of.ID.Compare(b.of.ID))
}

// hash returns the hash of an item, see [Kept].
func (x *repoSyncIndex) hash(it Item) uint64 {
	if x.hashes[it] == 0 {
		in := &x.infos[it]
		kind := [itemKinds]byte{itemLayer1: 1, itemRepo: 2, itemRoot: 3}[in.kind]
		b := append(slices.Clone(x.salt), kind)
		switch in.kind {
		case itemRepo:
			b = append(b, in.repo.ref.String()...)
		case itemRoot:
			b = append(b, in.of.ID[:]...)
		}
		sum := sha256.Sum256(b)
		x.hashes[it] = binary.BigEndian.Uint64(sum[:])
	}
	return x.hashes[it]
}

// itemFilters returns the filters for the events of items. The items may have several kinds, because
// an item may be reassigned while its group waits.
func (x *repoSyncIndex) itemFilters(items []Item) (out []nostr.Filter) {
	var refs []graspsync.RepoRef
	var ids []graspsync.EventID
	var below []filters.Descendant
	for _, it := range items {
		switch in := &x.infos[it]; in.kind {
		case itemLayer1:
			out = append(out, filters.Layer1())
		case itemRepo:
			refs = append(refs, in.repo.ref)
		case itemRoot:
			if ids == nil { // most groups contain root events only
				ids = make([]graspsync.EventID, 0, len(items))
			}
			ids = append(ids, in.of.ID)
		case itemDescendant:
			below = append(below, in.of)
		}
	}
	out = append(out, filters.Repos(refs)...)
	out = append(out, filters.Roots(ids)...)
	out = append(out, filters.Descendants(below)...)
	for _, f := range out {
		for i, v := range f.Tags["e"] { // E and q share the list
			f.Tags["e"][i] = x.shared(v)
		}
	}
	return out
}

// shared returns the stored text of an id, so that a root event takes little memory per relay.
func (x *repoSyncIndex) shared(text string) string {
	id, _ := graspsync.ParseEventID(text)
	if it, ok := x.threads[filters.Descendant{ID: id}]; ok {
		return x.infos[it].hex
	}
	return text
}

// groups splits items into chunks of one kind, at most MaxValues items each, in the order of filter
// values.
func (x *repoSyncIndex) groups(items []Item) (out [][]Item) {
	sorted := slices.SortedFunc(slices.Values(items), x.compare)
	for len(sorted) > 0 {
		kind, n := x.infos[sorted[0]].kind, 1
		for n < min(len(sorted), filters.MaxValues) && x.infos[sorted[n]].kind == kind {
			n++
		}
		out = append(out, sorted[:n:n])
		sorted = sorted[n:]
	}
	return out
}

func (x *repoSyncIndex) compare(a, b Item) int {
	v, w := &x.infos[a], &x.infos[b]
	if c := cmp.Compare(v.kind, w.kind); c != 0 {
		return c
	}
	switch v.kind {
	case itemRepo:
		return v.repo.ref.Compare(w.repo.ref)
	case itemRoot, itemDescendant:
		return v.of.Compare(w.of)
	}
	return 0
}

func (x *repoSyncIndex) addItems(value string, items map[Item]struct{}) {
	of := filters.Descendant{Address: value}
	if id, err := graspsync.ParseEventID(value); err == nil {
		of = filters.Descendant{ID: id}
	} else if a, err := graspsync.ParseAddress(value); err == nil {
		if ref, ok := a.Repo(); ok && x.byRef[ref] != nil {
			items[x.byRef[ref].item] = struct{}{}
		}
	}
	if it, ok := x.threads[of]; ok {
		items[it] = struct{}{}
	}
}

func (x *repoSyncIndex) itemsOf(fs []nostr.Filter) []Item {
	items := make(map[Item]struct{})
	for _, f := range fs {
		if len(f.Tags) == 0 {
			items[Layer1] = struct{}{}
		}
		for _, values := range f.Tags {
			for _, v := range values {
				x.addItems(v, items)
			}
		}
	}
	return slices.Collect(maps.Keys(items))
}
