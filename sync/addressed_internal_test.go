package sync

import (
	"context"
	"fmt"
	"iter"
	"testing"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/nip34"
)

// reading counts the events that are read.
type reading struct {
	Store
	read int
}

// Events implements [Store].
func (s *reading) Events(ctx context.Context, f nostr.Filter) iter.Seq2[graspsync.Event, error] {
	return func(yield func(graspsync.Event, error) bool) {
		for ev, err := range s.Store.Events(ctx, f) {
			s.read++
			if !yield(ev, err) {
				return
			}
		}
	}
}

// Whoever named thousands of addresses, among each hundred one without an identifier, had all
// read that they have stored, each time, before anybody had said that it may be deleted.
func TestAddressedReadsWhatIsThereOnce(t *testing.T) {
	const stored = 200
	author := testKey(1)
	for name, odd := range map[string]func(i int) graspsync.Address{
		"of a kind that has no addresses": func(int) graspsync.Address { return graspsync.Address{Kind: graspsync.KindIssue, Author: author} },
		"of one that has one":             func(i int) graspsync.Address { return graspsync.Address{Kind: 10_000 + i, Author: author} },
		"of one that may have an identifier": func(i int) graspsync.Address {
			return graspsync.Address{Kind: 30_000 + i, Author: author}
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := &reading{Store: &twinStore{}}
			x := newWholeIndex(s, listsByName, nip34.Identity{})
			for i := range stored {
				s.Store.(*twinStore).save(testEvent(2*i, graspsync.KindIssue, 1, 1))
				s.Store.(*twinStore).save(testEvent(2*i+1, graspsync.KindState, 1, 1, nostr.Tag{"d", fmt.Sprint("here ", i)}))
			}
			var at []graspsync.Address
			for i := range 4000 {
				c := graspsync.Address{Kind: graspsync.KindState, Author: author, Identifier: fmt.Sprint(i)}
				if i%tagsAtOnce == 0 {
					c = odd(i)
				}
				at = append(at, c)
			}
			here, err := x.Addressed(t.Context(), at)
			require.NoError(t, err)
			require.False(t, here)
			require.LessOrEqual(t, s.read, 2*stored, "twice what is of kinds that are named")
			for _, i := range []int{0, stored - 1} {
				here, err = x.Addressed(t.Context(), append(at, graspsync.Address{
					Kind: graspsync.KindState, Author: author, Identifier: fmt.Sprint("here ", i),
				}))
				require.NoError(t, err)
				require.True(t, here)
			}
		})
	}
}
