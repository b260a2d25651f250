package plan

import (
	"slices"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/filters"
)

// Level says how much of a repository is wanted.
type Level uint8

const (
	// LevelNone: nothing; the repository is gone.
	LevelNone Level = iota
	// LevelStateOnly: its relays are asked for announcements and states, but not
	// for what tags it: its announcement is not accepted yet.
	LevelStateOnly
	// LevelFull: everything.
	LevelFull
)

// Item is one thing wanted of a relay: layer 1, a repository, its states where layer
// 1 has none, or a root event. It is a small number that stands for the address or
// id, because each of them is known to many relays at once.
type Item uint32

// Layer1 is the item for announcements and states, or for announcements alone
// ([Config].NarrowLayer1). Every relay has it.
const Layer1 Item = 0

type itemKind uint8

const (
	itemFree itemKind = iota
	itemLayer1
	itemStates // of a repository; only where layer 1 is narrowed
	itemRepo
	itemRoot
	itemDescendant // none of those that a relay has a status for
	itemKinds      // how many there are
)

// info is what is known of an Item.
type info struct {
	kind itemKind
	root graspsync.EventID // or descendant
	at   uint32            // of a root event: its created_at, cut to what fits
	repo *repo
}

// repo is the want-state of a repository.
type repo struct {
	ref    graspsync.RepoRef
	item   Item
	states Item // 0 unless layer 1 is narrowed
	level  Level
	served bool // it is accepted, and lists relays
	relays []*relay
	named  int // of these, the first ones, by its owner
	roots  map[Item]struct{}

	descendants map[Item]struct{}

	// Where there are more root events than are followed:
	rest   map[graspsync.EventID]uint32 // the older ones, with their created_at
	oldest []Item                       // heap of roots, oldest first; nil if it is not known
}

// want is the first of the four facts. It interns items and tells which of them
// are targets of which relay.
type want struct {
	narrow      bool   // layer 1 is announcements alone
	salt        []byte // of hashes
	infos       []info
	hashes      []uint64         // of infos, as far as anyone asked; 0: not known
	other       map[Item][]*repo // of root events and descendants that belong to more than one
	free        []Item
	repos       map[graspsync.RepoRef]*repo
	roots       map[graspsync.EventID]Item
	descendants map[filters.Descendant]Item
	addresses   map[Item]string // of those that have one
	// resting are the repositories with a rest.
	resting map[*repo]struct{}
}

func newWant(narrow bool, salt []byte) *want {
	return &want{
		narrow: narrow,
		salt:   salt,

		infos: []info{{kind: itemLayer1}},
		other: make(map[Item][]*repo),
		repos: make(map[graspsync.RepoRef]*repo),
		roots: make(map[graspsync.EventID]Item),

		descendants: make(map[filters.Descendant]Item),
		addresses:   make(map[Item]string),

		resting: make(map[*repo]struct{}),
	}
}

func (w *want) intern(in info) Item {
	if n := len(w.free); n > 0 {
		it := w.free[n-1]
		w.free = w.free[:n-1]
		w.infos[it] = in
		return it
	}
	w.infos = append(w.infos, in)
	return Item(len(w.infos) - 1)
}

func (w *want) release(it Item) {
	w.infos[it] = info{}
	if int(it) < len(w.hashes) {
		w.hashes[it] = 0
	}
	delete(w.other, it)
	w.free = append(w.free, it)
}

// repoOf returns the entry of ref, making one that wants nothing if there is none.
func (w *want) repoOf(ref graspsync.RepoRef) *repo {
	if r, ok := w.repos[ref]; ok {
		return r
	}
	r := &repo{ref: ref}
	r.item = w.intern(info{kind: itemRepo, repo: r})
	if w.narrow {
		r.states = w.intern(info{kind: itemStates, repo: r})
	}
	w.repos[ref] = r
	return r
}

// drop removes an entry that wants nothing, and that nothing belongs to.
func (w *want) drop(r *repo) {
	if r.level == LevelNone && len(r.roots)+len(r.rest)+len(r.descendants) == 0 {
		delete(w.repos, r.ref)
		w.release(r.item)
		if r.states != 0 {
			w.release(r.states)
		}
	}
}

// follows reports whether the repository makes its items targets of rel.
func (r *repo) follows(rel *relay) bool {
	return r.level == LevelFull && slices.Contains(r.relays, rel)
}

// names returns who names one of the relays of the repository.
func (r *repo) names(rel *relay) side {
	if slices.Index(r.relays, rel) < r.named {
		return byOwner
	}
	return byOthers
}

// wants reports whether an item is one of the repository, at its level.
func (r *repo) wants(it Item) bool {
	if r.states != 0 && it == r.states {
		return true
	}
	_, root := r.roots[it]
	return r.level == LevelFull && (root || it == r.item)
}

// isTarget reports whether a root event or a descendant is wanted of rel by any repository.
func (w *want) isTarget(it Item, rel *relay) bool {
	return w.infos[it].repo.follows(rel) ||
		slices.ContainsFunc(w.other[it], func(r *repo) bool { return r.follows(rel) })
}

// belongs reports whether a root event is known to tag r.
func (w *want) belongs(it Item, r *repo) bool {
	return w.infos[it].repo == r || slices.Contains(w.other[it], r)
}

// addRoot makes a root event one of r's, which it was not.
func (w *want) addRoot(id graspsync.EventID, at uint32, r *repo) Item {
	it, ok := w.roots[id]
	if !ok {
		it = w.intern(info{kind: itemRoot, root: id, at: at, repo: r})
		w.roots[id] = it
	} else {
		w.other[it] = append(w.other[it], r)
	}
	if r.roots == nil {
		r.roots = make(map[Item]struct{})
	}
	r.roots[it] = struct{}{}
	return it
}

// dropRoot forgets a root event and returns the repositories it belonged to.
func (w *want) dropRoot(id graspsync.EventID) (Item, []*repo) {
	it, ok := w.roots[id]
	if !ok {
		return 0, nil
	}
	repos := append([]*repo{w.infos[it].repo}, w.other[it]...)
	for _, r := range repos {
		delete(r.roots, it)
		r.oldest = nil
	}
	delete(w.roots, id)
	return it, repos
}

// untrack takes a root event from one of its repositories and reports whether it
// has no other.
func (w *want) untrack(it Item, r *repo) (alone bool) {
	delete(r.roots, it)
	in := &w.infos[it]
	others := w.other[it]
	switch {
	case len(others) == 0:
		delete(w.roots, in.root)
		return true
	case in.repo == r:
		in.repo = others[0]
		others = others[1:]
	default:
		others = slices.DeleteFunc(others, func(o *repo) bool { return o == r })
	}
	if w.other[it] = others; len(others) == 0 {
		delete(w.other, it)
	}
	return false
}
