package index

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"maps"
	"slices"
	"unique"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/filters"
	"github.com/graspsync/graspsync/limit"
	"github.com/graspsync/graspsync/nip34"
)

// Limits of layer 4.
const (
	// distance of a reply from its root event or repository
	MaxDepth = 8
	// replies below one root event or repository, the newest
	maxOfBranch = 500
	// about 100 MB; repository owners share them
	maxDescendants = 100_000
	// examined references of one event
	maxRefs = 16
	// events that were reported before the event that they reply to
	maxOrphans = 1_024
)

// threads contains the stored replies in hosted repositories. Until a limit is reached it does not
// depend on the order of events.
type threads struct {
	nodes       map[refKey]*node              // by id, and by address
	children    map[refKey]map[*node]struct{} // nodes by the keys that they refer to, stored or not
	ours        map[refKey]*repoEntry
	authors     map[unique.Handle[graspsync.PubKey]]map[*node]struct{}
	roots       map[graspsync.EventID]*rootEntry      // of the tables
	branches    map[refKey]map[*node]struct{}         // nodes with a place, by the top of their place
	placed      *limit.Table[*node, graspsync.PubKey] // the same nodes, with the owner of the top
	branchLimit int                                   // smaller in tests

	orphans *limit.Table[*node, struct{}]
}

// refKey is an id, or the hash of an address.
type refKey [32]byte

func addressRef(address string) refKey { return sha256.Sum256([]byte("address " + address)) }

type reply struct {
	id      graspsync.EventID
	at      nostr.Timestamp
	author  unique.Handle[graspsync.PubKey]
	address string // "" if references use the id
	refs    []refKey
}

type node struct {
	reply
	place place
	seen  uint32 // the last scan before it was stored
}

// add and remove change a set of a map. No set is empty.
func add[K comparable](m map[K]map[*node]struct{}, k K, n *node) {
	if m[k] == nil {
		m[k] = make(map[*node]struct{}, 1)
	}
	m[k][n] = struct{}{}
}

func remove[K comparable](m map[K]map[*node]struct{}, k K, n *node) {
	if delete(m[k], n); len(m[k]) == 0 {
		delete(m, k)
	}
}

// place is the position of a node in a thread. The zero value means no place.
type place struct {
	top    refKey
	ofRepo bool  // top is a repository
	depth  uint8 // 1 for a direct reference to top
}

// before reports whether a place is preferred. Root events precede repositories, then the smaller
// depth wins.
func (p place) before(other place) bool {
	switch {
	case other.depth == 0:
		return p.depth > 0
	case p.ofRepo != other.ofRepo:
		return other.ofRepo
	case p.depth != other.depth:
		return p.depth < other.depth
	}
	return bytes.Compare(p.top[:], other.top[:]) < 0
}

func newThreads(roots map[graspsync.EventID]*rootEntry) *threads {
	return &threads{
		roots: roots, branchLimit: maxOfBranch, placed: limit.NewTable[*node, graspsync.PubKey](maxDescendants, 0),
		orphans: limit.NewTable[*node, struct{}](maxOrphans, 0),
		nodes:   make(map[refKey]*node), children: make(map[refKey]map[*node]struct{}), ours: make(map[refKey]*repoEntry),
		authors:  make(map[unique.Handle[graspsync.PubKey]]map[*node]struct{}),
		branches: make(map[refKey]map[*node]struct{}),
	}
}

// replyOf returns a stored event as a reply, or nil for events of other layers, deletions,
// reactions (NIP-25) and zaps (NIP-57).
func replyOf(ev graspsync.Event) *reply {
	switch ev.Kind {
	case graspsync.KindAnnouncement, graspsync.KindState, graspsync.KindDeletion, graspsync.KindVanish, kindReaction, kindZap:
		return nil
	}
	if nostr.IsEphemeralKind(ev.Kind) || len(nip34.RootRefs(ev.Event)) > 0 {
		return nil
	}
	var refs []refKey
	for _, id := range nip34.EventRefs(ev.Event) {
		refs = append(refs, refKey(id))
	}
	refs = refs[:min(len(refs), maxRefs)]
	for _, a := range nip34.Addresses(ev.Event) {
		if len(refs) == maxRefs {
			break
		}
		if a.Kind != graspsync.KindState { // a reference to a state does not place an event
			refs = append(refs, addressRef(a.String()))
		}
	}
	if len(refs) == 0 {
		return nil
	}
	a := &reply{id: ev.ID, at: ev.CreatedAt, author: unique.Make(ev.PubKey), refs: refs}
	if c, ok := ev.Address(); ok && (c.Identifier == "" || graspsync.CheckIdentifier(c.Identifier) == nil) {
		a.address = c.String()
	}
	return a
}

const (
	kindReaction = 7
	kindZap      = 9735
)

func (n *node) key() filters.Descendant {
	if n.address != "" {
		return filters.Descendant{Address: n.address}
	}
	return filters.Descendant{ID: n.id}
}

// keys returns all keys of a node. Requests use the first.
func (n *node) keys() []refKey {
	if n.address != "" {
		return []refKey{addressRef(n.address), refKey(n.id)}
	}
	return []refKey{refKey(n.id)}
}

func (t *threads) add(a *reply, scan uint32, c *Change) {
	if n := t.nodes[refKey(a.id)]; n != nil {
		n.seen = scan
		return
	}
	n := &node{reply: *a, seen: scan}
	if old := t.nodes[n.keys()[0]]; old != nil {
		// A new version keeps the replies to the old one.
		if (graspsync.EventKey{CreatedAt: n.at, ID: n.id}).Newer(graspsync.EventKey{CreatedAt: old.at, ID: old.id}) {
			t.unlink(old)
			old.reply, old.seen = *a, scan
			t.link(old)
			t.settle([]*node{old}, c)
		}
		return
	}
	if at, deep := t.best(n); at.depth == 0 && deep {
		c.LeftOut++
	}
	t.link(n)
	if t.settle([]*node{n}, c); n.place.depth == 0 && t.nodes[refKey(n.id)] == n {
		t.await(n)
	}
}

func (t *threads) link(n *node) {
	for _, k := range n.keys() {
		t.nodes[k] = n
	}
	for _, ref := range n.refs {
		add(t.children, ref, n)
	}
	add(t.authors, n.author, n)
}

func (t *threads) unlink(n *node) {
	for _, k := range n.keys() {
		delete(t.nodes, k)
	}
	for _, ref := range n.refs {
		remove(t.children, ref, n)
	}
	remove(t.authors, n.author, n)
}

// await keeps a node without a place, because events may be reported out of order.
func (t *threads) await(n *node) {
	evicted, _ := t.orphans.Put(n, limit.Stranger{}, 0, struct{}{})
	for _, old := range evicted {
		t.unlink(old.Key)
	}
}

func (t *threads) below(keys ...refKey) (out []*node) {
	for _, k := range keys {
		out = slices.AppendSeq(out, maps.Keys(t.children[k]))
	}
	slices.SortFunc(out, func(a, b *node) int { return a.id.Compare(b.id) })
	return out
}

// top reports whether a key is a hosted repository or a root event of one, and its owner.
func (t *threads) top(k refKey) (owner graspsync.PubKey, ofRepo, is bool) {
	if r := t.ours[k]; r != nil {
		return r.ref.Owner, true, true
	}
	root := t.roots[graspsync.EventID(k)]
	if root == nil {
		return owner, false, false
	}
	if r := root.owner(); r != nil {
		return r.ref.Owner, false, true
	}
	return owner, false, false
}

// best returns the preferred place. deep means that a reference is at the maximum depth.
func (t *threads) best(n *node) (at place, deep bool) {
	for _, ref := range n.refs {
		p := place{top: ref, depth: 1}
		if _, ofRepo, is := t.top(ref); is {
			p.ofRepo = ofRepo
		} else {
			parent := t.nodes[ref]
			if parent == nil || parent == n || parent.place.depth == 0 {
				continue
			}
			if _, _, stands := t.top(parent.place.top); !stands {
				continue // the place of the referenced node is void
			}
			if p = parent.place; p.depth == MaxDepth {
				deep = true
				continue
			}
			p.depth++
		}
		if p.before(at) {
			at = p
		}
	}
	return at, deep
}

// settle updates the places of nodes and all nodes below.
func (t *threads) settle(work []*node, c *Change) {
	for len(work) > 0 {
		n := work[0]
		work = work[1:]
		if t.nodes[refKey(n.id)] != n {
			continue // the node was removed
		}
		at, _ := t.best(n)
		was := n.place
		if at == was {
			continue
		}
		below := t.below(n.keys()...)
		switch {
		case at.depth == 0:
			c.setDescendant(n.key(), nil)
			t.vacate(n)
			t.await(n)
		case at.top == was.top && was.depth > 0:
			n.place = at
		default:
			t.vacate(n)
			gone, fits := t.take(n, at, c)
			work = append(work, gone...)
			if fits {
				c.setDescendant(n.key(), t.reposBelow(at))
				break
			}
			n.place = was // the change needs the old place
			t.drop(n, c)
			c.LeftOut++
		}
		work = append(work, below...)
	}
}

func (t *threads) reposBelow(at place) []graspsync.RepoRef {
	if at.ofRepo {
		return []graspsync.RepoRef{t.ours[at.top].ref}
	}
	return t.roots[graspsync.EventID(at.top)].refs()
}

// take puts a node into a place and returns the nodes below evicted nodes. A full branch evicts its
// oldest node, a full table the oldest node of the owner with the most. If that is the node itself,
// fits is false. The nodes to which n replies are not evicted.
func (t *threads) take(n *node, at place, c *Change) (hung []*node, fits bool) {
	above := func(o *node) bool {
		return slices.ContainsFunc(o.keys(), func(k refKey) bool { return slices.Contains(n.refs, k) })
	}
	if b := t.branches[at.top]; len(b) >= t.branchLimit {
		oldest := n
		for o := range b {
			if o.before(oldest) && !above(o) {
				oldest = o
			}
		}
		if oldest == n {
			return nil, false
		}
		hung = t.giveUp(oldest, c)
	}
	owner, _, _ := t.top(at.top)
	gone, fits := t.placed.PutKeeping(n, ownerStranger(owner), 0, owner, func(o *node) bool {
		of, _ := t.placed.Get(o)
		return of == owner && n.before(o) || above(o)
	})
	for _, g := range gone {
		hung = append(hung, t.giveUp(g.Key, c)...)
	}
	if !fits {
		return hung, false
	}
	n.place = at
	t.orphans.Delete(n)
	add(t.branches, at.top, n)
	return hung, true
}

func (t *threads) giveUp(n *node, c *Change) (hung []*node) {
	hung = t.below(n.keys()...)
	t.drop(n, c)
	c.LeftOut++
	return hung
}

func (t *threads) vacate(n *node) {
	remove(t.branches, n.place.top, n)
	t.placed.Delete(n)
	n.place = place{}
}

// drop removes a node. The caller must settle the nodes below it.
func (t *threads) drop(n *node, c *Change) {
	if n.place.depth > 0 {
		c.setDescendant(n.key(), nil)
	}
	t.vacate(n)
	t.orphans.Delete(n)
	t.unlink(n)
}

// remove removes an event of this author, or of any if it is zero.
func (t *threads) remove(k refKey, author graspsync.PubKey, c *Change) {
	n := t.nodes[k]
	if n == nil || author != (graspsync.PubKey{}) && n.author.Value() != author {
		return
	}
	below := t.below(n.keys()...)
	t.drop(n, c)
	t.settle(below, c)
}

func (n *node) before(other *node) bool {
	return cmp.Or(cmp.Compare(n.at, other.at), n.id.Compare(other.id)) < 0
}

// hostedChanged updates the threads when a repository becomes hosted or is no longer hosted.
func (t *threads) hostedChanged(r *repoEntry, c *Change) {
	key := addressRef(r.ref.String())
	if r.ann == nil {
		delete(t.ours, key)
	} else {
		t.ours[key] = r
	}
	keys := []refKey{key}
	for root := range r.roots {
		keys = append(keys, refKey(root.id))
	}
	t.settle(t.below(keys...), c)
}

func (t *threads) reportBelow(top refKey, c *Change) {
	for n := range t.branches[top] {
		c.setDescendant(n.key(), t.reposBelow(n.place))
	}
}

func (t *threads) vanish(author graspsync.PubKey, until nostr.Timestamp, c *Change) {
	var gone []graspsync.EventID
	for n := range t.authors[unique.Make(author)] {
		if n.at <= until {
			gone = append(gone, n.id)
		}
	}
	slices.SortFunc(gone, graspsync.EventID.Compare)
	for _, id := range gone {
		t.remove(refKey(id), author, c)
	}
}

func (t *threads) end(at graspsync.Address, until nostr.Timestamp, c *Change) {
	k := addressRef(at.String())
	if n := t.nodes[k]; n != nil && n.at <= until {
		t.remove(k, at.Author, c)
	}
}
