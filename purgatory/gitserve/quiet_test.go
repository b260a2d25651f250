package gitserve_test

import (
	"log/slog"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/purgatory/gitserve"
)

// A request for a missing object caused a warning.
func TestCaseC28_ObjectThatIsNotHereYet(t *testing.T) {
	var log strings.Builder
	r := newRig(t, gitserve.Config{Logger: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn}))})
	r.says(map[string]string{"refs/heads/main": r.tip})
	git(t, r.work, "push", "-q", r.repo(), "main")
	out, err := try(t, r.work, "fetch", r.repo(), "00000000000000000000000000000000000000aa")
	require.Error(t, err)
	require.Contains(t, out, "not our ref")
	require.Empty(t, log.String())
	require.NoError(t, testutil.CollectAndCompare(r.git.Collector("x"), strings.NewReader(
		"# HELP x_gitserve_absent_requests_total Total requests for objects that are not in the repository.\n"+
			"# TYPE x_gitserve_absent_requests_total counter\nx_gitserve_absent_requests_total 1\n"), "x_gitserve_absent_requests_total"))
}
