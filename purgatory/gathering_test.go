package purgatory_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/purgatory"
)

// A repository beyond the limit of one fetch is fetched in parts, which are kept. If a single
// object exceeds the limit, it is requested again the next day.
func TestALargeRepositoryComesInParts(t *testing.T) {
	for most, comes := range map[int]bool{3: true, 1: true, 0: false} {
		t.Run(fmt.Sprint(most), func(t *testing.T) {
			run(t, purgatory.Config{}, func(t *testing.T, w *world) {
				large := serving(1, 2, 3, 4, 5, 6, 7, 8, 9)
				if large.Most = most; most == 0 {
					large.Err = purgatory.ErrLimit
				}
				w.git.Serve(clone("large.example/r.git"), large)
				w.relay.put(announce(alice, now()-500, "large.example/r.git"))
				s := says(alice, now(), "main", 1, "b", 2, "c", 3, "d", 4, "e", 5, "f", 6, "g", 7, "h", 8, "i", 9)
				w.held(s)
				wait(29 * time.Minute)
				require.Equal(t, comes, w.relay.has(s))
				require.LessOrEqual(t, len(w.git.Calls()), 4+9)
			})
		})
	}
}
