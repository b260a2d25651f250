package fieldhub_test

import (
	"crypto/sha256"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/graspsync/graspsync/internal/fieldhub"
)

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
