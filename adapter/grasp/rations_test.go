package grasp_test

import (
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/fiatjaf/khatru"
	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/adapter/grasp"
	"github.com/graspsync/graspsync/filters"
	"github.com/graspsync/graspsync/sync/relaytest"
)

// incompressible is text that takes up so many bytes in a repository.
func incompressible(n int) string {
	b := make([]byte, n)
	_, _ = rand.Read(b)
	return base64.StdEncoding.EncodeToString(b)
}

// Strangers could store as much as they liked in anybody's repository, by pull requests
// with free keys, whatever came first, the event or its data; and it counted for its owner,
// whose pushes were refused then.
func TestDataOfStrangersBesideHonest(t *testing.T) {
	const kib = 1 << 10
	r := unstarted(t)
	r.configure = func(_ *khatru.Relay, cfg *grasp.Config) {
		cfg.Purgatory.MaxPullBytes = 1000 * kib
		cfg.Serve.MaxOwnerBytes = 1500 * kib
	}
	r.start()
	defer r.stop()
	owner := relaytest.NewKey("owner")
	work := t.TempDir()
	r.git(work, "init", "-q", "-b", "main")
	base, _ := r.write(work, "readme", "text")
	r.serve(work, base, owner)
	url := owner.CloneURL("ws://"+r.addr, "repo")
	r.eventually("it is served", func() bool { return len(r.served()) == 2 })

	n, refused := 0, 0
	contribute := func(name string, kind, size int, eventFirst bool) *nostr.Event {
		n++
		r.git(work, "switch", "-q", "-C", "change", base)
		tip, _ := r.write(work, fmt.Sprint("change", n), incompressible(size))
		tags := nostr.Tags{{"a", owner.Ref("repo").String()}, {"c", tip}}
		if kind == filters.KindPullRequestUpdate { // of somebody else's
			tags = append(tags, nostr.Tag{"E", base + base[:24]}, nostr.Tag{"K", "1618"})
		}
		ev := relaytest.NewKey(name).Event(nostr.Now(), kind, fmt.Sprint(n), tags...)
		if eventFirst {
			require.Empty(t, r.publish(ev))
		}
		if _, err := r.try(work, "push", "-q", url, "change:refs/nostr/"+ev.ID); err != nil {
			refused++
			return ev
		}
		if !eventFirst {
			require.Empty(t, r.publish(ev))
		}
		return ev
	}
	hasRef := func(ev *nostr.Event) bool { return r.git(work, "ls-remote", url, "refs/nostr/"+ev.ID) != "" }
	weight := func() int {
		folders, err := filepath.Glob(filepath.Join(r.dir, owner.PubKey().String(), "*.git"))
		require.NoError(t, err)
		require.Len(t, folders, 1)
		bytes, err := strconv.Atoi(r.git(folders[0], "rev-list", "--objects", "--disk-usage", "--glob=refs/nostr/*", "--not", "--branches"))
		require.NoError(t, err)
		return bytes
	}
	var honest []*nostr.Event
	took := time.Duration(0)
	for i := range 9 {
		_ = contribute(fmt.Sprint("eve", i), filters.KindPullRequest, 325*kib, i%2 == 0)
		if i%3 == 2 {
			began := time.Now()
			ev := contribute(fmt.Sprint("honest", i), filters.KindPullRequest, 20*kib, i%2 == 0)
			r.eventually("an honest one is served with its ref", func() bool { return hasRef(ev) && r.serves(ev) })
			took = max(took, time.Since(began))
			honest = append(honest, ev)
		}
		require.LessOrEqual(t, weight(), 1000*kib)
	}
	for _, ev := range honest {
		require.True(t, hasRef(ev), "and stays")
	}
	dropped := r.server.Purgatory().Status().Dropped
	t.Logf("%d honest pull requests at most %v; 9 of 325 KiB by strangers: %d pushes refused, %d displaced; %d KiB in all",
		len(honest), took.Round(time.Millisecond), refused, dropped["pull_displaced"], weight()>>10)
	require.Positive(t, dropped["pull_displaced"])

	// The owner's room is the owner's.
	r.git(work, "switch", "-q", "main")
	tip, _ := r.write(work, "large", incompressible(600*kib))
	require.Empty(t, r.publish(owner.State(nostr.Now(), "repo", map[string]string{"refs/heads/main": tip}, "main")))
	out, err := r.try(work, "push", url, "main")
	require.NoError(t, err, out)
}
