package sync

import (
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/internal/racetest"
	"github.com/graspsync/graspsync/sync/wire"
)

// Room was counted in bytes of messages. An event with very many empty values or tags takes five
// times as much memory.
func TestEventsAreCountedAsWhatTheyTakeUp(t *testing.T) {
	racetest.Amounts(t)
	const copies = 16
	for name, tags := range map[string]string{
		"empty values": `["a"` + strings.Repeat(`,""`, 170_000) + `]`,
		"empty tags":   strings.TrimSuffix(strings.Repeat(`[],`, wire.MaxTags), ","),
		"both":         strings.TrimSuffix(strings.Repeat(`["a"`+strings.Repeat(`,""`, 15)+`],`, 9_900), ","),
		"ordinary":     strings.TrimSuffix(strings.Repeat(`["p","`+strings.Repeat("1", 64)+`"],`, 5_000), ","),
		"none":         "",
	} {
		t.Run(name, func(t *testing.T) {
			hex := strings.Repeat("ab", 32)
			text := []byte(`["EVENT","r1",{"id":"` + hex + `","pubkey":"` + hex + `","sig":"` + hex + hex +
				`","created_at":1,"kind":1,"tags":[` + tags + `],"content":"` + strings.Repeat("x", 10_000) + `"}]`)
			kept := make([]wire.Message, copies)
			var before, after runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&before)
			for i := range kept {
				var err error
				kept[i], err = wire.Parse(text)
				require.NoError(t, err)
			}
			runtime.GC()
			runtime.ReadMemStats(&after)
			takes := (after.HeapAlloc - before.HeapAlloc) / copies
			counted := memorySize(kept[0].Event, kept[0].Size)
			require.GreaterOrEqual(t, counted, int64(takes-takes/10), "of %d bytes", len(text))
			require.Less(t, counted, 2*int64(takes))
			runtime.KeepAlive(kept)
		})
	}
}
