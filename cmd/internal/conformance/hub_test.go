package conformance

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/sync/relaytest"
)

// hubRepos is the default of HUB_REPOS, the number of repositories in TestHub. HUB_OWNERS is the
// number of owners and defaults to a quarter of it.
const hubRepos = 20

// hub is the content of a server that others must sync.
type hub struct {
	repos  []*hubRepo
	events map[string]int // kinds by id
}

type hubRepo struct {
	owner      *relaytest.Key
	identifier string
	events     []*nostr.Event
	refs       map[string]string // refs that must be served
}

// newHub generates n repositories with events, and their commits in the folder. Some owners have
// several repositories, and some repositories have the same name.
func newHub(t *testing.T, dir string, n int, servers ...string) *hub {
	t.Helper()
	owners, people := relaytest.Keys("owner", many(t, "HUB_OWNERS", max(2, n/4))), relaytest.Keys("people", 10)
	run(t, dir, "git", "init", "-q", "--bare")
	var stream bytes.Buffer
	for i := range n {
		for j, text := range []string{"first", "second", "proposed"} {
			fmt.Fprintf(&stream, "commit refs/heads/r%d-%d\nmark :%d\ncommitter a <a@example.com> %d +0000\ndata %d\n%s\n", i, j, 3*i+j+1, 1700000000+i, len(text), text)
			if j > 0 {
				fmt.Fprintf(&stream, "from :%d\n", 3*i+j)
			}
			content := strings.Repeat(fmt.Sprintf("%s of %d\n", text, i), 100)
			fmt.Fprintf(&stream, "M 644 inline file%d\ndata %d\n%s\n", j, len(content), content)
		}
	}
	fill := exec.CommandContext(t.Context(), "git", "fast-import", "--quiet")
	fill.Dir, fill.Stdin = dir, &stream
	out, err := fill.CombinedOutput()
	require.NoError(t, err, "%s", out)
	ids := make(map[string]string)
	for line := range strings.Lines(run(t, dir, "git", "for-each-ref", "--format=%(refname:short) %(objectname)")) {
		name, id, _ := strings.Cut(strings.TrimSpace(line), " ")
		ids[name] = id
	}
	h := &hub{events: make(map[string]int)}
	began := nostr.Now() - nostr.Timestamp(10*n) - 1000
	for i := range n {
		r := &hubRepo{owner: owners[i%len(owners)], identifier: fmt.Sprint("repo", i)}
		if i%5 == 0 {
			r.identifier = fmt.Sprint("shared", i/len(owners))
		}
		at := began + nostr.Timestamp(10*i)
		tip := ids[fmt.Sprintf("r%d-1", i)]
		r.refs = map[string]string{"refs/heads/main": tip, "refs/tags/v1": ids[fmt.Sprintf("r%d-0", i)]}
		who := func(j int) *relaytest.Key { return people[(i+j)%len(people)] }
		var urls, relays []string
		for _, s := range servers {
			relays = append(relays, "ws://"+s)
			urls = append(urls, r.owner.CloneURL("ws://"+s, r.identifier))
		}
		ref := r.owner.Ref(r.identifier)
		issue := who(0).Issue(at+2, ref, "issue")
		second := who(1).Issue(at+2, ref, "second issue")
		patch := who(2).Patch(at+2, ref, "patch")
		comment := who(3).Comment(at+3, issue, "comment")
		r.events = []*nostr.Event{
			r.owner.Announcement(at, r.identifier, relays, urls),
			r.owner.State(at+1, r.identifier, r.refs, "main"),
			issue, second, patch, comment, who(4).Comment(at+4, patch, "another comment"), r.owner.Status(at+5, 1631, patch),
		}
		if i%4 == 0 {
			commit := ids[fmt.Sprintf("r%d-2", i)]
			pr := who(5).PullRequest(at+2, ref, "pull request", commit, urls...)
			r.refs["refs/nostr/"+pr.ID] = commit
			r.events = append(r.events, pr, who(6).Comment(at+6, pr, "on the pull request"))
		}
		for _, ev := range r.events {
			h.events[ev.ID] = ev.Kind
		}
		h.repos = append(h.repos, r)
	}
	return h
}

// many returns a number from the environment.
func many(t *testing.T, name string, usual int) int {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return usual
	}
	n, err := strconv.Atoi(text)
	require.NoError(t, err)
	return n
}

func run(t *testing.T, dir string, args ...string) string {
	t.Helper()
	out, err := try(t.Context(), dir, args...)
	require.NoError(t, err, "%s: %s", strings.Join(args, " "), out)
	return out
}

func try(ctx context.Context, dir string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null", "GIT_TERMINAL_PROMPT=0")
	out, err := cmd.CombinedOutput()
	return strings.TrimSpace(string(out)), err
}

// fill publishes all events and pushes all commits to a server.
func (h *hub) fill(t *testing.T, dir string, to server) {
	t.Helper()
	repos := make(chan *hubRepo)
	var wg sync.WaitGroup
	var mu sync.Mutex
	var failed []error
	for range 4 {
		wg.Go(func() {
			var err error
			for r := range repos {
				if err == nil {
					err = r.fill(t.Context(), dir, to)
				}
			}
			if err != nil {
				mu.Lock()
				failed = append(failed, err)
				mu.Unlock()
			}
		})
	}
	for _, r := range h.repos {
		repos <- r
	}
	close(repos)
	wg.Wait()
	require.Empty(t, failed)
}

func (r *hubRepo) fill(ctx context.Context, dir string, to server) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	relay, err := dial(ctx, to.address) // one connection each, because the number of events per minute is limited
	if err != nil {
		return err
	}
	defer relay.close()
	url := r.owner.CloneURL("ws://"+to.address, r.identifier)
	push := func(refs ...string) error {
		return again(ctx, func() error {
			out, err := try(ctx, dir, append([]string{"git", "push", "-q", url}, refs...)...)
			if err != nil {
				return fmt.Errorf("%w: %s", err, out)
			}
			return nil
		})
	}
	for i, ev := range r.events {
		if err := again(ctx, func() error { return relay.publish(ctx, ev) }); err != nil {
			return fmt.Errorf("kind %d: %w", ev.Kind, err)
		}
		if i == 1 {
			if err := push(r.refs["refs/heads/main"]+":refs/heads/main", r.refs["refs/tags/v1"]+":refs/tags/v1"); err != nil {
				return err
			}
		}
		if name := "refs/nostr/" + ev.ID; r.refs[name] != "" {
			if err := push(r.refs[name] + ":" + name); err != nil {
				return err
			}
		}
	}
	return nil
}

// again retries an operation that can fail for a moment, because a server may answer before it
// serves an event.
func again(ctx context.Context, do func() error) error {
	for {
		err := do()
		if err == nil || ctx.Err() != nil {
			return err
		}
		select {
		case <-time.After(200 * time.Millisecond):
		case <-ctx.Done():
		}
	}
}

// lacks returns the ids of events that a server does not serve.
func lacks(ctx context.Context, relay client, ids []string) ([]string, error) {
	missing := make(map[string]bool)
	for _, id := range ids {
		missing[id] = true
	}
	for some := range slices.Chunk(ids, 100) {
		events, err := relay.query(ctx, nostr.Filter{IDs: some})
		if err != nil {
			return nil, err
		}
		for _, ev := range events {
			delete(missing, ev.ID)
		}
	}
	return slices.DeleteFunc(slices.Clone(ids), func(id string) bool { return !missing[id] }), nil
}

// hasRefs reports whether a server serves all refs of a repository.
func (r *hubRepo) hasRefs(ctx context.Context, at server) (bool, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, r.owner.CloneURL("ws://"+at.address, r.identifier)+"/info/refs?service=git-upload-pack", nil)
	if err != nil {
		return false, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return false, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	for name, id := range r.refs {
		if !bytes.Contains(text, []byte(id+" "+name)) {
			return false, err
		}
	}
	return true, err
}

// arrives waits until a server has everything, and logs the progress.
func (h *hub) arrives(t *testing.T, at server, most time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), most)
	defer cancel()
	relay, err := dial(ctx, at.address)
	require.NoError(t, err)
	defer relay.close()
	began, told := time.Now(), time.Now()
	var ids []string
	for id := range h.events {
		ids = append(ids, id)
	}
	for {
		missing, err := lacks(ctx, relay, ids)
		if err == nil {
			ids = missing
		}
		if len(ids) == 0 {
			break
		}
		if time.Since(told) > 30*time.Second {
			told = time.Now()
			t.Logf("after %s there are %d of %d events", time.Since(began).Round(time.Second), len(h.events)-len(ids), len(h.events))
		}
		kinds := make(map[int]int)
		for _, id := range ids {
			kinds[h.events[id]]++
		}
		require.NoError(t, ctx.Err(), "these kinds are missing: %v", kinds)
		time.Sleep(time.Duration(min(len(h.events), 1000)) * time.Millisecond)
	}
	t.Logf("all %d events after %s", len(h.events), time.Since(began).Round(10*time.Millisecond))
	for _, r := range h.repos {
		for {
			has, err := r.hasRefs(ctx, at)
			if has {
				break
			}
			require.NoError(t, ctx.Err(), "%s lacks refs: %v", r.owner.Ref(r.identifier), err)
			time.Sleep(100 * time.Millisecond)
		}
	}
	t.Logf("all refs of %d repositories after %s", len(h.repos), time.Since(began).Round(10*time.Millisecond))
}

// A server whose bootstrap relay has very many repositories syncs all of them, for either program
// on both sides. Every announcement lists both servers.
func TestHub(t *testing.T) {
	n := many(t, "HUB_REPOS", hubRepos)
	pairs := [][2]string{{peer, ours}, {ours, peer}}
	if n > hubRepos {
		pairs = append(pairs, [][2]string{{ours, ours}, {peer, peer}}...) // for comparison
	}
	for _, pair := range pairs {
		t.Run(pair[0]+" to "+pair[1], func(t *testing.T) {
			t.Parallel() // the test mostly waits
			field(t)
			from, to, dir := address(t), address(t), t.TempDir()
			a := serveAs(t, pair[0], address(t), from, "")
			h := newHub(t, dir, n, from, to)
			began := time.Now()
			h.fill(t, dir, a)
			t.Logf("filled %s with %d repositories and %d events in %s", pair[0], n, len(h.events), time.Since(began).Round(time.Millisecond))
			source := opens(t, from, a.address)
			late := address(t)
			sink := opens(t, to, late)
			b := serveAs(t, pair[1], late, to, from)
			h.arrives(t, b, time.Minute+time.Duration(n)*5*time.Second)
			t.Logf("%s asked %s: %s", pair[1], pair[0], source.traffic())
			t.Logf("%s asked %s: %s", pair[0], pair[1], sink.traffic())

			// Now both servers follow each other.
			r := h.repos[n/2]
			issue := relaytest.NewKey("people 0").Issue(nostr.Now(), r.owner.Ref(r.identifier), "later")
			h = &hub{events: map[string]int{issue.ID: graspsync.KindIssue}}
			relay, err := dial(t.Context(), b.address)
			require.NoError(t, err)
			defer relay.close()
			require.NoError(t, relay.publish(t.Context(), issue))
			h.arrives(t, a, time.Minute)
		})
	}
}
