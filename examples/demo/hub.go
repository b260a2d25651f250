package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"runtime"

	"github.com/nbd-wtf/go-nostr"
	"github.com/nbd-wtf/go-nostr/nip19"
	"golang.org/x/sync/errgroup"
)

// How large the hub is.
const (
	ourRepos     = 320
	foreignRepos = 60
	rootsPerRepo = 5
	people       = 50
)

// NIP-34 and NIP-22 kinds that the hub has.
const (
	kindPatch   = 1617
	kindPR      = 1618
	kindIssue   = 1621
	kindOpen    = 1630
	kindComment = 1111
	kindRepo    = 30617
	kindState   = 30618
)

// person has a key.
type person struct{ secret, pub, npub string }

func newPerson(i int) person {
	secret := sha256.Sum256(fmt.Appendf(nil, "person %d of the demo", i))
	p := person{secret: hex.EncodeToString(secret[:])}
	p.pub, _ = nostr.GetPublicKey(p.secret)
	p.npub, _ = nip19.EncodePublicKey(p.pub)
	return p
}

// draft is an event that is still to be signed, and where it goes.
type draft struct {
	event  nostr.Event
	author *person
	peers  []int
}

// hub is all that the other relays hold, and what of it our relay must end up
// with.
type hub struct {
	rng    *rand.Rand
	people []person
	us     string   // host:port of our relay
	hosts  []string // of the others
	now    nostr.Timestamp

	drafts []*draft
	wanted map[*draft]bool
	issues []*draft // to comment on when everything is live
	repos  []*repo  // ours
}

// newHub makes up a hub, and puts its git data on the servers. Times lie in the past
// year.
func newHub(ctx context.Context, us string, hosts []string, servers []*gitServer, workshop string) (*hub, error) {
	h := &hub{
		rng: rand.New(rand.NewPCG(34, 2026)), us: us, hosts: hosts,
		now: nostr.Now(), wanted: make(map[*draft]bool),
	}
	for i := range people {
		h.people = append(h.people, newPerson(i))
	}
	for i := range ourRepos {
		h.repos = append(h.repos, h.newRepo(i, fmt.Sprintf("repo-%03d", i), storyOf(i)))
	}
	if err := inParallel(h.repos, func(r *repo) error {
		return r.place(ctx, servers[r.home], servers[1-r.home], workshop)
	}); err != nil {
		return nil, fmt.Errorf("making git data: %w", err)
	}
	for i, r := range h.repos {
		h.addRepo(i, r, servers)
	}
	for i := range foreignRepos {
		r := h.newRepo(i, fmt.Sprintf("foreign-%03d", i), foreign)
		r.ids = madeUp
		h.addRepo(i, r, servers)
	}
	return h, h.sign()
}

// madeUp are the ids of repositories whose git data nobody should look for.
var madeUp = func() map[int]string {
	ids := make(map[int]string)
	for mark := range markLast + 1 {
		sum := sha256.Sum256(fmt.Append(nil, mark))
		ids[mark] = hex.EncodeToString(sum[:20])
	}
	return ids
}()

// addRepo makes the events of a repository.
func (h *hub) addRepo(i int, r *repo, servers []*gitServer) {
	listed, home := h.placement(i)
	wanted := r.story != foreign && r.story != never
	host := h.us
	if r.story == foreign {
		host = "elsewhere.example:7777"
	}
	relays, clones := nostr.Tag{"relays", "ws://" + host}, nostr.Tag{"clone", "http://" + host + "/" + r.path}
	for _, p := range listed {
		relays = append(relays, "ws://"+h.hosts[p])
	}
	clones = append(clones, servers[r.home].url(r.path))
	if r.story == split {
		clones = append(clones, servers[1-r.home].url(r.path))
	}
	announce := func(at nostr.Timestamp, wanted bool, peers []int, about string) {
		h.add(r.owner, kindRepo, at, wanted, peers, "", nostr.Tag{"d", r.name}, nostr.Tag{"name", r.name},
			nostr.Tag{"description", about}, relays, clones, nostr.Tag{"maintainers", r.owner.pub})
	}
	announce(h.ago(300), wanted, []int{home}, "current")
	if i%4 == 0 { // an older version on another relay must not win
		announce(h.ago(340), false, listed[len(listed)-1:], "outdated")
	}
	h.addStates(r, listed, wanted)
	pulls := 0
	for _, kind := range r.roots {
		h.addRoot(r, kind, pulls, listed, wanted)
		if kind == kindPR {
			pulls++
		}
	}
}

// addStates makes three states of which the newest counts, and one by somebody who has
// no say.
func (h *hub) addStates(r *repo, listed []int, wanted bool) {
	state := func(author *person, days, version int, wanted bool) *draft {
		if r.story == never {
			version = 3 // an older one could be served, if it came first
		}
		tags := nostr.Tags{{"d", r.name}}
		for _, t := range r.code.state(version) {
			tags = append(tags, t)
		}
		return h.add(author, kindState, h.ago(days), wanted, h.some(listed), "", tags...)
	}
	state(r.owner, 90, 1, false)
	state(r.owner, 60, 2, false)
	r.state = state(r.owner, 20, 3, wanted)
	if stranger := h.someone(); stranger != r.owner && h.rng.IntN(5) == 0 {
		state(stranger, 10, 1, false)
	}
}

// some returns one or all of the relays.
func (h *hub) some(listed []int) []int {
	if h.rng.IntN(2) == 0 {
		return listed
	}
	i := h.rng.IntN(len(listed))
	return listed[i : i+1]
}

// addRoot makes a patch, pull request or issue with what was said about it.
func (h *hub) addRoot(r *repo, kind, number int, listed []int, wanted bool) {
	author := h.someone()
	tags := nostr.Tags{
		{"a", fmt.Sprintf("%d:%s:%s", kindRepo, r.owner.pub, r.name)}, {"p", r.owner.pub}, {"subject", "a subject"},
	}
	if kind == kindPR {
		tip := r.ids[markPull+number]
		if r.story == forsook && number == 0 {
			tip, wanted = madeUp[markPull], false
		}
		tags = append(tags, nostr.Tag{"c", tip})
	}
	root := h.add(author, kind, h.ago(50), wanted, h.some(listed), "something about this repository", tags...)
	if wanted && h.rng.IntN(40) == 0 {
		// Deleted by its author: the deletion is on one relay, the event on another.
		h.retract(root, listed)
		r.taken = append(r.taken, pull{draft: root})
		return
	}
	switch {
	case wanted && kind == kindIssue:
		h.issues = append(h.issues, root)
	case wanted && kind == kindPR:
		r.pulls = append(r.pulls, pull{root, number + 1, r.ids[markPull+number]})
	}
	h.about(root, r.owner, kindOpen, 45, wanted, h.some(listed))
	for n := range 3 + h.rng.IntN(4) {
		c := h.about(root, h.someone(), kindComment, 40-n, wanted, h.some(listed))
		if wanted && h.rng.IntN(60) == 0 {
			h.retract(c, listed)
		}
	}
}

// about makes an event that tags another. The id of that is filled in when it is
// signed.
func (h *hub) about(root *draft, author *person, kind, days int, wanted bool, peers []int) *draft {
	content := ""
	if kind == kindComment {
		content = "a comment that says a few words about it, as comments do"
	}
	return h.add(author, kind, h.ago(days), wanted, peers, content, refersTo(root, "E"), refersTo(root, "e"))
}

// retract deletes what an author wrote.
func (h *hub) retract(d *draft, listed []int) {
	h.wanted[d] = false
	d.peers = listed[:1]
	h.add(d.author, 5, h.ago(5), true, listed[len(listed)-1:], "", refersTo(d, "e"))
	if len(listed) == 1 { // a relay would not have both
		d.peers = nil
		h.wanted[h.drafts[len(h.drafts)-1]] = false
		h.drafts[len(h.drafts)-1].peers = nil
	}
}

// refersTo is a tag whose value becomes the id of d.
func refersTo(d *draft, name string) nostr.Tag { return nostr.Tag{name, "", placeholder(d)} }

func placeholder(d *draft) string { return fmt.Sprintf("%p", d) }

// sign signs everything: first what nothing has to wait for, then what refers to
// it, and so on.
func (h *hub) sign() error {
	ids := make(map[string]string)
	left := h.drafts
	for len(left) > 0 {
		var ready, later []*draft
		for _, d := range left {
			if resolve(&d.event, ids) {
				ready = append(ready, d)
			} else {
				later = append(later, d)
			}
		}
		if err := inParallel(ready, func(d *draft) error { return d.event.Sign(d.author.secret) }); err != nil {
			return fmt.Errorf("signing: %w", err)
		}
		for _, d := range ready {
			ids[placeholder(d)] = d.event.ID
		}
		left = later
	}
	return nil
}

// resolve puts ids in the place of placeholders, as far as they are known.
func resolve(ev *nostr.Event, ids map[string]string) (done bool) {
	done = true
	for i, t := range ev.Tags {
		if len(t) != 3 || t[1] != "" {
			continue
		}
		if id, ok := ids[t[2]]; ok {
			ev.Tags[i] = nostr.Tag{t[0], id}
		} else {
			done = false
		}
	}
	return done
}

// inParallel calls f for all items on all processors and returns what went wrong.
func inParallel[T any](items []T, f func(T) error) error {
	var g errgroup.Group
	g.SetLimit(runtime.GOMAXPROCS(0))
	for _, item := range items {
		g.Go(func() error { return f(item) })
	}
	return g.Wait()
}

// of returns the events of one relay.
func (h *hub) of(peer int) (events []*nostr.Event) {
	for _, d := range h.drafts {
		for _, p := range d.peers {
			if p == peer {
				events = append(events, &d.event)
			}
		}
	}
	return events
}

// served returns the repositories that we must serve in the end.
func (h *hub) served() (repos []*repo) {
	for _, r := range h.repos {
		if r.story != never {
			repos = append(repos, r)
		}
	}
	return repos
}

// expected returns the ids that our relay must have, and no others.
func (h *hub) expected() map[string]bool {
	out := make(map[string]bool)
	for d, wanted := range h.wanted {
		if wanted {
			out[d.event.ID] = true
		}
	}
	return out
}

// describe prints the first few of some events.
func (h *hub) describe(what string, ids []string) {
	for i, id := range ids {
		if i == 10 {
			fmt.Printf("  and %d more\n", len(ids)-i)
			return
		}
		for _, d := range h.drafts {
			if d.event.ID == id {
				fmt.Printf("  %s: kind %d on %v: %s\n", what, d.event.Kind, d.peers, d.event.Tags)
			}
		}
	}
}
