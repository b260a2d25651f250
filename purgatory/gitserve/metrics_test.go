package gitserve_test

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/purgatory/gitserve"
)

func TestCollector(t *testing.T) {
	r := newRig(t, gitserve.Config{}.With(gitserve.Fixed{Wait: time.Second}))
	r.says(map[string]string{"refs/heads/main": r.tip})
	git(t, r.work, "push", "-q", r.repo(), "main")
	empty := r.git.Fill("fetch")
	r.do(t, "POST", "/"+owner.Npub()+"/x.git/"+uploadPack, "0000")
	c := r.git.Collector("ngit")
	problems, err := testutil.CollectAndLint(c)
	require.NoError(t, err)
	require.Empty(t, problems)
	require.NoError(t, testutil.CollectAndCompare(c, strings.NewReader(`
# HELP ngit_gitserve_refused_total Total requests refused with status 503, because no request slot or no git process was free.
# TYPE ngit_gitserve_refused_total counter
ngit_gitserve_refused_total{kind="ask",resource="room"} 0
ngit_gitserve_refused_total{kind="fetch",resource="room"} 0
ngit_gitserve_refused_total{kind="push",resource="room"} 0
ngit_gitserve_refused_total{kind="ask",resource="run"} 0
ngit_gitserve_refused_total{kind="fetch",resource="run"} 1
ngit_gitserve_refused_total{kind="push",resource="run"} 0
ngit_gitserve_refused_total{kind="stage",resource="run"} 0
# HELP ngit_gitserve_running Number of git processes that answer requests.
# TYPE ngit_gitserve_running gauge
ngit_gitserve_running{kind="ask"} 0
ngit_gitserve_running{kind="fetch"} 32
ngit_gitserve_running{kind="push"} 0
ngit_gitserve_running{kind="stage"} 0
`), "ngit_gitserve_refused_total", "ngit_gitserve_running"))
	empty()
	_, err = prometheus.NewPedanticRegistry().Gather()
	require.NoError(t, err)
	require.NoError(t, prometheus.NewPedanticRegistry().Register(c))
}
