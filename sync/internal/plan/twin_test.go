package plan

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/internal/racetest"
)

// TestWorlds plays random histories against relays, a caller and wanted items that are computed
// naively, and lets each converge.
func TestWorlds(t *testing.T) {
	var daily, crowded, resumed int
	methods, all := make(map[LiveMethod]int), make(drawn)
	alive, rotated := 0, 0
	n := racetest.Rounds(14)
	for seed := range uint64(n) {
		w := newWorld(t, &randSource{rand.New(rand.NewPCG(seed, 5)), 300})
		w.drawn = all
		t.Cleanup(func() { dump(t, w, seed) })
		w.run()
		w.finish()
		if w.daily {
			daily++
		}
		alive += w.alive
		rotated += w.rotated
		crowded += len(w.crowded)
		resumed += w.resumed
		for m, n := range w.methods {
			methods[m] += n
		}
		w.log = nil
	}
	t.Logf("relays without room: %d, histories with a daily pass: %d, resumed after a restart: %d, methods: %v", crowded, daily, resumed, methods)
	t.Logf("connections with all descendants live: %d, with some in rotation: %d", alive, rotated)
	if testing.Short() {
		return // a few seeds do not come to so much
	}
	require.Greater(t, alive, 250)
	require.Greater(t, rotated, 50)
	require.Less(t, crowded, 3*n, "too many relays had no room")
	require.Less(t, daily, n*3/4, "too many histories were repaired by a daily pass")
	all.complete(t)
}

// TestLongWorlds is the same with hours and days between inputs, so that passes, audits and
// rotations are due.
func TestLongWorlds(t *testing.T) {
	daily, jumps, audits := 0, 0, 0
	for seed := range uint64(racetest.Rounds(10)) {
		w := newWorld(t, &randSource{rand.New(rand.NewPCG(seed, 4)), 300})
		w.long = true
		t.Cleanup(func() { dump(t, w, seed) })
		w.run()
		w.finish()
		if w.daily {
			daily++
		}
		jumps += w.jumps
		audits += w.audits
		w.log = nil
	}
	t.Logf("histories with a daily pass: %d, jumps of the clock: %d, audits: %d", daily, jumps, audits)
	if testing.Short() {
		return // a few seeds do not come to so much
	}
	require.Greater(t, daily, 4)
	require.Greater(t, jumps, 10)
	require.Greater(t, audits, 5)
}

// TestCalmWorlds is the same with short times, no overlap and many restarts. An event that is never
// requested is not found by chance.
func TestCalmWorlds(t *testing.T) {
	seeds, resumed := racetest.Rounds(12), 0
	methods := make(map[LiveMethod]int)
	for seed := range uint64(seeds) {
		w := newWorld(t, &randSource{rand.New(rand.NewPCG(seed, 9)), 300})
		w.calm = true
		w.plan.cfg.Overlap, w.plan.cfg.PollFilters = 0, 4
		for range 6 {
			w.step(w.changes())
		}
		t.Cleanup(func() { dump(t, w, seed) })
		w.run()
		w.finish()
		require.False(t, w.daily)
		resumed += w.resumed
		for m, n := range w.methods {
			methods[m] += n
		}
		w.log = nil
	}
	t.Logf("resumed after a restart: %d, methods: %v", resumed, methods)
	if testing.Short() {
		return // a few seeds do not come to so much
	}
	require.Positive(t, resumed)
	require.Len(t, methods, 3)
}

func dump(t *testing.T, w *world, seed uint64) {
	if t.Failed() && len(w.log) > 0 {
		t.Logf("seed %d", seed)
		for _, l := range w.log[max(0, len(w.log)-200):] {
			t.Log(l)
		}
	}
}

// TestDeterminism checks that the same inputs have the same effects, regardless of the order of
// maps.
func TestDeterminism(t *testing.T) {
	var first []string
	for i := range 50 {
		w := newWorld(t, &randSource{rand.New(rand.NewPCG(7, 7)), 250})
		w.unchecked = true
		w.run()
		if i == 0 {
			first = w.log
			require.Greater(t, len(first), 200)
		}
		require.Equal(t, first, w.log)
	}
}

func FuzzPlan(f *testing.F) {
	for seed := range uint64(8) {
		r := rand.New(rand.NewPCG(seed, 3))
		data := make([]byte, 600)
		for i := range data {
			data[i] = byte(r.Uint32())
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) > 4000 {
			data = data[:4000]
		}
		w := newWorld(t, &byteSource{data})
		w.run()
		w.finish()
	})
}
