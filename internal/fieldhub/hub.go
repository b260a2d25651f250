// Package fieldhub generates a hub with the size and distribution of the largest GRASP servers of
// November 2026, for tests and benchmarks. The same [Config] always gives the same events.
//
//	hub := fieldhub.New(fieldhub.Config{Size: fieldhub.Production.Part(10), Server: "grasp.example"})
//	relay := network.Add("wss://"+hub.Host, relaytest.GraspRelay())
//	relay.Publish(hub.Events...)
//
// These values were measured:
//
//   - the numbers of repositories, of patches, issues and pull requests, of identifiers with several
//     owners, of deletion requests, of listed relays, and of relays that answer
//   - the size of the largest event
//   - an author with 983 relays
//   - a state with hundreds of commits that no server stores
//
// The rest is derived. Few repositories have most of the events, and few authors own many
// repositories. The 10,500 roots are from one server. The 60,000 events with 50,000 deletion
// requests are from another, so the total is 70,000 events.
package fieldhub

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/sync/relaytest"
)

// Size contains the numbers of a hub.
type Size struct {
	Repositories int // each with an owner and an announcement, three of four with a state
	Shared       int // repositories with the identifier of another
	Roots        int // issues, pull requests and patches
	Comments     int // including statuses
	Deletions    int // requests, nearly all for unknown events
	Authors      int
	Relays       int // in announcements, without the hub
	Answering    int // relays that answer
	Tips         int // commits of one state that no server stores
	LargeEvent   int // bytes of one patch
	AuthorRelays int // in the relay list (kind 10002) of one author
}

// Production is the size of a hub in production.
var Production = Size{
	Repositories: 2500, Shared: 280, Roots: 10_500, Comments: 4500, Deletions: 50_000, Authors: 750,
	Relays: 200, Answering: 12, Tips: 400, LargeEvent: 149 << 10, AuthorRelays: 983,
}

// Part returns a size divided by n. Sizes of single items do not change.
func (s Size) Part(n int) Size {
	for _, v := range []*int{
		&s.Repositories, &s.Shared, &s.Roots, &s.Comments, &s.Deletions, &s.Authors, &s.Relays, &s.Answering,
	} {
		*v = max(2, *v/n)
	}
	return s
}

// Config is the configuration of a [Hub].
type Config struct {
	Size Size
	// Server is the host of the syncing server. All announcements list it.
	Server string
	// Host is the host of the hub's relay. Defaults to "hub.example".
	Host string
	// Now is the time of the newest event. Defaults to the first of November 2026.
	Now time.Time
	// Key creates the authors. Defaults to relaytest.NewCheapKey. Real signatures take 0.1 ms each.
	Key func(seed string) *relaytest.Key
	// GitServers are base URLs such as "http://git.example:8080". Each repository has a state and
	// is on the next server in turn. Defaults to the hub and the relays around it.
	GitServers []string
	// Commit returns the commit of a ref ("main", "v0.1", or "pull-7") of the ith repository.
	// Defaults to commits that no server stores.
	Commit func(repo int, name string) string
	// Seed selects another hub of the same size.
	Seed uint64
}

// Relay is a relay other than the hub in announcements.
type Relay struct {
	URL string
	// Answers reports whether the relay is reachable.
	Answers bool
	Events  []*nostr.Event
}

// Hub contains the events of a hub and the relays around it.
type Hub struct {
	Host   string
	Events []*nostr.Event // on the hub, oldest first
	Relays []*Relay
	// Wanted contains the events that the server must store after a sync: those of the repositories
	// that list it, except deleted ones.
	Wanted []*nostr.Event

	cfg     Config
	authors []*relaytest.Key
	repos   []*repository // in order of creation
	roots   []*nostr.Event
	gone    map[string]bool        // ids of deleted events
	byRef   map[string]*repository // by address
	byRoot  map[string]*repository // by id of a root
}

type repository struct {
	index      int // in Hub.repos
	owner      *relaytest.Key
	name       string
	identifier graspsync.RepoRef
	relays     []*Relay // other than the hub
	announced  nostr.Timestamp
}

// twoYears is the age of the oldest event, in seconds.
const twoYears = 2 * 365 * 86_400

// New returns a hub.
func New(cfg Config) *Hub {
	cfg.Host = cmp.Or(cfg.Host, "hub.example")
	if cfg.Now.IsZero() {
		cfg.Now = time.Date(2026, time.November, 1, 0, 0, 0, 0, time.UTC)
	}
	if cfg.Key == nil {
		cfg.Key = relaytest.NewCheapKey
	}
	h := &Hub{Host: cfg.Host, cfg: cfg, gone: make(map[string]bool)}
	size := cfg.Size
	h.authors = parallel(size.Authors, func(i int) *relaytest.Key {
		return cfg.Key(fmt.Sprint("author ", i, " of the hub ", cfg.Seed))
	})
	h.createRepositories()
	announcements := parallel(len(h.repos), func(i int) *nostr.Event { return h.announcement(h.repos[i]) })
	states := parallel(len(h.repos), h.state)
	h.roots = parallel(size.Roots, h.root)
	comments := parallel(size.Comments, h.comment)
	requests := parallel(size.Deletions, func(i int) *nostr.Event { return h.deletion(i, comments) })
	for i := range requests {
		if own := h.deletedComment(i, comments); own != nil {
			h.gone[own.ID] = true
		}
	}
	h.distribute(announcements, false)
	h.distribute(states, false)
	h.distribute(h.roots, true)
	h.distribute(comments, true)
	h.Events = append(append(h.Events, requests...), h.relayList())
	slices.SortStableFunc(h.Events, func(a, b *nostr.Event) int { return cmp.Compare(a.CreatedAt, b.CreatedAt) })
	return h
}

func parallel[T any](n int, make1 func(i int) T) []T {
	all := make([]T, n)
	var wg sync.WaitGroup
	workers := runtime.GOMAXPROCS(0)
	for w := range workers {
		wg.Go(func() {
			for i := w; i < n; i += workers {
				all[i] = make1(i)
			}
		})
	}
	wg.Wait()
	return all
}

// random returns the random numbers of the ith item of a kind, which do not depend on other items.
func (h *Hub) random(sort string, i int) *rand.Rand {
	n := h.cfg.Seed
	for _, c := range []byte(sort) {
		n = n*131 + uint64(c)
	}
	return rand.New(rand.NewPCG(n, uint64(i)))
}

// skewed returns a random number in [0, n), small ones more often.
func skewed(rng *rand.Rand, n int) int {
	x := rng.Float64()
	return int(x * x * x * float64(n))
}

func (h *Hub) now() nostr.Timestamp { return nostr.Timestamp(h.cfg.Now.Unix()) }

func (h *Hub) createRepositories() {
	size := h.cfg.Size
	for i := range size.Relays {
		r := &Relay{URL: fmt.Sprintf("wss://relay%d.example", i), Answers: i < size.Answering}
		h.Relays = append(h.Relays, r)
	}
	for i := range size.Repositories {
		rng := h.random("repository", i)
		r := &repository{index: i, owner: h.authors[skewed(rng, len(h.authors))], name: fmt.Sprintf("project-%d", i)}
		if i == 0 {
			r.name = "market" // its state names commits that no server stores
		}
		if first := size.Repositories - size.Shared; i >= first {
			// The same name with another owner, from the end of the list of authors.
			r.name = h.repos[rng.IntN(first)].name
			r.owner = h.authors[len(h.authors)-1-(i-first)%(len(h.authors)/2)]
		}
		for range rng.IntN(4) {
			listed := h.Relays[skewed(rng, len(h.Relays))]
			if rng.IntN(3) == 0 {
				listed = h.Relays[rng.IntN(len(h.Relays))]
			}
			if !slices.Contains(r.relays, listed) {
				r.relays = append(r.relays, listed)
			}
		}
		r.announced = h.now() - nostr.Timestamp(rng.IntN(twoYears))
		r.identifier = r.owner.Ref(r.name)
		h.repos = append(h.repos, r)
	}
	// An owner can have a name only once, because a second repository would be a newer version.
	seen := make(map[graspsync.RepoRef]int)
	for _, r := range h.repos {
		if seen[r.identifier]++; seen[r.identifier] > 1 {
			r.name = fmt.Sprintf("%s-%d", r.name, seen[r.identifier])
			r.identifier = r.owner.Ref(r.name)
		}
	}
}

func (h *Hub) announcement(r *repository) *nostr.Event {
	hosts := []string{h.cfg.Server, h.Host}
	for _, rel := range r.relays {
		hosts = append(hosts, strings.TrimPrefix(rel.URL, "wss://"))
	}
	if len(h.cfg.GitServers) > 0 {
		relays := make([]string, len(hosts))
		for i, host := range hosts {
			relays[i] = relayURL(host)
		}
		return r.owner.Announcement(r.announced, r.name, relays, []string{r.owner.CloneURL(relayURL(h.cfg.Server), r.name), h.CloneURL(r.index)})
	}
	return r.owner.Hosted(r.announced, r.name, hosts...)
}

func relayURL(host string) string {
	if strings.Contains(host, "://") {
		return host
	}
	return "wss://" + host
}

// CloneURL returns the URL of the ith repository on its git server.
func (h *Hub) CloneURL(i int) string {
	r, server := h.repos[i], h.cfg.GitServers[i%len(h.cfg.GitServers)]
	return r.owner.CloneURL(strings.Replace(server, "http", "ws", 1), r.name)
}

func (h *Hub) commit(rng *rand.Rand, repo int, name string) string {
	made := commit(rng) // always called, so that later random numbers stay the same
	if h.cfg.Commit == nil {
		return made
	}
	return h.cfg.Commit(repo, name)
}

func (h *Hub) state(i int) *nostr.Event {
	rng, r := h.random("state", i), h.repos[i]
	refs := map[string]string{"refs/heads/main": h.commit(rng, i, "main")}
	switch {
	case i == 0:
		for tip := range h.cfg.Size.Tips {
			refs[fmt.Sprintf("refs/heads/lost-%d", tip)] = commit(rng)
		}
	case rng.IntN(4) == 0 && len(h.cfg.GitServers) == 0:
		return nil
	default:
		for tag := range rng.IntN(5) {
			name := fmt.Sprintf("v0.%d", tag)
			refs["refs/tags/"+name] = h.commit(rng, i, name)
		}
	}
	return r.owner.State(h.later(rng, r.announced), r.name, refs, "main")
}

func commit(rng *rand.Rand) string {
	return fmt.Sprintf("%016x%016x%08x", rng.Uint64(), rng.Uint64(), rng.Uint32())
}

func (h *Hub) later(rng *rand.Rand, then nostr.Timestamp) nostr.Timestamp {
	return then + nostr.Timestamp(rng.Int64N(int64(max(1, h.now()-then))))
}

func (h *Hub) root(i int) *nostr.Event {
	rng := h.random("root", i)
	r := h.repos[skewed(rng, len(h.repos))]
	author := h.authors[rng.IntN(len(h.authors))]
	at, text := h.later(rng, r.announced), fmt.Sprintf("%d: %s", i, words(rng, 40))
	switch k := rng.IntN(64); {
	case i == h.cfg.Size.Roots/2:
		line := "+ a line of a large patch\n"
		return author.Event(at, graspsync.KindPatch, strings.Repeat(line, h.cfg.Size.LargeEvent/(len(line)+1)),
			nostr.Tag{"a", r.identifier.String()}, nostr.Tag{"p", r.owner.Hex()}, nostr.Tag{"t", "root"})
	case k < 31:
		return author.Issue(at, r.identifier, text)
	case k < 53:
		return author.PullRequest(at, r.identifier, text, h.commit(rng, r.index, fmt.Sprint("pull-", i)), author.CloneURL("wss://"+h.cfg.Server, r.name))
	default:
		return author.Patch(at, r.identifier, text)
	}
}

func (h *Hub) comment(i int) *nostr.Event {
	rng := h.random("comment", i)
	root := h.roots[skewed(rng, len(h.roots))]
	author := h.authors[rng.IntN(len(h.authors))]
	at := h.later(rng, root.CreatedAt)
	if rng.IntN(4) == 0 {
		return author.Status(at, 1630+rng.IntN(4), root)
	}
	return author.Comment(at, root, words(rng, 60))
}

// deletedComment returns the comment that the ith deletion request deletes, or nil, because most requests name
// unknown events.
func (h *Hub) deletedComment(i int, comments []*nostr.Event) *nostr.Event {
	if i%500 != 0 || len(comments) == 0 {
		return nil
	}
	return comments[(i/500*7)%len(comments)]
}

func (h *Hub) deletion(i int, comments []*nostr.Event) *nostr.Event {
	rng := h.random("deletion", i)
	author := h.authors[rng.IntN(len(h.authors))]
	if ev := h.deletedComment(i, comments); ev != nil {
		for _, a := range h.authors {
			if a.Hex() == ev.PubKey {
				return a.Deletion(h.later(rng, ev.CreatedAt), ev)
			}
		}
	}
	at := h.now() - nostr.Timestamp(rng.IntN(twoYears))
	tags := nostr.Tags{{"e", commit(rng) + commit(rng)[:24]}, {"k", "1111"}}
	if r := h.repos[skewed(rng, len(h.repos))]; rng.IntN(10) == 0 && r.owner != author {
		// The request names the repository of another author, so that filters match it.
		tags = append(tags, nostr.Tag{"a", r.identifier.String()})
	}
	return author.Event(at, graspsync.KindDeletion, "", tags...)
}

func (h *Hub) relayList() *nostr.Event {
	var tags nostr.Tags
	for i := range h.cfg.Size.AuthorRelays {
		tags = append(tags, nostr.Tag{"r", fmt.Sprintf("wss://listed%d.example/%x", i, i*i)})
	}
	return h.authors[0].Event(h.now()-86_400, 10_002, "", tags...)
}

// distribute puts events on the hub and on the answering relays of their repositories. If stray is
// true, one of fifty is missing on the hub.
func (h *Hub) distribute(events []*nostr.Event, stray bool) {
	for i, ev := range events {
		if ev == nil {
			continue
		}
		rng := h.random("place "+ev.ID, i)
		elsewhere := false
		if r := h.repositoryOf(ev); r != nil {
			for _, rel := range r.relays {
				if rel.Answers && rng.IntN(2) == 0 {
					rel.Events = append(rel.Events, ev)
					elsewhere = true
				}
			}
		}
		if !elsewhere || !stray || rng.IntN(50) != 0 {
			h.Events = append(h.Events, ev)
		}
		if !h.gone[ev.ID] {
			h.Wanted = append(h.Wanted, ev)
		}
	}
}

func (h *Hub) repositoryOf(ev *nostr.Event) *repository {
	if h.byRef == nil {
		h.byRef = make(map[string]*repository)
		for _, r := range h.repos {
			h.byRef[r.identifier.String()] = r
		}
		h.byRoot = make(map[string]*repository)
		for _, root := range h.roots {
			h.byRoot[root.ID] = h.byRef[value(root, "a")]
		}
	}
	if r := h.byRef[value(ev, "a")]; r != nil {
		return r
	}
	if r := h.byRoot[value(ev, "E")]; r != nil {
		return r
	}
	return h.byRef[fmt.Sprintf("%d:%s:%s", graspsync.KindAnnouncement, ev.PubKey, value(ev, "d"))]
}

func value(ev *nostr.Event, name string) string {
	for _, tag := range ev.Tags {
		if len(tag) >= 2 && tag[0] == name {
			return tag[1]
		}
	}
	return ""
}

func words(rng *rand.Rand, n int) string {
	some := []string{"the", "build", "fails", "when", "a", "merge", "is", "pushed", "and", "relay", "tests", "pass"}
	var b strings.Builder
	for range 1 + rng.IntN(n) {
		b.WriteString(some[rng.IntN(len(some))])
		b.WriteByte(' ')
	}
	return b.String()
}
