package gitfetch_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/egress"
	"github.com/graspsync/graspsync/purgatory/gitfetch"
)

// A metric shows the version of git.
func TestPromiseP36_VersionIsAMetric(t *testing.T) {
	dialer, err := egress.NewDialer(egress.Config{})
	require.NoError(t, err)
	for said, want := range map[string]string{
		"git version 2.39.5":             "2.39.5",
		"git version 2.50.1 (Some Make)": "2.50.1 (Some Make)",
		`git version 2.40\033[2J`:        `2.40\\x1b[2J`,
	} {
		path := filepath.Join(t.TempDir(), "git")
		require.NoError(t, os.WriteFile(path, fmt.Appendf(nil, "#!/bin/sh\nprintf '%s\\n'\n", said), 0o700))
		f, err := gitfetch.New(t.Context(), gitfetch.Config{Dialer: dialer, Git: path})
		require.NoError(t, err)
		registry := prometheus.NewPedanticRegistry()
		require.NoError(t, registry.Register(f.Collector("graspsync")))
		require.NoError(t, testutil.GatherAndCompare(registry, strings.NewReader(`# HELP graspsync_git_info Always 1. The label is the version of git.
# TYPE graspsync_git_info gauge
graspsync_git_info{version="`+want+`"} 1
`)))
		problems, err := testutil.GatherAndLint(registry)
		require.NoError(t, err)
		require.Empty(t, problems)
		f.Close()
	}
}
