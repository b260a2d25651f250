package session

import (
	"encoding/binary"
	"strings"
	"testing"
	"time"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/eventtest"
	"github.com/graspsync/graspsync/sync/internal/negentropy"
	"github.com/graspsync/graspsync/sync/internal/plan"
	"github.com/graspsync/graspsync/sync/internal/relaylimits"
	"github.com/graspsync/graspsync/sync/wire"
)

// start is time 0 of all tests.
var start = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)

// defaults returns the configuration of the SyncManager with smaller pages.
func defaults() Config {
	return Config{
		Historic: 8, Reconciling: 2, PageLimit: 10, MaxPage: 100, IDChunk: 4,
		NegFrame: 30_000, NegRounds: 64, NegIDs: 1000,
		Limits:     relaylimits.Limits{Requests: relaylimits.Requests{MaxFilters: 20, MaxMessage: 64 << 10, MaxSubscriptions: 20}},
		MaxStrikes: 3,
	}
}

func eventID(n int) (id graspsync.EventID) {
	binary.BigEndian.PutUint32(id[:], uint32(n)+1)
	return id
}

func number(id graspsync.EventID) int { return int(binary.BigEndian.Uint32(id[:])) - 1 }

// event returns event n, which tags root, of second at after start.
func event(n int, at time.Duration, root string) *nostr.Event {
	ev := &nostr.Event{
		ID: eventID(n).String(), PubKey: strings.Repeat("ab", 32), Kind: 1,
		CreatedAt: nostr.Timestamp(start.Add(at).Unix()), Sig: strings.Repeat("cd", 64),
	}
	if root != "" {
		ev.Tags = nostr.Tags{{"e", root}}
	}
	return ev
}

// tagging returns the filter for events that tag root.
func tagging(root string) nostr.Filter { return nostr.Filter{Tags: nostr.TagMap{"e": {root}}} }

// batchOf returns a batch of these filters.
func batchOf(id plan.BatchID, kind plan.Kind, fs ...nostr.Filter) plan.Batch {
	b := plan.Batch{ID: id, Kind: kind, Items: len(fs), Deadline: start.Add(30 * time.Minute)}
	for _, f := range fs {
		b.Queries = append(b.Queries, plan.Query{Filter: f})
	}
	return b
}

func only[T Action](actions []Action) (out []T) {
	for _, a := range actions {
		if a, ok := a.(T); ok {
			out = append(out, a)
		}
	}
	return out
}

// one returns the only action of a type.
func one[T Action](t testing.TB, actions []Action) T {
	t.Helper()
	found := only[T](actions)
	require.Len(t, found, 1, "%v", actions)
	return found[0]
}

// sent returns the only sent request.
func sent(t testing.TB, actions []Action) wire.Request {
	t.Helper()
	return one[Send](t, actions).Request
}

func eventMsg(sub string, ev *nostr.Event) wire.Message {
	return wire.Message{Type: wire.TypeEvent, Sub: sub, Event: eventtest.Of(ev), Size: 100}
}

func eose(sub string) wire.Message { return wire.Message{Type: wire.TypeEOSE, Sub: sub} }

func closed(sub, text string) wire.Message {
	return wire.Message{Type: wire.TypeClosed, Sub: sub, Text: text}
}

func notice(text string) wire.Message { return wire.Message{Type: wire.TypeNotice, Text: text} }

// setOf returns a set for reconciliation.
func setOf(events ...*nostr.Event) *negentropy.Set {
	items := make([]negentropy.Item, len(events))
	for i, ev := range events {
		id, err := graspsync.ParseEventID(ev.ID)
		if err != nil {
			panic(err)
		}
		items[i] = negentropy.Item{CreatedAt: uint64(ev.CreatedAt), ID: id}
	}
	return negentropy.NewSet(items)
}

func (s *Session) open() (live, historic, waiting int) {
	live = len(s.subs.where(func(x *request) bool { return x.kind == reqLive }))
	return live, s.historic, len(s.waiting)
}
