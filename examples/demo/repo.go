package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/nbd-wtf/go-nostr"
)

// repo is a repository that lists us.
type repo struct {
	*code
	owner *person
	name  string
	roots []int  // kinds
	home  int    // the git server that has most of it
	state *draft // the newest
	pulls []pull // that we must have
	taken []pull // back by their authors
}

// pull is a pull request, the n-th of its repository from 1.
type pull struct {
	*draft
	number int
	tip    string
}

// ref is where its commit is to be found.
func (p pull) ref() string { return "refs/nostr/" + p.event.ID }

// newRepo says what a repository is like.
func (h *hub) newRepo(i int, name string, s story) *repo {
	r := &repo{owner: h.someone(), name: name, home: i % gitServers}
	pulls := 0
	for range rootsPerRepo {
		kind := []int{kindIssue, kindIssue, kindPatch, kindPR}[h.rng.IntN(4)]
		if s == forsook && len(r.roots) == 0 {
			kind = kindPR
		}
		if kind == kindPR {
			pulls++
		}
		r.roots = append(r.roots, kind)
	}
	r.code = newCode(r.owner.npub+"/"+name+".git", s, pulls)
	return r
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

// refs returns what the newest state and the pull requests of a repository say.
func (r *repo) refs() map[string]string {
	refs := make(map[string]string)
	for _, t := range r.state.event.Tags {
		if strings.HasPrefix(t[0], "refs/") {
			refs[t[0]] = t[1]
		}
	}
	for _, p := range r.pulls {
		refs[p.ref()] = p.tip
	}
	return refs
}

// check holds the refs of a clone against what must be there.
func (r *repo) check(got map[string]string) error {
	want := r.refs()
	var errs []error
	for ref, id := range want {
		if got[ref] != id {
			errs = append(errs, fmt.Errorf("%s: %s is %q, want %s", r.name, ref, got[ref], id))
		}
	}
	for _, p := range r.taken {
		delete(got, p.ref()) // it goes after a while, if the data was here before the deletion
	}
	for ref := range got {
		if want[ref] == "" {
			errs = append(errs, fmt.Errorf("%s: %s should not be there", r.name, ref))
		}
	}
	return errors.Join(errs...)
}
