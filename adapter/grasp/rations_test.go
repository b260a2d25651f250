package grasp_test

import (
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
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

// incompressible returns text that needs n bytes in a repository.
func incompressible(n int) string {
	b := make([]byte, n)
	_, _ = rand.Read(b)
	return base64.StdEncoding.EncodeToString(b)
}

// With free keys, a client evicted the refs of honest pull requests and stored unlimited data in
// any repository, whether event or git data came first.
func TestCaseH5_FreeKeysBesideHonest(t *testing.T) {
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
	first, _ := r.write(work, "readme", "text")
	base, _ := r.write(work, "readme", "more text")
	r.serve(work, base, owner)
	url := owner.CloneURL("ws://"+r.addr, "repo")
	r.eventually("it is served", func() bool { return len(r.served()) == 2 })

	n := 0
	proposes := func(name string, kind int, tip string) *nostr.Event {
		n++
		tags := nostr.Tags{{"a", owner.Ref("repo").String()}, {"c", tip}}
		if kind == graspsync.KindPullRequestUpdate { // of another author
			tags = append(tags, nostr.Tag{"E", base + base[:24]}, nostr.Tag{"K", "1618"})
		}
		return relaytest.NewKey(name).Event(nostr.Now()-nostr.Timestamp(n), kind, fmt.Sprint(n), tags...)
	}
	contribute := func(name string, kind, size int, eventFirst bool) (ev *nostr.Event, pushed bool) {
		r.git(work, "switch", "-q", "-C", "change", base)
		tip, _ := r.write(work, fmt.Sprint("change", n), incompressible(size))
		ev = proposes(name, kind, tip)
		if eventFirst {
			require.Empty(t, r.publish(ev))
		}
		_, err := r.try(work, "push", "-q", url, "change:refs/nostr/"+ev.ID)
		if err == nil && !eventFirst {
			require.Empty(t, r.publish(ev))
		}
		return ev, err == nil
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
	for i, kind := range []int{graspsync.KindPullRequest, graspsync.KindPullRequestUpdate} {
		ev, pushed := contribute(fmt.Sprint("honest", i), kind, 100*kib, i%2 == 0)
		require.True(t, pushed)
		r.eventually("an honest one is served with its ref", func() bool { return hasRef(ev) && r.serves(ev) })
		honest = append(honest, ev)
	}
	small, refused := 0, 0
	for i := range 24 { // each with new data
		size := kib
		if i%2 == 0 {
			size = 140 * kib
		}
		if _, pushed := contribute(fmt.Sprint("eve", i), graspsync.KindPullRequest, size, i%3 == 0); !pushed {
			refused++
		} else if size == kib {
			small++
		}
		require.LessOrEqual(t, weight(), 1000*kib)
	}
	require.Positive(t, small)
	require.Positive(t, refused)
	// Pull requests whose commit is part of a branch are unlimited.
	var flood []*nostr.Event
	for i := range 200 {
		flood = append(flood, proposes(fmt.Sprint("mallory", i), graspsync.KindPullRequest, []string{base, first}[i%2]))
	}
	require.Empty(t, r.publish(flood...))
	r.eventually("they are served", func() bool {
		served := make(map[string]bool)
		for _, id := range r.served() {
			served[id] = true
		}
		return !slices.ContainsFunc(flood, func(ev *nostr.Event) bool { return !served[ev.ID] })
	})
	refs := r.git(work, "ls-remote", url, "refs/nostr/*")
	for _, ev := range honest {
		require.Contains(t, refs, ev.ID)
	}
	require.Less(t, strings.Count(refs, "\n"), 30, "what a branch has needs no ref")
	require.Zero(t, r.server.Purgatory().Status().Dropped["pull_displaced"])

	// The owner's quota stays available to the owner.
	r.git(work, "switch", "-q", "main")
	tip, _ := r.write(work, "large", incompressible(500*kib))
	require.Empty(t, r.publish(owner.State(nostr.Now(), "repo", map[string]string{"refs/heads/main": tip}, "main")))
	out, err := r.try(work, "push", url, "main")
	require.NoError(t, err, out)
}

// Evicted data stayed on disk for weeks because of a reflog and counted for the owner, so that
// repeated pushes, each evicting the last, filled the quota. Now evicted data is removed after a
// grace period, and nothing more is evicted before.
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
					if info, err := os.Stat(path); err == nil { // else it was just removed
						sum += info.Size()
					}
				}
				return sum
			}
			worst, refused := int64(0), 0
			for i := range 30 {
				r.git(work, "switch", "-q", "-C", "change", base)
				tip, _ := r.write(work, "change", incompressible((325-5*i)*kib))
				ev := relaytest.NewKey("eve").Event(nostr.Now()+nostr.Timestamp(i), graspsync.KindPullRequest, fmt.Sprint(i),
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
			require.LessOrEqual(t, r.server.Purgatory().PullBytes(owner.PubKey()), int64(2*most), "what refs need, and what came since the last prune")

			// The owner's quota is not affected.
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

// Strangers filled the room that an owner has for pull requests, in a few of the owner's repositories, and pull requests to
// all the others were refused.
func TestCaseH5_PullRequestsToOneRepositoryLeaveRoomInTheOthers(t *testing.T) {
	racetest.Amounts(t)
	const kib = 1 << 10
	r := unstarted(t)
	r.configure = func(_ *khatru.Relay, cfg *grasp.Config) { cfg.Repositories.MaxOwnerBytes = 4000 * kib }
	r.start()
	defer r.stop()
	owner, n := relaytest.NewKey("owner"), 0
	work := make([]string, 8)
	for i := range work {
		work[i] = t.TempDir()
		name := fmt.Sprint("repo", i)
		r.git(work[i], "init", "-q", "-b", "main")
		tip, _ := r.write(work[i], "readme", name)
		require.Empty(t, r.publish(owner.Hosted(nostr.Now()-100, name, "ws://"+r.addr),
			owner.State(nostr.Now()-90, name, map[string]string{"refs/heads/main": tip}, "main")))
		r.git(work[i], "push", "-q", owner.CloneURL("ws://"+r.addr, name), "main")
	}
	r.eventually("all are served", func() bool { return len(r.served()) == 2*len(work) })
	proposes := func(i int, size int) (out string, err error) {
		n++
		name := fmt.Sprint("repo", i)
		r.git(work[i], "switch", "-q", "-C", "change", "main")
		tip, _ := r.write(work[i], "change", incompressible(size))
		ev := relaytest.NewKey(fmt.Sprint("author", n)).PullRequest(nostr.Now(), owner.Ref(name), "x", tip)
		require.Empty(t, r.publish(ev))
		return r.try(work[i], "push", "-q", owner.CloneURL("ws://"+r.addr, name), "change:refs/nostr/"+ev.ID)
	}
	pushed := 0
	for _, size := range []int{800, 400, 200, 100, 50, 20, 8, 3, 1} {
		for i := range 6 {
			for range 3 {
				if _, err := proposes(i, size*kib); err != nil {
					break
				}
				pushed++
			}
		}
	}
	require.Greater(t, pushed, 3)
	for i := 6; i < len(work); i++ {
		out, err := proposes(i, kib)
		require.NoError(t, err, out)
	}
}
