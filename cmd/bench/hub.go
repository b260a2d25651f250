package main

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"

	"github.com/nbd-wtf/go-nostr"
	"github.com/nbd-wtf/go-nostr/nip19"

	"github.com/graspsync/graspsync"
)

const (
	people      = 50
	ourHost     = "grasp.example"
	kindCI      = 9842
	kindComment = 1111
	kindOpen    = 1630
	day         = 86_400 // seconds
)

// Announcements, patches, pull requests and issues per thousand events.
const (
	perMilleRepos   = 125
	perMillePatches = 60
	perMillePulls   = 100
	perMilleIssues  = 150
)

// hub generates the events of a hub. All its repositories list our service and one relay. The
// proportions are those of a public hub.
type hub struct {
	rng    *rand.Rand
	people []person
	events []*nostr.Event
}

type person struct{ secret, pub, npub string }

// repo is a repository as its events refer to it.
type repo struct {
	owner                   *person
	name, address, earliest string
}

// hubTime is fixed, so that the events are always the same.
const hubTime nostr.Timestamp = 1_761_955_200 // 2025-11-01

// relayName is the URL of the relay in the events. Its real address changes each time.
const relayName = "wss://relay0.example"

// newHub returns n signed events, always the same.
func newHub(n int) ([]*nostr.Event, error) {
	h := &hub{rng: rand.New(rand.NewPCG(20_000, 34))}
	for i := range people {
		secret := sha256.Sum256(fmt.Appendf(nil, "person %d of the benchmark", i))
		p := person{secret: hex.EncodeToString(secret[:])}
		var err error
		if p.pub, err = nostr.GetPublicKey(p.secret); err != nil {
			return nil, err
		}
		if p.npub, err = nip19.EncodePublicKey(p.pub); err != nil {
			return nil, err
		}
		h.people = append(h.people, p)
	}
	share := func(perMille int) int { return n * perMille / 1000 }

	repos := make([]repo, share(perMilleRepos))
	for i := range repos {
		repos[i] = h.announce(i)
	}
	for i := range share(75) {
		h.state(repos[i])
	}
	for range share(150) {
		h.ci(h.anyOf(repos))
	}
	var roots []*nostr.Event
	for range share(perMillePatches) {
		roots = append(roots, h.patch(h.anyOf(repos)))
	}
	for range share(perMillePulls) {
		roots = append(roots, h.pullRequest(h.anyOf(repos)))
	}
	for range share(perMilleIssues) {
		roots = append(roots, h.issue(h.anyOf(repos)))
	}
	if err := h.sign(); err != nil { // the following events need ids
		return nil, err
	}

	for range share(100) {
		h.status(roots[h.rng.IntN(len(roots))])
	}
	type thread struct{ root, comment *nostr.Event }
	threads := make([]thread, share(160))
	for i := range threads {
		root := roots[h.rng.IntN(len(roots))]
		threads[i] = thread{root, h.comment(root, root)}
	}
	if err := h.sign(); err != nil {
		return nil, err
	}
	for len(h.events) < n {
		t := threads[h.rng.IntN(len(threads))]
		h.comment(t.root, t.comment)
	}
	if err := h.sign(); err != nil {
		return nil, err
	}
	return h.events, nil
}

func (h *hub) anyone() *person         { return &h.people[h.rng.IntN(len(h.people))] }
func (h *hub) anyOf(repos []repo) repo { return repos[h.rng.IntN(len(repos))] }

// daysAgo returns a random time between two days of the past.
func (h *hub) daysAgo(from, to int) nostr.Timestamp {
	return hubTime - nostr.Timestamp(to*day+h.rng.IntN((from-to)*day))
}

func (h *hub) hash() string {
	return fmt.Sprintf("%016x%016x%08x", h.rng.Uint64(), h.rng.Uint64(), h.rng.Uint32())
}

// add adds an event. Until it is signed, its ID contains the author's secret key.
func (h *hub) add(author *person, kind int, at nostr.Timestamp, content string, tags ...nostr.Tag) *nostr.Event {
	ev := &nostr.Event{ID: author.secret, PubKey: author.pub, Kind: kind, CreatedAt: at, Content: content, Tags: tags}
	h.events = append(h.events, ev)
	return ev
}

func (h *hub) sign() error {
	errs := make([]error, runtime.GOMAXPROCS(0))
	var wg sync.WaitGroup
	for w := range errs {
		wg.Go(func() {
			for i := w; i < len(h.events); i += len(errs) {
				if ev := h.events[i]; ev.Sig == "" && errs[w] == nil {
					errs[w] = ev.Sign(ev.ID)
				}
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

func (h *hub) announce(i int) repo {
	owner := h.anyone()
	r := repo{owner: owner, name: fmt.Sprintf("repository-%05d", i), earliest: h.hash()}
	r.address = fmt.Sprintf("%d:%s:%s", graspsync.KindAnnouncement, owner.pub, r.name)
	h.add(owner, graspsync.KindAnnouncement, h.daysAgo(360, 300), "",
		nostr.Tag{"d", r.name},
		nostr.Tag{"name", r.name},
		nostr.Tag{"description", h.words(120)},
		nostr.Tag{"web", "https://browse.example/" + owner.npub + "/" + r.name},
		nostr.Tag{"clone", "https://" + ourHost + "/" + owner.npub + "/" + r.name + ".git"},
		nostr.Tag{"relays", "wss://" + ourHost, relayName},
		nostr.Tag{"r", r.earliest, "euc"},
		nostr.Tag{"maintainers", h.anyone().pub},
	)
	return r
}

func (h *hub) state(r repo) {
	tags := nostr.Tags{{"d", r.name}, {"HEAD", "ref: refs/heads/main"}, {"refs/heads/main", h.hash()}}
	for i := range 5 {
		tags = append(tags, nostr.Tag{fmt.Sprintf("refs/tags/v1.%d.0", i), h.hash()})
	}
	h.add(r.owner, graspsync.KindState, h.daysAgo(300, 1), "", tags...)
}

func (h *hub) ci(r repo) {
	h.add(h.anyone(), kindCI, h.daysAgo(250, 1), h.words(350),
		nostr.Tag{"a", r.address, relayName},
		nostr.Tag{"p", r.owner.pub},
		nostr.Tag{"commit", h.hash()},
		nostr.Tag{"workflow", "build and test"},
		nostr.Tag{"status", "success"},
		nostr.Tag{"r", r.earliest},
		nostr.Tag{"log", "https://ci.example/" + h.hash()},
		nostr.Tag{"alt", "result of a run"},
	)
}

func (h *hub) patch(r repo) *nostr.Event {
	return h.add(h.anyone(), graspsync.KindPatch, h.daysAgo(300, 100), h.words(1300),
		nostr.Tag{"a", r.address, relayName},
		nostr.Tag{"p", r.owner.pub},
		nostr.Tag{"r", r.earliest},
		nostr.Tag{"t", "root"},
		nostr.Tag{"commit", h.hash()},
		nostr.Tag{"parent-commit", h.hash()},
		nostr.Tag{"commit-pgp-sig", ""},
		nostr.Tag{"committer", "Somebody", "somebody@mail.example", "1750000000", "60"},
	)
}

func (h *hub) pullRequest(r repo) *nostr.Event {
	return h.add(h.anyone(), graspsync.KindPullRequest, h.daysAgo(300, 100), h.words(500),
		nostr.Tag{"a", r.address, relayName},
		nostr.Tag{"p", r.owner.pub},
		nostr.Tag{"r", r.earliest},
		nostr.Tag{"subject", h.words(50)},
		nostr.Tag{"c", h.hash()},
		nostr.Tag{"clone", "https://" + ourHost + "/" + r.owner.npub + "/" + r.name + ".git"},
		nostr.Tag{"branch-name", "topic"},
		nostr.Tag{"merge-base", h.hash()},
	)
}

func (h *hub) issue(r repo) *nostr.Event {
	return h.add(h.anyone(), graspsync.KindIssue, h.daysAgo(300, 100), h.words(500),
		nostr.Tag{"a", r.address, relayName},
		nostr.Tag{"p", r.owner.pub},
		nostr.Tag{"r", r.earliest},
		nostr.Tag{"subject", h.words(50)},
		nostr.Tag{"t", "bug"},
		nostr.Tag{"t", "help-wanted"},
		nostr.Tag{"alt", "an issue of a repository"},
		nostr.Tag{"client", "benchmark"},
	)
}

// status adds an open status of a root event. It names the repository too.
func (h *hub) status(root *nostr.Event) {
	h.add(h.anyone(), kindOpen, h.daysAgo(100, 80), "",
		nostr.Tag{"e", root.ID, relayName, "root"},
		nostr.Tag{"a", root.Tags[0][1], relayName},
		nostr.Tag{"p", root.PubKey},
		nostr.Tag{"p", h.anyone().pub},
		nostr.Tag{"r", root.Tags[2][1]},
		nostr.Tag{"merge-commit", h.hash()},
		nostr.Tag{"alt", "the status of an issue"},
		nostr.Tag{"client", "benchmark"},
	)
}

// comment adds a NIP-22 comment, which does not name the repository.
func (h *hub) comment(root, parent *nostr.Event) *nostr.Event {
	from, to := 80, 40
	if parent.Kind == kindComment {
		from, to = 40, 1
	}
	return h.add(h.anyone(), kindComment, h.daysAgo(from, to), h.words(260),
		nostr.Tag{"E", root.ID, relayName, root.PubKey},
		nostr.Tag{"K", fmt.Sprint(root.Kind)},
		nostr.Tag{"P", root.PubKey},
		nostr.Tag{"e", parent.ID, relayName, parent.PubKey},
		nostr.Tag{"k", fmt.Sprint(parent.Kind)},
		nostr.Tag{"p", parent.PubKey},
		nostr.Tag{"alt", "a comment"},
		nostr.Tag{"client", "benchmark"},
	)
}

var vocabulary = strings.Fields(`the relay keeps each event that a repository of ours
	refers to and asks others for what it has missed while it was away so a patch or an
	issue with "quotes" reaches everybody who follows the project in the end`)

// words returns text of n bytes, plus or minus a fifth.
func (h *hub) words(n int) string {
	n += h.rng.IntN(2*n/5) - n/5
	var b strings.Builder
	for b.Len() < n {
		b.WriteString(vocabulary[h.rng.IntN(len(vocabulary))])
		b.WriteByte(" \n"[h.rng.IntN(20)/19])
	}
	return b.String()
}
