package grasp_test

import (
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/fiatjaf/khatru"
	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/adapter/grasp"
	"github.com/graspsync/graspsync/internal/racetest"
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
	racetest.Amounts(t)
	const kib = 1 << 10
	r := unstarted(t)
	r.configure = func(_ *khatru.Relay, cfg *grasp.Config) {
		cfg.Purgatory.Limits.MaxPullBytes = 1000 * kib
		cfg.Repositories.MaxOwnerBytes = 1500 * kib
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
		if kind == graspsync.KindPullRequestUpdate { // of somebody else's
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
		_ = contribute(fmt.Sprint("eve", i), graspsync.KindPullRequest, 325*kib, i%2 == 0)
		if i%3 == 2 {
			began := time.Now()
			ev := contribute(fmt.Sprint("honest", i), graspsync.KindPullRequest, 20*kib, i%2 == 0)
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

// What gave way stayed on the disk for weeks, named by a log, and counted for the owner: who
// pushed, was displaced and pushed anew filled it. Now that goes at once, after a grace, and
// where its grace is not over nothing more gives way.
func TestChurnOfStrangersIsBounded(t *testing.T) {
	racetest.Amounts(t)
	const kib, most = 1 << 10, 1000 << 10
	for name, grace := range map[string]time.Duration{"gone at once": time.Millisecond, "within its grace": 14 * 24 * time.Hour} {
		t.Run(name, func(t *testing.T) {
			r := unstarted(t)
			r.configure = func(_ *khatru.Relay, cfg *grasp.Config) {
				cfg.Purgatory.Limits.MaxPullBytes, cfg.Purgatory.Times.Grace = most, grace
				cfg.Repositories.MaxOwnerBytes = 5 * most / 2
			}
			r.start()
			defer r.stop()
			owner := relaytest.NewKey("owner")
			work := t.TempDir()
			r.git(work, "init", "-q", "-b", "main")
			base, _ := r.write(work, "readme", "text")
			r.serve(work, base, owner)
			url := owner.CloneURL("ws://"+r.addr, "repo")
			onDisk := func() (sum int64) {
				packs, err := filepath.Glob(filepath.Join(r.dir, owner.PubKey().String(), "*.git", "objects", "pack", "*.pack"))
				require.NoError(t, err)
				for _, path := range packs {
					if info, err := os.Stat(path); err == nil { // else it has just gone
						sum += info.Size()
					}
				}
				return sum
			}
			worst, refused := int64(0), 0
			for i := range 30 {
				r.git(work, "switch", "-q", "-C", "change", base)
				tip, _ := r.write(work, "change", incompressible((325-5*i)*kib)) // the largest gives way
				ev := relaytest.NewKey(fmt.Sprint("eve", i)).Event(nostr.Now(), graspsync.KindPullRequest, fmt.Sprint(i),
					nostr.Tag{"a", owner.Ref("repo").String()}, nostr.Tag{"c", tip})
				require.Empty(t, r.publish(ev))
				if _, err := r.try(work, "push", "-q", url, "change:refs/nostr/"+ev.ID); err != nil {
					refused++
				}
				worst = max(worst, onDisk())
			}
			st := r.server.Purgatory().Status()
			if grace < time.Second {
				r.eventually("what gave way is gone", func() bool { return onDisk() <= 2*most })
			}
			t.Logf("30 of 325 KiB and less, %d refused, %v; %d KiB on the disk at its worst, %d at the end; %d prunes",
				refused, st.Dropped, worst>>10, onDisk()>>10, st.Maintenance.Pruned)
			require.Positive(t, st.Dropped["pull_displaced"])
			require.LessOrEqual(t, onDisk(), int64(3*most), "what is named, what waits for its grace, and what came since the last prune")
			require.LessOrEqual(t, worst, int64(4*most), "with the copy that a prune makes")
			require.Positive(t, st.Maintenance.Pruned)
			if grace > time.Second {
				require.Positive(t, st.Dropped["pull_unswept"])
			}
			require.LessOrEqual(t, r.server.Purgatory().Displaced(owner.PubKey()), int64(most))

			// It is not the owner's.
			r.git(work, "switch", "-q", "main")
			tip, _ := r.write(work, "large", incompressible(1600*kib))
			require.Empty(t, r.publish(owner.State(nostr.Now(), "repo", map[string]string{"refs/heads/main": tip}, "main")))
			r.eventually("the owner has his room, but for the copy that a prune makes", func() bool {
				_, err := r.try(work, "push", url, "main")
				return err == nil
			})
		})
	}
}
