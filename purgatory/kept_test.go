package purgatory_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/purgatory"
	"github.com/graspsync/graspsync/purgatory/fetchtest"
	"github.com/graspsync/graspsync/sync/relaytest"
)

// Above MaxKept, records of servers and repositories evict each other, and fetches continue.
func TestMaxKept(t *testing.T) {
	run(t, purgatory.Config{Limits: purgatory.Limits{MaxFetchJobs: 1}}.With(purgatory.Fixed{MaxKept: 3}), func(t *testing.T, w *world) {
		const all = 20
		for i := range all {
			k, u := relaytest.NewKey(fmt.Sprint("k", i)), fmt.Sprintf("a%d.example/r.git", i)
			w.git.Serve(clone(u), fetchtest.Server{Err: errors.New("junk"), Bytes: 400, Delay: 5 * time.Second})
			w.relay.put(announce(k, now()-500, u))
			w.held(says(k, now(), "main", i))
		}
		over := func() bool {
			for _, prefix := range []string{"purgatory/server/", "purgatory/hunted/"} {
				n := 0
				for _, err := range w.state.Each(t.Context(), prefix) {
					require.NoError(t, err)
					n++
				}
				if n > 3+3 { // plus those in use or about to be deleted
					return true
				}
			}
			return false
		}
		for range 25 {
			wait(time.Minute)
			if over() { // the hourly check may have just found all of them incomplete
				wait(5 * time.Second)
				require.False(t, over())
			}
		}
		hosts := make(map[string]bool)
		for _, c := range w.git.Calls() {
			hosts[c.URL.HostPort().Host] = true
		}
		require.Len(t, hosts, all)
		require.Positive(t, w.p.Status().Dropped["server_memory"])
	})
}
