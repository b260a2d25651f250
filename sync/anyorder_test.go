package sync_test

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/eventtest"
	"github.com/graspsync/graspsync/internal/racetest"
	"github.com/graspsync/graspsync/nip34"
	relaysync "github.com/graspsync/graspsync/sync"
	"github.com/graspsync/graspsync/sync/memstore"
	"github.com/graspsync/graspsync/sync/relaytest"
)

var (
	anyOrderSeeds = flag.Int("anyorder.seeds", 0, "sets of events that are delivered in random orders; 0: as many as a commit has time for")
	anyOrderFrom  = flag.Uint64("anyorder.from", 1, "first seed of the sets")
)

// anyOrders is the number of orders in which each set is delivered.
const anyOrders = 6

// TestAnyOrder delivers sets of events in random orders, splits and repetitions. In the end all
// stores must have the same events of hosted repositories.
func TestAnyOrder(t *testing.T) {
	seeds := cmp.Or(*anyOrderSeeds, racetest.Rounds(60))
	stored := 0
	for i := range uint64(seeds) {
		seed := *anyOrderFrom + i
		synctest.Test(t, func(t *testing.T) {
			scene := newScene(seed)
			var first []string
			for n := range uint64(anyOrders) {
				got := scene.deliver(t, rand.New(rand.NewPCG(seed, n)))
				if n == 0 {
					first = got
				}
				require.Equal(t, first, got, "seed %d, order %d\n%s", seed, n, scene)
			}
			stored += len(first)
		})
	}
	t.Logf("%d sets in %d orders, %d events stored on average", seeds, anyOrders, stored/max(1, seeds))
}

// scene is a set of related events.
type scene struct {
	rng    *rand.Rand
	keys   []*relaytest.Key
	events []*nostr.Event
	names  map[string]string
	roots  []*nostr.Event
	talk   []*nostr.Event // events that may be answered
}

func newScene(seed uint64) *scene {
	s := &scene{rng: rand.New(rand.NewPCG(seed, 29)), names: make(map[string]string)}
	for i := range 4 {
		s.keys = append(s.keys, relaytest.NewCheapKey(fmt.Sprint("key ", i)))
	}
	s.announce()
	for range 5 {
		s.state()
	}
	for range 4 {
		s.root()
	}
	for range 7 {
		s.comment()
	}
	for range 3 {
		root := s.roots[s.rng.IntN(len(s.roots))]
		s.add("status", s.key(), 1630+s.rng.IntN(4), nostr.Tag{"e", root.ID}, nostr.Tag{"a", s.ref().String()})
	}
	for range 6 {
		s.deletion()
	}
	for range s.rng.IntN(3) {
		relay := []string{"wss://" + us, "ALL_RELAYS", "wss://elsewhere.example"}[s.rng.IntN(3)]
		s.add("vanish", s.key(), graspsync.KindVanish, nostr.Tag{"relay", relay})
	}
	return s
}

func (s *scene) key() *relaytest.Key { return s.keys[s.rng.IntN(len(s.keys))] }

// ref returns one of a few repositories.
func (s *scene) ref() graspsync.RepoRef {
	return s.keys[s.rng.IntN(3)].Ref([]string{"x", "a:b"}[s.rng.IntN(2)])
}

func (s *scene) time() nostr.Timestamp { return at(time.Duration(60-s.rng.IntN(12)) * time.Minute) }

func (s *scene) add(name string, key *relaytest.Key, kind int, tags ...nostr.Tag) *nostr.Event {
	return s.addAt(s.time(), name, key, kind, tags...)
}

func (s *scene) addAt(at nostr.Timestamp, name string, key *relaytest.Key, kind int, tags ...nostr.Tag) *nostr.Event {
	ev := key.Event(at, kind, fmt.Sprint(name, " ", len(s.events)), tags...)
	if _, again := s.names[ev.ID]; !again {
		s.names[ev.ID] = fmt.Sprint(name, " ", len(s.events))
		s.events = append(s.events, ev)
	}
	return ev
}

func (s *scene) announce() {
	for range 5 {
		ref := s.ref()
		owner := s.keys[slices.IndexFunc(s.keys, func(k *relaytest.Key) bool { return k.PubKey() == ref.Owner })]
		host := us
		if s.rng.IntN(3) == 0 {
			host = "elsewhere.example"
		}
		tags := []nostr.Tag{
			{"d", ref.Identifier}, {"relays", "wss://" + host}, {"clone", owner.CloneURL("wss://"+host, ref.Identifier)},
			{"maintainers", s.key().Hex()},
		}
		s.add("announcement on "+host, owner, graspsync.KindAnnouncement, tags...)
	}
}

func (s *scene) state() {
	ref := s.ref()
	s.add("state", s.key(), graspsync.KindState, nostr.Tag{"d", ref.Identifier}, nostr.Tag{"refs/heads/main", strings.Repeat("a", 40)})
}

func (s *scene) root() {
	tags := []nostr.Tag{{"a", s.ref().String()}}
	switch s.rng.IntN(5) {
	case 0:
		tags = append(tags, nostr.Tag{"a", s.ref().String()})
	case 1:
		tags = append(tags, nostr.Tag{"expiration", fmt.Sprint(at(time.Duration(s.rng.IntN(2)*200-100) * time.Hour))})
	}
	ev := s.add("root", s.key(), []int{1617, 1618, 1621}[s.rng.IntN(3)], tags...)
	s.roots, s.talk = append(s.roots, ev), append(s.talk, ev)
}

func (s *scene) comment() {
	root, parent := s.roots[s.rng.IntN(len(s.roots))], s.talk[s.rng.IntN(len(s.talk))]
	switch s.rng.IntN(6) {
	case 0: // refers only to the event that it answers, and may be answered
		s.talk = append(s.talk, s.add("short reply", s.key(), 1, nostr.Tag{"e", parent.ID}))
	case 1:
		s.add("update", s.key(), 1619, nostr.Tag{"E", root.ID})
	case 2: // is stored only because another event refers to it
		note := s.add("note", s.key(), 1)
		s.talk = append(s.talk, note, s.add("quote", s.key(), 1111, nostr.Tag{"e", parent.ID}, nostr.Tag{"q", note.ID}))
	case 3:
		// There is only one version, because with several versions the order of arrival decides
		// which is kept if some belonged to a repository only temporarily.
		author, version := s.key(), fmt.Sprint("v", len(s.events))
		s.add("release", author, 30063, nostr.Tag{"d", version}, nostr.Tag{"e", parent.ID})
		s.talk = append(s.talk, s.add("praise", s.key(), 1111, nostr.Tag{"A", "30063:" + author.Hex() + ":" + version}))
	default:
		s.talk = append(s.talk, s.add("comment", s.key(), 1111, nostr.Tag{"E", root.ID}, nostr.Tag{"e", parent.ID}))
	}
}

// deletion names events, mostly of its own author. It is not older than these.
func (s *scene) deletion() {
	target := s.events[s.rng.IntN(len(s.events))]
	author := s.key()
	for _, k := range s.keys {
		if k.Hex() == target.PubKey && s.rng.IntN(5) > 0 {
			author = k
		}
	}
	tag := nostr.Tag{"e", target.ID}
	if nostr.IsAddressableKind(target.Kind) && s.rng.IntN(2) == 0 {
		tag = nostr.Tag{"a", fmt.Sprintf("%d:%s:%s", target.Kind, target.PubKey, target.Tags.GetD())}
	}
	tags := []nostr.Tag{tag}
	if s.rng.IntN(4) == 0 {
		if other := s.events[s.rng.IntN(len(s.events))]; other.CreatedAt <= target.CreatedAt {
			tags = append(tags, nostr.Tag{"e", other.ID})
		}
	}
	if s.rng.IntN(4) == 0 { // more than are looked up one by one
		for i := range []int{20, 150}[s.rng.IntN(2)] {
			tags = append([]nostr.Tag{{"e", fmt.Sprintf("%064x", i)}}, tags...)
		}
	}
	s.addAt(target.CreatedAt+nostr.Timestamp(s.rng.IntN(400)), "deletion", author, graspsync.KindDeletion, tags...)
}

// String lists the events for a failed test.
func (s *scene) String() string {
	text := s.names
	var out strings.Builder
	for _, ev := range s.events {
		fmt.Fprintf(&out, "%s: %s.. by %.4s at %d %s\n", text[ev.ID], ev.ID[:6], ev.PubKey, ev.CreatedAt, ev.Tags)
	}
	return out.String()
}

// deliver sends the events through the pipeline in a random order, in batches, several times, and
// returns the stored events.
func (s *scene) deliver(t *testing.T, rng *rand.Rand) []string {
	identity, err := nip34.ParseIdentity(us)
	require.NoError(t, err)
	store := memstore.New(memstore.WithIdentity(identity))
	// Little room, so that only the ids of some waiting events are kept.
	m, err := relaysync.New(store, relaytest.NewNetwork(), identity, relaysync.Config{
		Verifier: relaytest.CheapVerifier{},
	}.With(relaysync.Fixed{Waiting: 1 + rng.IntN(20)}))
	require.NoError(t, err)
	var mu sync.Mutex
	var wanted []graspsync.EventID
	m.OnRefetch(func(_ graspsync.RelayURL, ids []graspsync.EventID) {
		mu.Lock()
		defer mu.Unlock()
		wanted = append(wanted, ids...)
	})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		m.RunPipeline(ctx)
	}()
	order := append(slices.Clone(s.events), s.events[:rng.IntN(len(s.events))]...)
	rng.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
	for _, ev := range order {
		require.NoError(t, m.Submit(ctx, ev, graspsync.Source{Kind: graspsync.CatchUp, Relay: relayURL(t, "wss://a.example")}))
		switch rng.IntN(6) {
		case 0, 1:
			synctest.Wait()
		case 2:
			time.Sleep(time.Duration(rng.IntN(150)) * time.Second) // some events are no longer kept whole
		}
	}
	for synctest.Wait(); len(wanted) > 0; synctest.Wait() {
		ids := wanted
		wanted = nil
		for _, id := range ids {
			i := slices.IndexFunc(s.events, func(ev *nostr.Event) bool { return ev.ID == id.String() })
			require.NoError(t, m.Submit(ctx, s.events[i], graspsync.Source{Kind: graspsync.CatchUp}))
		}
	}
	cancel()
	<-ended
	var stored []*nostr.Event
	for ev, err := range store.Events(t.Context(), nostr.Filter{}) {
		require.NoError(t, err)
		stored = append(stored, ev.Event)
	}
	var got []string
	for _, ev := range belonging(stored, identity) {
		got = append(got, s.names[ev.ID])
	}
	slices.Sort(got)
	return got
}

// belonging returns the events of repositories that are hosted now, by an independent version of
// the rules that ignores time. The order of arrival may decide whether an event of a former or
// deleted repository stays, and which deletions of missing events are stored.
func belonging(stored []*nostr.Event, us nip34.Identity) (out []*nostr.Event) {
	var ours, all []*nip34.Announcement
	repos := make(map[graspsync.RepoRef]bool)
	for _, ev := range stored {
		a, err := nip34.ParseAnnouncement(eventtest.Of(ev))
		if err != nil {
			continue
		}
		if all = append(all, a); us.Lists(a) {
			ours, out, repos[a.Ref] = append(ours, a), append(out, ev), true
		}
	}
	mentioned, in := make(map[string]bool), make(map[string]bool) // ids and addresses
	belongs := func(ev *nostr.Event) bool {
		switch ev.Kind {
		case graspsync.KindAnnouncement, graspsync.KindDeletion, graspsync.KindVanish:
			return false
		case graspsync.KindState:
			state, err := nip34.ParseState(eventtest.Of(ev))
			same := slices.DeleteFunc(slices.Clone(ours), func(a *nip34.Announcement) bool {
				return err != nil || a.Ref.Identifier != state.Ref.Identifier
			})
			if err != nil {
				return false
			}
			_, is := nip34.Membership{}.AnnouncementSet(state.Ref.Identifier, all).AllMembers(nip34.Owners(same))[state.Ref.Owner]
			return is
		}
		return mentioned[ev.ID] || mentioned[placeOf(ev)] ||
			slices.ContainsFunc(nip34.Addresses(ev), func(a graspsync.Address) bool {
				ref, ok := a.Repo()
				return ok && repos[ref] || in[a.String()]
			}) ||
			slices.ContainsFunc(nip34.EventRefs(ev), func(id graspsync.EventID) bool { return in[id.String()] })
	}
	note := func(ev *nostr.Event) {
		in[ev.ID], in[placeOf(ev)] = true, true
		for _, id := range nip34.EventRefs(ev) {
			mentioned[id.String()] = true
		}
		for _, a := range nip34.Addresses(ev) {
			mentioned[a.String()] = true
		}
	}
	for _, ev := range out {
		note(ev)
	}
	for again := true; again; {
		again = false
		for _, ev := range stored {
			if !in[ev.ID] && belongs(ev) {
				note(ev)
				out, again = append(out, ev), true
			}
		}
	}
	return out
}

// placeOf returns the address of an event, or its id if it has none.
func placeOf(ev *nostr.Event) string {
	if !nostr.IsAddressableKind(ev.Kind) {
		return ev.ID
	}
	return fmt.Sprintf("%d:%s:%s", ev.Kind, ev.PubKey, ev.Tags.GetD())
}
