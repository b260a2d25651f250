package khatruadapter

import (
	"context"
	"fmt"
	"testing"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
)

// A deletion with thousands of addresses was looked up address by address, three times, even if the
// policy refused it.
func TestDeletionOfThousandsOfAddresses(t *testing.T) {
	const named, stored = 4000, 200
	for name, c := range map[string]struct {
		kind func(i int) int
		most int // queries
	}{
		// A full page of 50 for 50 addresses is a complete answer.
		"of one kind":          {func(int) int { return 30023 }, named / 50},
		"each of another kind": {func(i int) int { return 30000 + i }, named / 50},
		// If many other events match, each address of 6 pages is looked up.
		"crowded":                {func(i int) int { return 30000 + i%6 }, named/50 + 150},
		"of kinds that have one": {func(i int) int { return 10000 + i%3 }, 4},
		"of those and others":    {func(i int) int { return 10000 + 20001*(i%2) }, named/50 + 2},
		"of a kind without any":  {func(int) int { return 1621 }, 0},
	} {
		t.Run(name, func(t *testing.T) {
			relay, db, second, _ := withTwo(t)
			queries := 0
			for i, q := range relay.QueryEvents {
				relay.QueryEvents[i] = func(ctx context.Context, f nostr.Filter) (chan *nostr.Event, error) {
					if len(f.Authors) > 0 && len(f.Kinds) > 0 && f.Kinds[0] != nostr.KindDeletion {
						queries++
					}
					return q(ctx, f)
				}
			}
			s, _, m := embed(t, relay, db, Config{ApplyPolicyToClients: true})
			m.verdict = graspsync.Verdict{Decision: graspsync.Accept}
			var tags []nostr.Tag
			left := make(map[string]bool)
			for i := range named {
				d := fmt.Sprint(i)
				if kind := c.kind(i); kind < 20000 && kind >= 10000 {
					d = ""
				}
				tags = append(tags, nostr.Tag{"a", fmt.Sprintf("%d:%s:%s", c.kind(i), alice, d)})
				if i < stored {
					for _, at := range []nostr.Timestamp{start, start + 20} { // one version is newer than the deletion
						e := event(alice, c.kind(i), at, nostr.Tag{"d", d})
						require.NoError(t, second.SaveEvent(t.Context(), e))
						left[e.ID] = at > start || c.kind(i) == 1621
					}
				}
			}
			deletion := event(alice, 5, start+10, tags...)
			m.verdict = graspsync.Verdict{Decision: graspsync.Reject}
			_, err := relay.AddEvent(t.Context(), deletion)
			require.Error(t, err)
			require.Zero(t, queries, "it is refused")
			m.verdict = graspsync.Verdict{Decision: graspsync.Accept}
			_, err = relay.AddEvent(t.Context(), deletion)
			require.NoError(t, err)
			require.LessOrEqual(t, queries, 2*c.most, "of two stores")
			require.Equal(t, []string{deletion.ID}, content(t, s.Store()))
			there := make(map[string]bool)
			for _, id := range in(t, second) {
				there[id] = true
			}
			delete(there, deletion.ID)
			for id, stays := range left {
				require.Equal(t, stays, there[id])
			}
		})
	}
}
