package sync

import (
	"context"
	"iter"
	"slices"

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

func tagEvent(n int) nostr.Tag { return nostr.Tag{"e", testID(n).String()} }

// listStore is a Store that only answers queries, from a list.
type listStore struct {
	Store
	events []*nostr.Event
	fail   error // after the events
}

func (s *listStore) Has(_ context.Context, ids []graspsync.EventID) ([]bool, error) {
	has := make([]bool, len(ids))
	for i, id := range ids {
		has[i] = slices.ContainsFunc(s.events, func(ev *nostr.Event) bool { return ev.ID == id.String() })
	}
	return has, nil
}

func (s *listStore) Deleted(context.Context, graspsync.Event) (bool, error) { return false, nil }

func (s *listStore) Keys(ctx context.Context, f nostr.Filter) iter.Seq2[graspsync.EventKey, error] {
	return func(yield func(graspsync.EventKey, error) bool) {
		for ev, err := range s.Events(ctx, f) {
			var key graspsync.EventKey
			if err == nil {
				key = ev.Key()
			}
			if !yield(key, err) {
				return
			}
		}
	}
}

func (s *listStore) Events(_ context.Context, f nostr.Filter) iter.Seq2[graspsync.Event, error] {
	return func(yield func(graspsync.Event, error) bool) {
		for _, ev := range s.events {
			if f.Matches(ev) && !yield(eventtest.Of(ev), nil) {
				return
			}
		}
		if s.fail != nil {
			yield(graspsync.Event{}, s.fail)
		}
	}
}
