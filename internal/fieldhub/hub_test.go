package fieldhub_test

import (
	"crypto/sha256"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/eventtest"
	"github.com/graspsync/graspsync/internal/fieldhub"
	"github.com/graspsync/graspsync/nip34"
)

func TestProduction(t *testing.T) {
	h := fieldhub.New(fieldhub.Config{Size: fieldhub.Production, Server: "grasp.example"})
	kinds := make(map[int]int)
	identifiers := make(map[string]int)
	ids := make(map[string]bool)
	largest, tips, listed := 0, 0, 0
	everything := h.Events
	answering := 0
	for _, r := range h.Relays {
		everything = append(everything, r.Events...)
		if r.Answers {
			answering++
			assert.NotEmpty(t, r.Events, r.URL)
		} else {
			assert.Empty(t, r.Events, r.URL)
		}
	}
	identity, err := nip34.ParseIdentity("grasp.example")
	require.NoError(t, err)
	for _, ev := range everything {
		if ids[ev.ID] {
			continue
		}
		ids[ev.ID] = true
		kinds[ev.Kind]++
		largest = max(largest, len(ev.String()))
		switch ev.Kind {
		case graspsync.KindAnnouncement:
			a, err := nip34.ParseAnnouncement(eventtest.Of(ev))
			require.NoError(t, err)
			require.True(t, identity.Lists(a), ev)
			identifiers[ev.Tags.GetD()]++
		case graspsync.KindState:
			tips = max(tips, len(ev.Tags)-2)
		case 10_002:
			listed = len(ev.Tags)
		}
	}
	assert.Equal(t, 2500, kinds[graspsync.KindAnnouncement])
	assert.Equal(t, 2500-280, len(identifiers))
	assert.Equal(t, 10_500, kinds[graspsync.KindIssue]+kinds[graspsync.KindPullRequest]+kinds[graspsync.KindPatch])
	assert.Equal(t, 50_000, kinds[graspsync.KindDeletion])
	assert.InDelta(t, 0.75*2500, kinds[graspsync.KindState], 60)
	assert.InDelta(t, 149<<10, largest, 6<<10)
	assert.Less(t, largest, 192<<10)
	assert.Equal(t, 401, tips)
	assert.Equal(t, 983, listed)
	assert.Len(t, h.Relays, 200)
	assert.Equal(t, 12, answering)

	have := make(map[string]bool)
	for _, ev := range h.Wanted {
		require.True(t, ids[ev.ID], "what is wanted is somewhere")
		have[ev.ID] = true
	}
	var onHub int
	for _, ev := range h.Events {
		if have[ev.ID] {
			onHub++
		}
	}
	assert.Less(t, onHub, len(h.Wanted), "some of it is not on the hub")
	for _, ev := range h.Events {
		if ev.Kind == graspsync.KindDeletion {
			for e := range ev.Tags.FindAll("e") {
				assert.False(t, have[e[1]], "deleted, and wanted")
			}
		}
	}
	t.Logf("%d events, %d wanted, kinds %v", len(ids), len(h.Wanted), kinds)
}

// The same configuration gives the same hub for any number of processors.
func TestDeterministic(t *testing.T) {
	trace := func(h *fieldhub.Hub) [32]byte {
		sum := sha256.New()
		from := time.Date(2026, time.November, 2, 0, 0, 0, 0, time.UTC)
		for _, ev := range h.Events {
			sum.Write([]byte(ev.ID))
		}
		for _, u := range h.Live(50, from, from.Add(time.Hour)) {
			sum.Write([]byte(u.Event.ID))
		}
		for _, r := range h.Relays {
			for _, ev := range r.Events {
				sum.Write([]byte(ev.ID))
			}
		}
		return [32]byte(sum.Sum(nil))
	}
	cfg := fieldhub.Config{Size: fieldhub.Production.Part(20), Server: "grasp.example"}
	first := trace(fieldhub.New(cfg))
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	assert.Equal(t, first, trace(fieldhub.New(cfg)))
	cfg.Seed = 1
	assert.NotEqual(t, first, trace(fieldhub.New(cfg)))
}
