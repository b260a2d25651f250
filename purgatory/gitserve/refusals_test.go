package gitserve_test

import (
	"log/slog"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/purgatory/gitserve"
)

// A refused push was not counted, and its client did not get the id of the state or the remedy.
// Each push counts once, by its first reason.
func TestRefusedPushesAreTold(t *testing.T) {
	var log strings.Builder
	r := newRig(t, gitserve.Config{Logger: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))})
	push := func(args ...string) string {
		t.Helper()
		out, err := try(t, r.work, append([]string{"push", r.repo()}, args...)...)
		require.Error(t, err)
		return out
	}
	push("main")
	r.says(map[string]string{"refs/heads/main": two})
	out := push("main:other", "main")
	require.Regexp(t, refusedState+`: state [0-9a-f]{64} \(1970-01-01 00:00:01\) has no refs/heads/other: publish a state event that has it first`, out)
	require.Contains(t, out, "has refs/heads/main at "+two+": publish a state event that has it at "+r.tip+" first")
	r.says(map[string]string{"refs/heads/main": r.tip})
	git(t, r.work, "push", "-q", r.repo(), "main")
	require.Contains(t, push(":refs/heads/main"), "has refs/heads/main at "+r.tip+": publish a state event without it first")
	require.Equal(t, 3, strings.Count(log.String(), `msg="push refused"`), log.String())
	require.Contains(t, log.String(), `level=DEBUG msg="push refused" repo=`)
	require.Contains(t, log.String(), `ref=refs/heads/other refs=2 reason="the newest state event says otherwise: state `)
	require.NoError(t, testutil.CollectAndCompare(r.git.Collector("ngit"), strings.NewReader(`
# HELP ngit_gitserve_pushes_refused_total Total refused pushes by reason of the first refused ref.
# TYPE ngit_gitserve_pushes_refused_total counter
ngit_gitserve_pushes_refused_total{reason="deletion"} 0
ngit_gitserve_pushes_refused_total{reason="disk"} 0
ngit_gitserve_pushes_refused_total{reason="meanwhile"} 0
ngit_gitserve_pushes_refused_total{reason="no_state"} 1
ngit_gitserve_pushes_refused_total{reason="other"} 0
ngit_gitserve_pushes_refused_total{reason="room"} 0
ngit_gitserve_pushes_refused_total{reason="stale"} 0
ngit_gitserve_pushes_refused_total{reason="state"} 2
ngit_gitserve_pushes_refused_total{reason="tip"} 0
`), "ngit_gitserve_pushes_refused_total"))
}
