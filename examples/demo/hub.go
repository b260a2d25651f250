package main

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"

	"github.com/nbd-wtf/go-nostr"
	"github.com/nbd-wtf/go-nostr/nip19"
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
}

// newHub makes up a hub. Times lie in the past year.
func newHub(us string, hosts []string) *hub {
	h := &hub{
		rng: rand.New(rand.NewPCG(34, 2026)), us: us, hosts: hosts,
		now: nostr.Now(), wanted: make(map[*draft]bool),
	}
	for i := range people {
		h.people = append(h.people, newPerson(i))
	}
	for i := range ourRepos {
		h.addRepo(i, true)
	}
	for i := range foreignRepos {
		h.addRepo(i, false)
	}
	h.sign()
	return h
}

func (h *hub) someone() *person { return &h.people[h.rng.IntN(len(h.people))] }

// ago returns a time so many days back, give or take.
func (h *hub) ago(days int) nostr.Timestamp {
	return h.now - nostr.Timestamp(days*86_400+h.rng.IntN(80_000)+1_000)
}

// add makes an event that goes to the given relays. wanted says whether our relay
// must have it in the end.
func (h *hub) add(author *person, kind int, at nostr.Timestamp, wanted bool, peers []int, content string, tags ...nostr.Tag) *draft {
	d := &draft{author: author, peers: peers}
	d.event = nostr.Event{Kind: kind, CreatedAt: at, Content: content, Tags: tags}
	h.drafts = append(h.drafts, d)
	h.wanted[d] = wanted
	return d
}

// placement says which relays a repository lists and on which one its
// announcement is. Only the first relay is known from the start: the others are
// found one through the other.
func (h *hub) placement(i int) (listed []int, home int) {
	switch n := i % 10; {
	case n < 4:
		return []int{alpha, bravo}, alpha
	case n < 7:
		return []int{bravo, charlie}, bravo
	case n < 9:
		return []int{charlie, delta}, charlie
	}
	return []int{delta}, delta
}

// addRepo makes a repository with all its events.
func (h *hub) addRepo(i int, ours bool) {
	owner := h.someone()
	listed, home := h.placement(i)
	name := fmt.Sprintf("repo-%03d", i)
	hosts := []string{h.us}
	if !ours {
		name, hosts[0] = fmt.Sprintf("foreign-%03d", i), "elsewhere.example:7777"
	}
	for _, p := range listed {
		hosts = append(hosts, h.hosts[p])
	}
	announce := func(at nostr.Timestamp, wanted bool, peers []int, about string) {
		relays, clones := nostr.Tag{"relays"}, nostr.Tag{"clone"}
		for _, host := range hosts {
			relays = append(relays, "ws://"+host)
			clones = append(clones, "http://"+host+"/"+owner.npub+"/"+name+".git")
		}
		h.add(owner, kindRepo, at, wanted, peers, "", nostr.Tag{"d", name}, nostr.Tag{"name", name},
			nostr.Tag{"description", about}, relays, clones, nostr.Tag{"maintainers", owner.pub})
	}
	announce(h.ago(300), ours, []int{home}, "current")
	if i%4 == 0 { // an older version on another relay must not win
		announce(h.ago(340), false, listed[len(listed)-1:], "outdated")
	}
	address := fmt.Sprintf("%d:%s:%s", kindRepo, owner.pub, name)
	h.addStates(owner, name, listed, ours)
	for range rootsPerRepo {
		h.addRoot(owner, address, listed, ours)
	}
}

// addStates makes three states of which the newest counts, and one by somebody
// who has no say.
func (h *hub) addStates(owner *person, name string, listed []int, ours bool) {
	state := func(author *person, at nostr.Timestamp, wanted bool) {
		commit := sha256.Sum256(fmt.Appendf(nil, "%s %d", name, at))
		h.add(author, kindState, at, wanted, h.some(listed), "", nostr.Tag{"d", name},
			nostr.Tag{"HEAD", "ref: refs/heads/main"},
			nostr.Tag{"refs/heads/main", hex.EncodeToString(commit[:20])})
	}
	state(owner, h.ago(90), false)
	state(owner, h.ago(60), false)
	state(owner, h.ago(20), ours)
	if stranger := h.someone(); stranger != owner && h.rng.IntN(5) == 0 {
		state(stranger, h.ago(10), false)
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
func (h *hub) addRoot(owner *person, address string, listed []int, ours bool) {
	kind := []int{kindIssue, kindIssue, kindPatch, kindPR}[h.rng.IntN(4)]
	author := h.someone()
	root := h.add(author, kind, h.ago(50), ours, h.some(listed), "something about this repository",
		nostr.Tag{"a", address}, nostr.Tag{"p", owner.pub}, nostr.Tag{"subject", "a subject"})
	if ours && h.rng.IntN(40) == 0 {
		// Deleted by its author: the deletion is on one relay, the event on another.
		h.retract(root, listed)
		return
	}
	if ours && kind == kindIssue {
		h.issues = append(h.issues, root)
	}
	h.about(root, owner, kindOpen, 45, ours, h.some(listed))
	for n := range 3 + h.rng.IntN(4) {
		c := h.about(root, h.someone(), kindComment, 40-n, ours, h.some(listed))
		if ours && h.rng.IntN(60) == 0 {
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
func (h *hub) sign() {
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
		inParallel(ready, func(d *draft) {
			if err := d.event.Sign(d.author.secret); err != nil {
				panic(err)
			}
		})
		for _, d := range ready {
			ids[placeholder(d)] = d.event.ID
		}
		left = later
	}
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

func inParallel[T any](items []T, f func(T)) {
	var wg sync.WaitGroup
	n := runtime.GOMAXPROCS(0)
	for w := range n {
		wg.Go(func() {
			for i := w; i < len(items); i += n {
				f(items[i])
			}
		})
	}
	wg.Wait()
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
