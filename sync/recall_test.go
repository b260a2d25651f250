package sync_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/state"
	relaysync "github.com/graspsync/graspsync/sync"
	"github.com/graspsync/graspsync/sync/relaytest"
)

// fullFor is a state that fails to store some keys.
type fullFor struct {
	*state.Memory
	prefix string
}

func (f *fullFor) Put(ctx context.Context, records ...state.Record) error {
	if slices.ContainsFunc(records, func(r state.Record) bool { return strings.HasPrefix(r.Key, f.prefix) }) {
		return errors.New("no space left on device")
	}
	return f.Memory.Put(ctx, records...)
}

// A mark means that all earlier events were processed. It must not be saved if the ids of waiting
// events are not.
func TestNoMarkWithoutTheIdsOfWhatWaits(t *testing.T) {
	for prefix, marks := range map[string]bool{"sync/chunks/rejected/": false, "sync/chunks/other/": true} {
		bubble(t, func(t *testing.T) {
			net := relaytest.NewNetwork()
			a := net.Add("wss://a.example", relaytest.Behavior{})
			later := relaytest.NewCheapKey("later")
			a.Publish(later.State(at(24*time.Hour), "later", map[string]string{"refs/heads/main": strings.Repeat("a", 40)}, "refs/heads/main"))
			kept := &fullFor{state.NewMemory(), prefix}
			r, _ := hosted(t, net, relaysync.Config{State: kept}, "a.example")
			after(5 * time.Minute)
			require.Equal(t, int64(1), r.manager.Status().Events.Waiting)
			found := 0
			count := func() {
				for r, err := range kept.Each(t.Context(), "sync/") {
					require.NoError(t, err)
					if strings.HasPrefix(r.Key, "sync/kept/") || strings.HasPrefix(r.Key, "sync/marks") {
						found++
					}
				}
			}
			count()
			r.stop()
			count()
			require.Equal(t, marks, found > 0)
		})
	}
}

// While the process is down, the dependency of a waiting event is stored, by this relay or another
// process.
func TestTrapH8_StoredMeanwhile(t *testing.T) {
	for _, killed := range []bool{false, true} {
		bubble(t, func(t *testing.T) {
			net := relaytest.NewNetwork()
			a := net.Add("wss://a.example", relaytest.Behavior{})
			later := relaytest.NewCheapKey("later")
			waits := later.State(at(24*time.Hour), "later", map[string]string{"refs/heads/main": strings.Repeat("a", 40)}, "refs/heads/main")
			a.Publish(waits)
			kept := state.NewMemory()
			r, _ := hosted(t, net, relaysync.Config{State: kept}, "a.example")
			after(5 * time.Minute)
			require.False(t, r.has(waits))
			found := kept
			if killed {
				found = copied(t, kept)
			}
			r.stop()
			r.manager = nil
			r.save(later.Hosted(at(25*time.Hour), "later", us, "a.example"))
			r = r.again(relaysync.Config{State: found})
			defer r.stop()
			after(2 * time.Minute)
			require.True(t, r.has(waits))
		})
	}
}
