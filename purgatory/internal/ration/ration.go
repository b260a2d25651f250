// Package ration decides which pull requests of strangers have a ref in a repository. It has no
// clock and no disk.
package ration

import (
	"cmp"
	"slices"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
)

// Pull is a pull request that has a ref or asks for one. Its author has no say in the repository.
type Pull struct {
	ID     graspsync.EventID
	Author graspsync.PubKey // zero if the event is unknown
	At     nostr.Timestamp  // the date of the event
	Bytes  int64            // on the disk, which no branch, no tag and no other pull request needs
	New    bool             // it has no ref yet
	Merged bool             // a branch or a tag has its commit: its ref goes before all others
}

// Limits are the numbers of refs of an author and of all authors, and the bytes that all refs may
// take up. All must be set.
type Limits struct {
	PerAuthor, All int
	Bytes          int64
}

// Over returns the new pull requests that are refused, and the older ones whose refs are removed
// for the other new ones. An author with too many refs loses the oldest. If all have too many, the
// author with most loses the oldest. If each author has one, the new pull request is refused,
// because keys are free: nobody loses the only ref to the keys of somebody else. The order of pulls
// does not matter.
func Over(pulls []Pull, l Limits) (over []graspsync.EventID) {
	pulls = slices.Clone(pulls)
	slices.SortFunc(pulls, func(a, b Pull) int { return cmp.Or(cmp.Compare(a.At, b.At), a.ID.Compare(b.ID)) })
	var s shares
	for _, p := range pulls {
		if !p.New {
			s.add(p)
		}
	}
	full := false // whoever has no ref gets none
	for _, p := range pulls {
		if !p.New {
			continue
		}
		if full && s.count(func(o Pull) bool { return o.Author == p.Author }) == 0 {
			over = append(over, p.ID)
			continue
		}
		gone := s.admit(p, l)
		full = len(s.pulls) >= l.All && slices.Contains(gone, p.ID)
		over = append(over, gone...)
	}
	slices.SortFunc(over, graspsync.EventID.Compare)
	return over
}

// shares are the pull requests that have refs.
type shares struct {
	pulls []Pull // in order of age
	bytes int64
}

func (s *shares) add(p Pull) {
	i, _ := slices.BinarySearchFunc(s.pulls, p, func(a, b Pull) int { return cmp.Or(cmp.Compare(a.At, b.At), a.ID.Compare(b.ID)) })
	s.pulls = slices.Insert(s.pulls, i, p)
	s.bytes += p.Bytes
}

func (s *shares) remove(id graspsync.EventID) {
	i := slices.IndexFunc(s.pulls, func(p Pull) bool { return p.ID == id })
	s.bytes -= s.pulls[i].Bytes
	s.pulls = slices.Delete(s.pulls, i, i+1)
}

// admit adds a pull request and returns those that lose their refs for that, or only its own id if
// it is refused.
func (s *shares) admit(p Pull, l Limits) (gone []graspsync.EventID) {
	before := shares{s.pulls, s.bytes}
	s.pulls = slices.Clone(s.pulls)
	s.add(p)
	for {
		victim, full := s.victim(p, l)
		if !full {
			return gone
		}
		if victim == p.ID || victim == (graspsync.EventID{}) {
			*s = before
			return []graspsync.EventID{p.ID}
		}
		gone = append(gone, victim)
		s.remove(victim)
	}
}

// victim returns the pull request that loses its ref next for a new one. It is zero if none does
// though a limit is exceeded.
func (s *shares) victim(of Pull, l Limits) (id graspsync.EventID, full bool) {
	own := func(p Pull) bool { return p.Author == of.Author }
	all := func(Pull) bool { return true }
	switch {
	case s.count(own) > l.PerAuthor:
		if id, found := s.oldestMerged(own); found {
			return id, true
		}
		return s.oldest(own), true
	case len(s.pulls) > l.All:
		if id, found := s.oldestMerged(all); found {
			return id, true
		}
		return s.ofLargest(of.Author, all), true
	case of.Bytes > 0 && s.bytes > l.Bytes:
		return s.ofLargest(of.Author, func(p Pull) bool { return p.Bytes > 0 }), true
	}
	return id, false
}

func (s *shares) count(which func(Pull) bool) (n int) {
	for _, p := range s.pulls {
		if which(p) {
			n++
		}
	}
	return n
}

func (s *shares) oldest(which func(Pull) bool) graspsync.EventID {
	return s.pulls[slices.IndexFunc(s.pulls, which)].ID
}

func (s *shares) oldestMerged(which func(Pull) bool) (id graspsync.EventID, found bool) {
	merged := func(p Pull) bool { return p.Merged && which(p) }
	if i := slices.IndexFunc(s.pulls, merged); i >= 0 {
		return s.pulls[i].ID, true
	}
	return id, false
}

// ofLargest returns the oldest pull request of the author with most, which is the one that asks if
// no other has more. It is zero if nobody has more than one.
func (s *shares) ofLargest(asking graspsync.PubKey, which func(Pull) bool) (id graspsync.EventID) {
	of := make(map[graspsync.PubKey]int)
	for _, p := range s.pulls {
		if which(p) {
			of[p.Author]++
		}
	}
	largest := asking
	for _, p := range s.pulls { // of equals the one with the oldest
		if of[p.Author] > of[largest] {
			largest = p.Author
		}
	}
	if of[largest] < 2 {
		return id
	}
	return s.oldest(func(p Pull) bool { return p.Author == largest && which(p) })
}
