package index

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/filters"
	"github.com/graspsync/graspsync/internal/eventtest"
	"github.com/graspsync/graspsync/nip34"
)

func testKey(n int) (k graspsync.PubKey) {
	for i := range 4 {
		k[31-i] = byte((n + 1) >> (8 * i))
	}
	return k
}

func testID(n int) graspsync.EventID { return graspsync.EventID(testKey(n)) }

func testRepo(owner int, identifier string) graspsync.RepoRef {
	return graspsync.RepoRef{Owner: testKey(owner), Identifier: identifier}
}

func testEvent(n, kind, author int, at nostr.Timestamp, tags ...nostr.Tag) *nostr.Event {
	return &nostr.Event{ID: testID(n).String(), Kind: kind, PubKey: testKey(author).String(), CreatedAt: at, Tags: tags}
}

// testAnnouncement returns an announcement that listsByName accepts unless it is named "foreign".
func testAnnouncement(n, author int, identifier string, at nostr.Timestamp, name string) *nostr.Event {
	return testEvent(n, graspsync.KindAnnouncement, author, at, nostr.Tag{"d", identifier}, nostr.Tag{"name", name})
}

func listsByName(a *nip34.Announcement) bool { return a.Name != "foreign" }

func tagRepo(ref graspsync.RepoRef) nostr.Tag { return nostr.Tag{"a", ref.String()} }

const allRelays = "ALL_RELAYS"

func tagEvent(n int) nostr.Tag { return nostr.Tag{"e", testID(n).String()} }

// twinStore is a list of events with the rules of NIP-01, NIP-09 and NIP-62.
type twinStore struct {
	mu     sync.Mutex
	events []*nostr.Event
	dels   []*nostr.Event
	gone   []*nostr.Event // requests to vanish that apply to this service
}

func (s *twinStore) covered(ev *nostr.Event) bool {
	if ev.Kind != graspsync.KindVanish && slices.ContainsFunc(s.gone, func(v *nostr.Event) bool {
		return v.PubKey == ev.PubKey && ev.CreatedAt <= v.CreatedAt
	}) {
		return true
	}
	return slices.ContainsFunc(s.dels, func(d *nostr.Event) bool {
		if d.PubKey != ev.PubKey || ev.Kind == graspsync.KindDeletion {
			return false
		}
		ids, addresses := nip34.DeletionTargets(eventtest.Of(d))
		return slices.ContainsFunc(ids, func(id graspsync.EventID) bool { return id.String() == ev.ID }) ||
			slices.ContainsFunc(addresses, func(a graspsync.Address) bool {
				return a.Author.String() == ev.PubKey && a.Kind == ev.Kind && a.Identifier == ev.Tags.GetD() &&
					nostr.IsAddressableKind(ev.Kind) && ev.CreatedAt <= d.CreatedAt
			})
	})
}

// save reports whether the event was stored.
func (s *twinStore) save(ev *nostr.Event) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.covered(ev) || slices.ContainsFunc(s.events, func(old *nostr.Event) bool { return old.ID == ev.ID }) {
		return false
	}
	if nostr.IsAddressableKind(ev.Kind) {
		for i, old := range s.events {
			if old.Kind == ev.Kind && old.PubKey == ev.PubKey && old.Tags.GetD() == ev.Tags.GetD() {
				if old.CreatedAt > ev.CreatedAt || (old.CreatedAt == ev.CreatedAt && old.ID < ev.ID) {
					return false
				}
				s.events = slices.Delete(s.events, i, i+1)
				break
			}
		}
	}
	s.events = append(s.events, ev)
	if ev.Kind == graspsync.KindDeletion {
		s.dels = append(s.dels, ev)
		s.events = slices.DeleteFunc(s.events, s.covered)
	}
	if ev.Kind == graspsync.KindVanish && ev.Tags.FindWithValue("relay", allRelays) != nil {
		s.gone = append(s.gone, ev)
		s.events = slices.DeleteFunc(s.events, s.covered)
	}
	return true
}

func (s *twinStore) remove(i int) *nostr.Event {
	ev := s.events[i]
	s.events = slices.Delete(s.events, i, i+1)
	return ev
}

func (s *twinStore) matching(f nostr.Filter) []*nostr.Event {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(s.events), func(ev *nostr.Event) bool { return !f.Matches(ev) })
}

// facts is the content of an index in plain maps.
type facts struct {
	Repos map[graspsync.RepoRef]graspsync.EventID
	Roots map[graspsync.EventID][]graspsync.RepoRef
	Below map[filters.Descendant][]graspsync.RepoRef
}

func newFacts() facts {
	return facts{
		make(map[graspsync.RepoRef]graspsync.EventID), make(map[graspsync.EventID][]graspsync.RepoRef),
		make(map[filters.Descendant][]graspsync.RepoRef),
	}
}

// facts computes the expected content of the index from the events, and the repositories with an
// announcement, hosted or not.
func (s *twinStore) facts() (f facts, announced map[graspsync.RepoRef]struct{}) {
	f, announced = newFacts(), make(map[graspsync.RepoRef]struct{})
	for _, ev := range s.matching(nostr.Filter{}) {
		if a, err := nip34.ParseAnnouncement(eventtest.Of(ev)); err == nil {
			announced[a.Ref] = struct{}{}
			if listsByName(a) {
				f.Repos[a.Ref] = a.ID
			}
		}
		id, err := graspsync.ParseEventID(ev.ID)
		if refs := nip34.RootRefs(ev); err == nil && len(refs) > 0 {
			f.Roots[id] = refs
		}
	}
	f.Below = below(s.matching(nostr.Filter{}), f)
	return f, announced
}

// below finds all replies the slow way: it examines all events repeatedly, one level of references
// per pass.
func below(events []*nostr.Event, f facts) map[filters.Descendant][]graspsync.RepoRef {
	type hangs struct {
		ofRepo bool
		depth  int
		top    refKey
		repos  []graspsync.RepoRef
	}
	less := func(a, b hangs) bool {
		if a.ofRepo != b.ofRepo {
			return b.ofRepo
		}
		if a.depth != b.depth {
			return a.depth < b.depth
		}
		return bytes.Compare(a.top[:], b.top[:]) < 0
	}
	by := make(map[string]hangs) // values that a tag may have
	for ref := range f.Repos {
		by[ref.String()] = hangs{ofRepo: true, top: addressRef(ref.String()), repos: []graspsync.RepoRef{ref}}
	}
	for id, refs := range f.Roots {
		if slices.ContainsFunc(refs, func(ref graspsync.RepoRef) bool { return changes(f.Repos, ref) }) {
			by[id.String()] = hangs{top: refKey(id), repos: refs}
		}
	}
	out := make(map[filters.Descendant][]graspsync.RepoRef)
	for changed := true; changed; {
		changed = false
		for _, ev := range events {
			id, err := graspsync.ParseEventID(ev.ID)
			switch ev.Kind {
			case graspsync.KindAnnouncement, graspsync.KindState, graspsync.KindDeletion, graspsync.KindVanish, 7, 9735:
				continue
			}
			if err != nil || len(nip34.RootRefs(ev)) > 0 {
				continue
			}
			of, names := filters.Descendant{ID: id}, []string{ev.ID}
			if c, ok := eventtest.Of(ev).Address(); ok {
				of = filters.Descendant{Address: c.String()}
				names = append(names, of.Address)
			}
			for _, tag := range ev.Tags {
				if !slices.Contains([]string{"a", "A", "e", "E", "q"}, tag[0]) {
					continue
				}
				p, ok := by[tag[1]]
				if p.depth++; !ok || p.depth > 8 || slices.Contains(names, tag[1]) {
					continue
				}
				if old, known := by[names[0]]; !known || less(p, old) {
					for _, name := range names {
						by[name] = p
					}
					out[of], changed = p.repos, true
				}
			}
		}
	}
	return out
}

// facts returns the actual content of the index.
func (x *Index) facts() facts {
	f := newFacts()
	for ref, r := range x.tables.repos {
		if r.ann != nil {
			f.Repos[ref] = r.ann.ID
		}
	}
	for id, root := range x.tables.roots {
		f.Roots[id] = root.refs()
	}
	for _, n := range x.tables.threads.nodes {
		if n.place.depth > 0 {
			f.Below[n.key()] = x.tables.threads.reposBelow(n.place)
		}
	}
	return f
}

// apply applies a change to the facts like a plan.
func (f facts) apply(t *testing.T, c Change) {
	for ref, a := range c.Repos {
		if a == nil {
			delete(f.Repos, ref)
			continue
		}
		require.Equal(t, ref, a.Ref)
		require.Nil(t, a.Event, "the event's memory is not kept")
		if _, known := f.Repos[ref]; !known {
			for id, refs := range f.Roots {
				if slices.Contains(refs, ref) && !changes(c.Roots, id) {
					require.Fail(t, "a repository came without its root events", "%s", id)
				}
			}
		}
		f.Repos[ref] = a.ID
	}
	for id, refs := range c.Roots {
		if refs == nil {
			delete(f.Roots, id)
		} else {
			f.Roots[id] = refs
		}
	}
	for of, refs := range c.Descendants {
		if refs == nil {
			delete(f.Below, of)
		} else {
			f.Below[of] = refs
		}
	}
}

func changes[K comparable, V any](m map[K]V, k K) bool {
	_, ok := m[k]
	return ok
}

// descends reports whether an event is a followed reply in a hosted repository.
func (x *Index) descends(id graspsync.EventID) bool {
	n := x.tables.threads.nodes[refKey(id)]
	return n != nil && n.place.depth > 0
}

// follows reports whether a root event tags a hosted repository.
func (x *Index) follows(id graspsync.EventID) bool {
	root := x.tables.roots[id]
	return root != nil && slices.ContainsFunc(root.refs(), func(ref graspsync.RepoRef) bool { return x.Announcement(ref) != nil })
}

// check compares every answer of the index, its tables, and the reported changes with the stored
// events.
func (x *wholeIndex) check(t *testing.T, store *twinStore, told facts) {
	t.Helper()
	want, announced := store.facts()
	require.Equal(t, want, x.facts())
	require.Equal(t, want, told)
	named := make(map[string][]graspsync.EventID)
	for ref, id := range want.Repos {
		require.True(t, x.Announced(ref))
		named[ref.Identifier] = append(named[ref.Identifier], id)
	}
	for identifier, ids := range named {
		var got []graspsync.EventID
		for _, a := range x.Announcements(identifier) {
			got = append(got, a.ID)
		}
		require.ElementsMatch(t, ids, got)
	}
	require.Len(t, x.tables.byID, len(announced))
	for id, refs := range want.Roots {
		ours := false
		for _, ref := range refs {
			ours = ours || changes(want.Repos, ref)
			announced[ref] = struct{}{}
		}
		require.Equal(t, ours, x.follows(id))
		require.Equal(t, ours, x.Root(id))
	}
	require.Len(t, x.tables.repos, len(announced), "nothing stays of what is gone")
	require.Equal(t, len(announced)+len(want.Roots)+len(want.Below), x.Size())
	x.tables.checkBelow(t)
	require.Equal(t, len(want.Repos), x.Hosted())
	x.checkAnswers(t, store, want)
}

// checkBelow compares the counts of replies with the actual numbers.
func (t *tables) checkBelow(tb testing.TB) {
	tb.Helper()
	d := t.threads
	size := 0
	for key, b := range d.branches {
		for n := range b {
			_, placed := d.placed.Get(n)
			if !placed || n.place.depth == 0 || n.place.top != key || d.nodes[n.keys()[0]] != n {
				require.Fail(tb, "in another branch")
			}
		}
		require.NotEmpty(tb, b)
		require.LessOrEqual(tb, len(b), d.branchLimit)
		size += len(b)
	}
	require.Equal(tb, size, d.placed.Len())
	placed := make(map[*node]struct{})
	for _, n := range d.nodes {
		placed[n] = struct{}{}
		if best, _ := t.threads.best(n); best != n.place || d.orphans.Touch(n) != (n.place.depth == 0) {
			require.Equal(tb, best, n.place)
			require.Fail(tb, "an orphan has no place, and nobody else has none")
		}
		if changes(d.branches[n.place.top], n) != (n.place.depth > 0) {
			require.Fail(tb, "not counted where its place is")
		}
		for _, ref := range n.refs {
			require.True(tb, changes(d.children[ref], n), "not among what refers to something")
		}
	}
	for to, all := range d.children {
		require.NotEmpty(tb, all)
		for n := range all {
			require.True(tb, changes(placed, n) && slices.Contains(n.refs, to))
		}
	}
	require.LessOrEqual(tb, d.orphans.Len(), maxOrphans)
}

// checkAnswers compares the answers of the index about everything that history can create, whether
// it is stored or not.
func (x *wholeIndex) checkAnswers(t *testing.T, store *twinStore, want facts) {
	t.Helper()
	byID, stored := make(map[graspsync.EventID]*nostr.Event), make(map[graspsync.RepoRef]bool)
	for _, ev := range store.matching(nostr.Filter{}) {
		if id, err := graspsync.ParseEventID(ev.ID); err == nil {
			byID[id] = ev
		}
		if a, err := nip34.ParseAnnouncement(eventtest.Of(ev)); err == nil {
			stored[a.Ref] = true
		}
	}
	same := func(ok bool, what string, of any) {
		if !ok {
			require.Fail(t, what, "%v", of)
		}
	}
	for owner := range 4 {
		for _, identifier := range []string{"x", "y:z", "none"} {
			ref := testRepo(owner, identifier)
			_, ours := want.Repos[ref]
			same(x.Announced(ref) == ours, "Announced", ref)
			same(slices.Contains(nip34.Owners(x.Family(identifier)), ref.Owner) == stored[ref], "Family", ref)
			same(x.Left(ref) == (stored[ref] && !ours), "Left", ref)
		}
	}
	for n := range 82 { // more than exist
		id := testID(n)
		_, isRoot := want.Roots[id]
		if ev := byID[id]; ev != nil && !isRoot {
			of := filters.Descendant{ID: id}
			if c, ok := eventtest.Of(ev).Address(); ok {
				of = filters.Descendant{Address: c.String()}
			}
			same(x.descends(id) == (want.Below[of] != nil), "descends", id)
		}
		var at nostr.Timestamp
		if isRoot {
			at = byID[id].CreatedAt
		}
		same(x.RootTime(id) == at, "rootTime", id)
	}
	got, all := newFacts(), x.All()
	for ref, a := range all.Repos {
		got.Repos[ref] = a.ID
	}
	maps.Copy(got.Roots, all.Roots)
	maps.Copy(got.Below, all.Descendants)
	require.Equal(t, want, got)
}

// history returns events with few authors and identifiers, so that they affect each other often.
func history(rnd *rand.Rand, n int, byID func(kind int) bool) []*nostr.Event {
	var events []*nostr.Event
	ref := func() graspsync.RepoRef { return testRepo(rnd.IntN(3), []string{"x", "y:z"}[rnd.IntN(2)]) }
	for i := range n {
		at := nostr.Timestamp(rnd.IntN(6))
		author := rnd.IntN(3)
		switch r := ref(); rnd.IntN(7) {
		case 0, 1:
			name := []string{"ours", "ours", "foreign"}[rnd.IntN(3)]
			events = append(events, testAnnouncement(i, author, r.Identifier, at, name))
		case 2, 3:
			ev := testEvent(i, []int{1617, 1618, 1619, 1621, 1, 1111, 7, 39842}[rnd.IntN(8)], author, at)
			if ev.Kind == 39842 {
				ev.Tags = append(ev.Tags, nostr.Tag{"d", []string{"1", "2"}[rnd.IntN(2)]})
			}
			for range rnd.IntN(3) {
				ev.Tags = append(ev.Tags, tagRepo(ref()))
			}
			for range rnd.IntN(3) { // may refer to later events too
				ev.Tags = append(ev.Tags, nostr.Tag{[]string{"e", "E", "q"}[rnd.IntN(3)], testID(rnd.IntN(n)).String()})
			}
			if rnd.IntN(4) == 0 {
				ev.Tags = append(ev.Tags, nostr.Tag{"a", fmt.Sprintf("39842:%s:%d", testKey(rnd.IntN(3)), rnd.IntN(3))})
			}
			events = append(events, ev)
		case 4:
			events = append(events, testEvent(i, graspsync.KindDeletion, author, at, tagRepo(r)))
		case 5:
			target := rnd.IntN(n)
			if target < i && byID(events[target].Kind) {
				events = append(events, testEvent(i, graspsync.KindDeletion, author, at, tagEvent(target)))
				continue
			}
			events = append(events, testEvent(i, 1, author, at))
		case 6:
			where := []string{allRelays, "wss://elsewhere.example", "wss://elsewhere.example"}[rnd.IntN(3)]
			events = append(events, testEvent(i, graspsync.KindVanish, author, at/2, nostr.Tag{"relay", where}))
		}
	}
	return events
}
