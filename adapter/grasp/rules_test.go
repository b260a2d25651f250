package grasp_test

import (
	"context"
	"net/http"
	"net/netip"
	"path/filepath"
	"sync"
	"testing"

	"github.com/fiatjaf/khatru"
	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/adapter/grasp"
	"github.com/graspsync/graspsync/internal/racetest"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/sync/relaytest"
)

// ban is a RejectEvent hook that refuses authors.
type ban struct {
	mu      sync.Mutex
	authors map[string]bool
}

func (b *ban) add(k *relaytest.Key) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.authors == nil {
		b.authors = make(map[string]bool)
	}
	b.authors[k.Hex()] = true
}

func (b *ban) hook(_ context.Context, e *nostr.Event) (bool, string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.authors[e.PubKey], "blocked: banned"
}

// folders returns the folders of an owner's repositories.
func (r *rig) folders(owner *relaytest.Key) []string {
	found, err := filepath.Glob(filepath.Join(r.dir, owner.Hex(), "*.git"))
	require.NoError(r.t, err)
	return found
}

// follow configures a server to follow another on loopback.
func follow(other *rig) func(*khatru.Relay, *grasp.Config) {
	return func(_ *khatru.Relay, cfg *grasp.Config) {
		u, err := graspsync.ParseRelayURL("ws://" + other.addr)
		require.NoError(other.t, err)
		cfg.Sync.Bootstrap = []graspsync.RelayURL{u}
		cfg.Egress.Allow = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
		cfg.Egress.AllowPlaintext = true
	}
}

// publishRepo announces a repository and pushes to it at one server. The announcement names others
// too.
func (r *rig) publishRepo(owner *relaytest.Key, others ...*rig) (events []*nostr.Event) {
	r.t.Helper()
	work, commit := r.work()
	hosts := []string{"ws://" + r.addr}
	for _, o := range others {
		hosts = append(hosts, "ws://"+o.addr)
	}
	ann := owner.Hosted(nostr.Now()-100, "repo", hosts...)
	st := owner.State(nostr.Now()-90, "repo", map[string]string{"refs/heads/main": commit}, "main")
	require.Empty(r.t, r.publish(ann, st))
	r.git(work, "push", "-q", owner.CloneURL("ws://"+r.addr, "repo"), "main")
	r.eventually("served", func() bool { return r.serves(ann) && r.serves(st) })
	return []*nostr.Event{ann, st}
}

func (r *rig) serves(ev *nostr.Event) bool {
	for _, id := range r.served() {
		if id == ev.ID {
			return true
		}
	}
	return false
}

// A RejectEvent hook was not called for held events from sync: announcements, states and pull
// requests, which cost disk space.
func TestBannedAuthorStaysOutOfSync(t *testing.T) {
	racetest.Foreign(t, "khatru broadcasts with one while a subscriber leaves")
	for _, when := range []string{"before New", "after New"} {
		t.Run(when, func(t *testing.T) {
			good, bad := relaytest.NewKey("good"), relaytest.NewKey("bad")
			other, us := unstarted(t), unstarted(t)
			us.start() // to have an address
			us.stop()
			other.start()
			defer other.stop()
			var banned ban
			banned.add(bad)
			us.configure = func(relay *khatru.Relay, cfg *grasp.Config) {
				follow(other)(relay, cfg)
				if when == "before New" {
					relay.RejectEvent = append(relay.RejectEvent, banned.hook)
				}
			}
			if when == "after New" {
				us.later = func(relay *khatru.Relay) { relay.RejectEvent = append(relay.RejectEvent, banned.hook) }
			}
			us.start()
			defer us.stop()
			theirs := other.publishRepo(bad, us)
			ours := other.publishRepo(good, us)
			pr := bad.PullRequest(nostr.Now()-50, good.Ref("repo"), "x", ours[1].Tags.Find("refs/heads/main")[1])
			require.Empty(t, other.publish(pr))
			us.eventually("the good one is here", func() bool { return us.serves(ours[0]) && us.serves(ours[1]) })
			us.eventually("the bad one was refused", func() bool {
				return us.server.Sync().Manager().Status().Events.Rejected["blocked: refused by a hook of the relay"] >= 2
			})
			for _, ev := range append(theirs, pr) {
				require.False(t, us.serves(ev))
				require.False(t, us.waits(ev))
			}
			require.Empty(t, us.folders(bad), "no repository was made")
			require.Len(t, us.folders(good), 1)
		})
	}
}

// Held events of an author who is banned later are not served when the git data arrives.
func TestBannedWhileWaiting(t *testing.T) {
	r := unstarted(t)
	var banned ban
	r.later = func(relay *khatru.Relay) { relay.RejectEvent = append(relay.RejectEvent, banned.hook) }
	r.start()
	defer r.stop()
	bad := relaytest.NewKey("bad")
	work, commit := r.work()
	ann := bad.Hosted(nostr.Now()-100, "repo", "ws://"+r.addr)
	st := bad.State(nostr.Now()-90, "repo", map[string]string{"refs/heads/main": commit}, "main")
	require.Empty(t, r.publish(ann, st))
	require.True(t, r.waits(ann))
	banned.add(bad)
	url := bad.CloneURL("ws://"+r.addr, "repo")
	_, _ = r.try(work, "push", "-q", url, "main")
	r.eventually("they wait no longer", func() bool { return !r.waits(ann) && !r.waits(st) })
	require.Empty(t, r.served())
	require.Len(t, r.publish(ann), 1)
}

// A server with a path accepted announcements with that path and served their repositories
// elsewhere.
func TestRepositoriesUnderAPath(t *testing.T) {
	r := unstarted(t)
	r.base = "/git"
	r.start()
	defer r.stop()
	owner := relaytest.NewKey("owner")
	work, commit := r.work()
	url := "http://" + r.addr + "/git/" + nip34.NPub(owner.PubKey()) + "/repo.git"
	ann := owner.Announcement(nostr.Now()-100, "repo", []string{"ws://" + r.addr + "/git"}, []string{url})
	st := owner.State(nostr.Now()-90, "repo", map[string]string{"refs/heads/main": commit}, "main")
	require.Empty(t, r.publish(ann, st))
	r.git(work, "push", "-q", url, "main")
	r.eventually("served", func() bool { return r.serves(ann) && r.serves(st) })
	require.Equal(t, commit+"\trefs/heads/main", r.git(work, "ls-remote", url, "refs/heads/main"))
	for _, path := range []string{"/git", "/git/"} { // nostr clients use both
		resp, text := r.ask(http.MethodGet, path, "Accept", "application/nostr+json")
		require.Equal(t, http.StatusOK, resp.StatusCode)
		require.Contains(t, text, "GRASP-01")
	}
	resp, _ := r.ask(http.MethodGet, "/git-upload-pack")
	require.Equal(t, http.StatusNotFound, resp.StatusCode, "it only begins like our path")
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+r.addr+"/git", nil)
	require.NoError(t, err)
	for name, value := range map[string]string{
		"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": "MDEyMzQ1Njc4OWFiY2RlZg==",
	} {
		req.Header.Set(name, value)
	}
	resp, err = http.DefaultTransport.RoundTrip(req)
	require.NoError(t, err)
	require.Equal(t, http.StatusSwitchingProtocols, resp.StatusCode)
	require.NoError(t, resp.Body.Close())
}
