package ration

import (
	"slices"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/nip34"
)

// The kinds by which something is said of a pull request: its status (NIP-34), comments
// (NIP-22), replies and labels (NIP-32).
const (
	kindReply, kindComment, kindLabel                          = 1, 1111, 1985
	kindStatusOpen, kindStatusApplied, kindClosed, kindAsDraft = 1630, 1631, 1632, 1633
)

// Said is what is said of pull requests by those who may: their authors, of their status
// only, and the members of their repository.
type Said struct {
	pulls   []*nip34.PullRequest
	members map[graspsync.PubKey]struct{}
	of      map[graspsync.EventID]*said
}

// said is what was said of one pull request.
type said struct {
	author           graspsync.PubKey
	status           graspsync.Stamp // the newest
	closed, regarded bool
}

// NewSaid has nothing said yet of pull requests of one repository.
func NewSaid(pulls []*nip34.PullRequest, members map[graspsync.PubKey]struct{}) *Said {
	s := &Said{pulls: pulls, members: members, of: make(map[graspsync.EventID]*said, len(pulls))}
	for _, pr := range pulls {
		s.of[pr.ID] = &said{author: pr.Author}
	}
	return s
}

// Filters match what is said of some of them.
func (s *Said) Filters(some []*nip34.PullRequest) (out []nostr.Filter) {
	statuses := []int{kindStatusOpen, kindStatusApplied, kindClosed, kindAsDraft}
	var ids, authors, members []string
	for _, pr := range some {
		ids, authors = append(ids, pr.ID.String()), append(authors, pr.Author.String())
	}
	for k := range s.members {
		members = append(members, k.String())
	}
	slices.Sort(authors)
	out = []nostr.Filter{
		{Kinds: statuses, Authors: slices.Compact(authors), Tags: nostr.TagMap{"e": ids}},
		{Kinds: append(slices.Clone(statuses), kindReply, kindLabel), Authors: members, Tags: nostr.TagMap{"e": ids}},
		{Kinds: []int{kindComment}, Authors: members, Tags: nostr.TagMap{"E": ids}},
	}
	return slices.DeleteFunc(out, func(f nostr.Filter) bool { return len(f.Authors) == 0 })
}

// Note takes in what an event says of pull requests.
func (s *Said) Note(ev graspsync.Event) {
	_, member := s.members[ev.PubKey]
	for _, tag := range ev.Tags {
		if len(tag) < 2 || tag[0] != "e" && tag[0] != "E" {
			continue
		}
		target, err := graspsync.ParseEventID(tag[1])
		of := s.of[target]
		if err != nil || of == nil || !member && ev.PubKey != of.author {
			continue
		}
		of.regarded = of.regarded || member && ev.PubKey != of.author
		v := ev.Stamp()
		switch ev.Kind {
		case kindStatusOpen, kindStatusApplied, kindClosed, kindAsDraft:
			if of.status == (graspsync.Stamp{}) || v.Newer(of.status) {
				of.status, of.closed = v, ev.Kind == kindStatusApplied || ev.Kind == kindClosed
			}
		}
	}
}

// Standings returns how they stand, as far as anything that counts is said of them. An update
// stands as its pull request does, if it has the same author.
func (s *Said) Standings() map[graspsync.EventID]Standing {
	out := make(map[graspsync.EventID]Standing)
	for _, pr := range s.pulls {
		of := s.of[pr.ID]
		if root := s.of[rootOf(pr)]; root != nil && root.author == pr.Author {
			of = root
		}
		switch {
		case of.closed:
			out[pr.ID] = Closed
		case of.regarded:
			out[pr.ID] = Regarded
		}
	}
	return out
}

// rootOf is the pull request that another one is an update of; zero if it is none.
func rootOf(pr *nip34.PullRequest) (root graspsync.EventID) {
	if pr.Event.Kind != graspsync.KindPullRequestUpdate {
		return root
	}
	if tag := pr.Event.Tags.Find("E"); len(tag) > 1 {
		root, _ = graspsync.ParseEventID(tag[1]) // zero if it is none
	}
	return root
}
