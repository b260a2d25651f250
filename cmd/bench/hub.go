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
	owner         *person
	name, address string
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
	for _, r := range repos[:share(75)] {
		tags := nostr.Tags{{"d", r.name}, {"HEAD", "ref: refs/heads/main"}, {"refs/heads/main", h.hash()}}
		h.add(r.owner, graspsync.KindState, h.daysAgo(300, 1), "", tags...)
	}
	for range share(150) {
		h.about(h.anyOf(repos), kindCI, 250, 1, 350)
	}
	var roots []*nostr.Event
	for _, k := range []struct{ kind, perMille, words int }{
		{graspsync.KindPatch, perMillePatches, 1300}, {graspsync.KindPullRequest, perMillePulls, 500}, {graspsync.KindIssue, perMilleIssues, 500},
	} {
		for range share(k.perMille) {
			roots = append(roots, h.about(h.anyOf(repos), k.kind, 300, 100, k.words, nostr.Tag{"subject", h.words(50)}, nostr.Tag{"c", h.hash()}))
		}
	}
	if err := h.sign(); err != nil { // the following events need ids
		return nil, err
	}

	for range share(100) {
		root := roots[h.rng.IntN(len(roots))]
		h.add(h.anyone(), kindOpen, h.daysAgo(100, 80), "", nostr.Tag{"e", root.ID, relayName, "root"}, root.Tags[0], nostr.Tag{"p", root.PubKey})
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

// add adds an event of 8 tags. Until it is signed, its ID contains the author's secret key.
func (h *hub) add(author *person, kind int, at nostr.Timestamp, content string, tags ...nostr.Tag) *nostr.Event {
	for len(tags) < 8 {
		tags = append(tags, nostr.Tag{"commit", h.hash()})
	}
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
	r := repo{owner: owner, name: fmt.Sprintf("repository-%05d", i)}
	r.address = fmt.Sprintf("%d:%s:%s", graspsync.KindAnnouncement, owner.pub, r.name)
	h.add(owner, graspsync.KindAnnouncement, h.daysAgo(360, 300), h.words(120),
		nostr.Tag{"d", r.name},
		nostr.Tag{"clone", "https://" + ourHost + "/" + owner.npub + "/" + r.name + ".git"},
		nostr.Tag{"relays", "wss://" + ourHost, relayName},
		nostr.Tag{"maintainers", h.anyone().pub},
	)
	return r
}

// about adds an event that names a repository.
func (h *hub) about(r repo, kind, from, to, words int, tags ...nostr.Tag) *nostr.Event {
	tags = append(nostr.Tags{{"a", r.address, relayName}, {"p", r.owner.pub}}, tags...)
	return h.add(h.anyone(), kind, h.daysAgo(from, to), h.words(words), tags...)
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
