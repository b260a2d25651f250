package graspsync_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
)

func TestVerdict(t *testing.T) {
	require.Equal(t, `blocked: x: it is\nso`, graspsync.Verdict{Reason: "blocked: x", Detail: "it is\nso"}.Message())
	require.Equal(t, "blocked: x", graspsync.Verdict{Reason: "blocked: x"}.Message())
	require.Equal(t, "it is so", graspsync.Verdict{Detail: "it is so"}.Message())
	require.Equal(t, "hold", graspsync.Hold.String())
	names := map[string]bool{}
	for d := graspsync.Decision(0); d <= graspsync.Later; d++ {
		names[d.String()] = true
	}
	require.Len(t, names, 6, "no two are called the same")
	require.True(t, names["decision(0)"])
}
