package eventstoreadapter_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/fiatjaf/eventstore"
	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	eventstoreadapter "github.com/graspsync/graspsync/adapter/eventstore"
	"github.com/graspsync/graspsync/internal/eventtest"
	"github.com/graspsync/graspsync/nip34"
)

// For any addresses and backend, exactly the events stored at them are found, each once.
func TestTargetsAtAddresses(t *testing.T) {
	long := strings.Repeat("l", 101) // which badger does not index
	var events []*nostr.Event
	at := start
	add := func(author string, kind int, tags ...nostr.Tag) {
		at-- // some backends cannot read a full second
		events = append(events, event(author, kind, at, tags...))
	}
	for _, author := range []string{alice, bob} {
		for _, kind := range []int{0, 3, 10002, 30617, 30618, 30023} {
			add(author, kind)
			add(author, kind, nostr.Tag{"d", ""})
			for _, d := range []string{"repo", "repo-2", long, long + "er", "with:colon", "with \"quotes\""} {
				add(author, kind, nostr.Tag{"d", d})
				add(author, kind, nostr.Tag{"d", d}, nostr.Tag{"d", "other"})
			}
		}
		add(author, 1, nostr.Tag{"d", "repo"})
	}
	for name, named := range map[string][]string{
		"a profile":    {"0::", "0::"},
		"many":         {"30617::repo", "30618::repo", "30617::repo", "30617::with:colon", "30023::with \"quotes\"", "30023::none"},
		"not indexed":  {"30617::" + long, "30617::repo", "30618::", "3::", "30023::other"},
		"of no events": {"1::repo", "1::", "0::repo", "70000::x", "-1::x", "20001::x"},
		"nothing":      nil,
	} {
		for backend, open := range map[string]func() eventstore.Store{
			"badger":      func() eventstore.Store { return newBadger(t, 0) },
			"slicestore":  func() eventstore.Store { return newSlice(t, 0) },
			"a small one": func() eventstore.Store { return &fake{limit: 10} },
		} {
			t.Run(name+" in "+backend, func(t *testing.T) {
				db := open()
				for _, e := range events {
					require.NoError(t, db.SaveEvent(t.Context(), e))
				}
				var tags []nostr.Tag
				wanted := make(map[graspsync.Address]bool)
				for _, n := range named {
					tags = append(tags, nostr.Tag{"a", strings.Replace(n, "::", ":"+alice+":", 1)})
				}
				deletion := event(alice, 5, start, tags...)
				_, at := nip34.DeletionTargets(eventtest.Of(deletion))
				if name != "of no events" { // two of those are no addresses
					distinct := slices.Compact(slices.Sorted(slices.Values(named)))
					require.Len(t, at, len(distinct))
				}
				for _, c := range at {
					wanted[c] = true
				}
				var want, got []string
				for _, e := range events {
					if c, ok := eventtest.Of(e).Address(); ok && wanted[c] {
						want = append(want, e.ID)
					}
				}
				targets, err := newStore(t, db, eventstoreadapter.Config{}).Targets(t.Context(), eventtest.Of(deletion))
				require.NoError(t, err)
				for _, e := range targets {
					got = append(got, e.ID.String())
				}
				require.ElementsMatch(t, want, got)
			})
		}
	}
}
