package grasp_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/fiatjaf/khatru"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/adapter/grasp"
	"github.com/graspsync/graspsync/rules"
	"github.com/graspsync/graspsync/state"
)

// full is a store on a full disk.
type full struct {
	state.Store
	is atomic.Bool
}

func (f *full) Put(ctx context.Context, records ...state.Record) error {
	if f.is.Load() {
		return syscall.ENOSPC
	}
	return f.Store.Put(ctx, records...)
}

// A decision of the operator that could not be saved, and a failed reload, were missing in metrics.
func TestRulesThatCanNotBeKeptAreCounted(t *testing.T) {
	r := unstarted(t)
	kept := &full{Store: state.NewMemory()}
	r.configure = func(_ *khatru.Relay, cfg *grasp.Config) {
		book, err := rules.Open(t.Context(), kept, rules.Config{})
		require.NoError(t, err)
		cfg.Rules = book
	}
	r.start()
	defer r.stop()
	registry := prometheus.NewPedanticRegistry()
	require.NoError(t, registry.Register(r.server.Collector("x")))
	value := func(name string) float64 {
		families, err := registry.Gather()
		require.NoError(t, err)
		for _, f := range families {
			if f.GetName() == name {
				return f.GetMetric()[0].GetCounter().GetValue() + f.GetMetric()[0].GetGauge().GetValue()
			}
		}
		require.Fail(t, "there is none", name)
		return 0
	}
	control, relay := r.server.Control("me"), rules.Subject{Kind: rules.Relay, Name: "spam.example"}
	require.NoError(t, control.Block(t.Context(), relay, ""))
	require.ErrorIs(t, control.Unset(t.Context(), rules.Subject{Kind: rules.Relay, Name: "x.example"}), rules.ErrNoRule)
	require.Zero(t, value("x_rules_failures_total"), "that is a mistake, and no fault")
	kept.is.Store(true)
	require.ErrorIs(t, control.Allow(t.Context(), relay, ""), syscall.ENOSPC)
	require.EqualValues(t, 1, value("x_rules_failures_total"))

	require.Zero(t, value("x_rules_reload_failed"))
	unreadable := errors.New("unreadable")
	require.ErrorIs(t, control.Reload(t.Context(), func() (rules.File, error) { return rules.File{}, unreadable }), unreadable)
	require.EqualValues(t, 1, value("x_rules_reload_failed"))
	require.NoError(t, control.Reload(t.Context(), reads(rules.File{})))
	require.Zero(t, value("x_rules_reload_failed"))
}

// The metrics of all parts fit in one registry.
func TestCollector(t *testing.T) {
	r, _, _ := newRig(t)
	registry := prometheus.NewPedanticRegistry()
	require.NoError(t, registry.Register(r.server.Collector("x")))
	families, err := registry.Gather()
	require.NoError(t, err)
	for _, begins := range []string{"x_sync_", "purgatory_", "x_git_info", "x_gitserve_", "x_staging_", "x_gate_"} {
		n := 0
		for _, f := range families {
			if strings.HasPrefix(f.GetName(), begins) {
				n++
			}
		}
		require.NotZero(t, n, begins)
	}
}
