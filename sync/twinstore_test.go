package sync

import (
	"context"
	"errors"
	"iter"
	"slices"
	"sync"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
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

// twinStore is the simplest Store: a list with the rules of NIP-01, NIP-09 and NIP-62.
type twinStore struct {
	mu     sync.Mutex
	events []*nostr.Event
	dels   []*nostr.Event
	gone   []*nostr.Event // requests to vanish that apply to this service
	fail   error
	// during is called while Events runs, after the first event.
	during func()
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
		ids, addresses := nip34.Deletes(eventtest.Of(d))
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

func (s *twinStore) matching(f nostr.Filter) []*nostr.Event {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(s.events), func(ev *nostr.Event) bool { return !f.Matches(ev) })
}

func (s *twinStore) Save(context.Context, []graspsync.Incoming) ([]graspsync.Outcome, error) {
	return nil, errors.New("the index saves nothing")
}

func (s *twinStore) Has(_ context.Context, ids []graspsync.EventID) ([]bool, error) {
	has := make([]bool, len(ids))
	for i, id := range ids {
		has[i] = len(s.matching(nostr.Filter{IDs: []string{id.String()}})) > 0
	}
	return has, nil
}

func (s *twinStore) Deleted(_ context.Context, ev graspsync.Event) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.covered(ev.Event), nil
}

func (s *twinStore) Remove(context.Context, graspsync.Event) error { return ErrCannotRemove }

func (s *twinStore) Keys(ctx context.Context, f nostr.Filter) iter.Seq2[graspsync.EventKey, error] {
	return func(yield func(graspsync.EventKey, error) bool) {
		for ev, err := range s.Events(ctx, f) {
			stamp := graspsync.EventKey{}
			if err == nil {
				id, bad := graspsync.ParseEventID(ev.ID.String())
				stamp, err = graspsync.EventKey{CreatedAt: ev.CreatedAt, ID: id}, bad
			}
			if !yield(stamp, err) {
				return
			}
		}
	}
}

func (s *twinStore) Events(_ context.Context, f nostr.Filter) iter.Seq2[graspsync.Event, error] {
	return func(yield func(graspsync.Event, error) bool) {
		if f.Limit != 0 || f.LimitZero {
			yield(graspsync.Event{}, errors.New("a Store knows no limit"))
			return
		}
		for i, ev := range s.matching(f) {
			if i == 1 && s.during != nil {
				s.during()
			}
			if !yield(eventtest.Of(ev), nil) {
				return
			}
		}
		if s.fail != nil {
			yield(graspsync.Event{}, s.fail)
		}
	}
}
