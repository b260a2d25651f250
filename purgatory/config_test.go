package purgatory_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/purgatory"
)

func TestConfig(t *testing.T) {
	_, err := purgatory.Open(t.Context(), nil, nil, nil, nil, nil, purgatory.Config{
		Times: purgatory.Times{Hold: -1, Backoff: -1}, Limits: purgatory.Limits{
			MaxEntries:   -1,
			DomainLimit:  purgatory.Limit{Concurrent: 1},
			DomainLimits: map[graspsync.HostPort]purgatory.Limit{{Host: "x", Port: 1}: {}},
		},
	}.With(purgatory.Fixed{MaxHold: -2, SoftExpiry: -1, Timeout: -1}))
	require.ErrorIs(t, err, purgatory.ErrConfig)
	for _, name := range []string{"relay", "repos", "git", "store", "Hold", "MaxHold", "SoftExpiry", "MaxEntries", "Timeout", "Backoff", "DomainLimit", "DomainLimits"} {
		require.ErrorContains(t, err, name)
	}
}
