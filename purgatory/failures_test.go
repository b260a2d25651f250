package purgatory_test

import (
	"context"
	"encoding/json"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/internal/eventtest"
	"github.com/graspsync/graspsync/purgatory"
	"github.com/graspsync/graspsync/state"
)

var errSick = errors.New("sick dependency")

// sickState fails writes while it is sick.
type sickState struct {
	state.Store
	sick *atomic.Bool
}

func (s sickState) Put(ctx context.Context, records ...state.Record) error {
	if s.sick.Load() {
		return errSick
	}
	return s.Store.Put(ctx, records...)
}

// Failing dependencies are in the status until they succeed again.
func TestCaseC20_FailingDependencyIsInStatus(t *testing.T) {
	for what, of := range map[string]string{
		"state": "store write", "save": "relay save", "quarantine": "git take", "refs": "git", "create": "repositories create",
	} {
		t.Run(what, func(t *testing.T) {
			var sick atomic.Bool
			run(t, purgatory.Config{}, func(t *testing.T, w *world) {
				w.stop()
				w.state = sickState{w.state, &sick}
				w.start()
				require.Empty(t, w.p.Status().Failures)
				w.git.Serve(clone("a.example/r.git"), serving(1))
				fail := func(is bool) {
					sick.Store(is && what == "state")
					w.relay.mu.Lock()
					w.relay.fail = nil
					if is && what == "save" {
						w.relay.fail = errSick
					}
					w.relay.mu.Unlock()
					w.git.FailWith(func(op string) error {
						if is && op == what {
							return errSick
						}
						return nil
					})
				}
				fail(true)
				for _, ev := range []*nostrEvent{announce(alice, now(), "a.example/r.git"), says(alice, now(), "main", 1)} {
					_, _ = w.p.Submit(t.Context(), eventtest.Of(ev), submittedBy(false))
				}
				wait(5 * time.Minute)
				failures := w.p.Status().Failures
				require.Len(t, failures, 1)
				require.Equal(t, of, failures[0].Of)
				require.Contains(t, failures[0].Error, errSick.Error())
				require.Positive(t, failures[0].Count)
				require.WithinDuration(t, time.Now(), failures[0].Since, 6*time.Minute)
				text, err := json.Marshal(w.p.Status())
				require.NoError(t, err)
				require.Contains(t, string(text), errSick.Error())
				require.Equal(t, 1, testutil.CollectAndCount(w.p.Collector(""), "purgatory_dependency_failures_total"))
				fail(false)
				for _, ev := range []*nostrEvent{announce(alice, now(), "a.example/r.git"), says(alice, now(), "main", 1)} {
					_, _ = w.p.Submit(t.Context(), eventtest.Of(ev), submittedBy(false))
				}
				wait(10 * time.Minute)
				require.Empty(t, w.p.Status().Failures)
			})
		})
	}
}
