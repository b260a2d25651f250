package grasp_test

import (
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

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
