package sync_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/eventtest"
	relaysync "github.com/graspsync/graspsync/sync"
	"github.com/graspsync/graspsync/sync/relaytest"
)

// watched stores all observations.
type watched struct {
	mu  sync.Mutex
	all []relaysync.Observation // guarded by mu
}

func (w *watched) observe(o relaysync.Observation) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.all = append(w.all, o)
}

func (w *watched) len() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.all)
}

func (w *watched) seen(is relaysync.StateCode) (out []relaysync.Observation) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, o := range w.all {
		if o.Is == is {
			out = append(out, o)
		}
	}
	return out
}

func TestObserver(t *testing.T) {
	bubble(t, func(t *testing.T) {
		net := relaytest.NewNetwork()
		a := net.Add("wss://a.example", relaytest.Behavior{})
		var w watched
		owner := relaytest.NewCheapKey("owner")
		issue := owner.Issue(at(time.Hour), owner.Ref("repo"), "x")
		foreign := owner.Hosted(at(time.Hour), "foreign", "elsewhere.example")
		a.Publish(issue, foreign)
		r, _ := hosted(t, net, relaysync.Config{Observe: w.observe}, "a.example")
		after(time.Minute)
		require.Equal(t, []relaysync.Observation{{
			Is: relaysync.IsStored, Event: eventtest.Of(issue), Source: graspsync.Source{Kind: graspsync.CatchUp, Relay: a.URL()},
		}}, w.seen(relaysync.IsStored))
		rejected := w.seen(relaysync.IsRejected)
		require.Len(t, rejected, 1)
		require.Equal(t, foreign.ID, rejected[0].Event.ID.String())
		require.NotEmpty(t, rejected[0].Reason)
		confirmed := w.seen(relaysync.BatchConfirmed)
		require.NotEmpty(t, confirmed)
		require.Equal(t, a.URL(), confirmed[0].Source.Relay)
		r.stop()
		told := w.len()
		require.Error(t, r.manager.Run(t.Context()))
		after(time.Hour)
		require.Equal(t, told, w.len(), "nothing is told after Run")
	})
}

// A slow observer does not delay sync. Observations that it misses are counted.
func TestPromiseP40_SlowObserver(t *testing.T) {
	bubble(t, func(t *testing.T) {
		net := relaytest.NewNetwork()
		a := net.Add("wss://a.example", relaytest.Behavior{})
		var told atomic.Int64
		cfg := relaysync.Config{Observe: func(relaysync.Observation) {
			told.Add(1)
			time.Sleep(time.Hour)
		}}.With(relaysync.Fixed{ObserveQueue: 5})
		r, owner := hosted(t, net, cfg, "a.example")
		var issues []*nostr.Event
		for i := range 50 {
			issues = append(issues, owner.Issue(at(time.Duration(i)*time.Minute), owner.Ref("repo"), fmt.Sprint(i)))
		}
		a.Publish(issues...)
		after(time.Minute)
		for _, ev := range issues {
			require.True(t, r.has(ev))
		}
		require.Equal(t, int64(1), told.Load())
		dropped := r.manager.Status().Events.Dropped["observations"]
		require.GreaterOrEqual(t, dropped, uint64(45))
		r.stop() // waits for the running call
	})
}
