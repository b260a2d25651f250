// Package ration says which pull requests of strangers have a ref in a repository. It has
// no clock and no disk: what it is told is all that it knows.
package ration

import (
	"cmp"
	"slices"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
)

// Standing is what those say of a pull request who may.
type Standing uint8

// The standings.
const (
	Closed   Standing = iota // merged, closed, or its event is not here
	Open                     // nobody with a say has said anything
	Regarded                 // somebody with a say has
)

// Pull is a pull request that has a ref, or is to have one.
type Pull struct {
	ID       graspsync.EventID
	Author   graspsync.PubKey
	At       nostr.Timestamp // seconds, Unix time: when it was written
	Standing Standing
	Bytes    int64 // on the disk, that no branch, no tag and no other of them needs
}

// Limits are how many refs an author may have in a repository, how many all may, and how
// many bytes these may take up. All must be set.
type Limits struct {
	PerAuthor, All int
	Bytes          int64
}

// slack is the part of all refs, one of so many, that goes at once where there are too
// many: to choose takes reading all of them.
const slack = 16

// Over returns those that must have no ref, for the limits to hold. Of an author with too
// many it is the oldest, closed ones first. Of all it is one of whoever has the most, so
// that many events take nothing from who has few; and nothing that somebody with a say has
// regarded before anything else, since keys are free. The order of pulls does not matter.
func Over(pulls []Pull, l Limits) (over []graspsync.EventID) {
	s := newShares(pulls)
	for _, of := range s.by {
		for len(of.pulls) > l.PerAuthor {
			over = append(over, s.drop(of, 0))
		}
	}
	if s.count > l.All {
		for s.count > l.All-l.All/slack {
			over = append(over, s.drop(s.most(func(a *share) int64 { return int64(len(a.pulls)) }, older)))
		}
	}
	for _, of := range s.by { // what can't have room takes none from others
		for i := slices.IndexFunc(of.pulls, l.alone); i >= 0; i = slices.IndexFunc(of.pulls, l.alone) {
			over = append(over, s.drop(of, i))
		}
	}
	for s.bytes > l.Bytes {
		over = append(over, s.drop(s.most(func(a *share) int64 { return a.bytes }, larger)))
	}
	slices.SortFunc(over, graspsync.EventID.Compare)
	return over
}

// alone reports whether a pull request is beyond the limits, whatever else there is.
func (l Limits) alone(p Pull) bool { return p.Bytes > l.Bytes }

// share is what one author has.
type share struct {
	pulls []Pull // who goes first comes first
	bytes int64
}

type shares struct {
	by    []*share // in order of the authors
	count int
	bytes int64
}

func newShares(pulls []Pull) *shares {
	pulls = slices.Clone(pulls)
	slices.SortFunc(pulls, func(a, b Pull) int {
		return cmp.Or(a.Author.Compare(b.Author), older(a, b))
	})
	s := &shares{count: len(pulls)}
	for i, p := range pulls {
		if i == 0 || p.Author != pulls[i-1].Author {
			s.by = append(s.by, &share{})
		}
		of := s.by[len(s.by)-1]
		of.pulls = append(of.pulls, p)
		of.bytes += p.Bytes
		s.bytes += p.Bytes
	}
	return s
}

// older orders pull requests by who gives way first.
func older(a, b Pull) int {
	return cmp.Or(cmp.Compare(a.Standing, b.Standing), cmp.Compare(a.At, b.At), a.ID.Compare(b.ID))
}

// larger orders them by whose data goes first.
func larger(a, b Pull) int { return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), older(a, b)) }

// most finds the pull request that is the first in an order of those of whoever has the
// most. Regarded ones are found when there are no others of an author who has anything.
func (s *shares) most(has func(*share) int64, order func(a, b Pull) int) (of *share, at int) {
	for _, regarded := range []bool{false, true} {
		for _, a := range s.by {
			if has(a) == 0 {
				continue
			}
			i := -1
			for j, p := range a.pulls {
				if (p.Standing == Regarded) == regarded && (i < 0 || order(p, a.pulls[i]) < 0) {
					i = j
				}
			}
			if i >= 0 && (of == nil || has(a) > has(of) || has(a) == has(of) && order(a.pulls[i], of.pulls[at]) < 0) {
				of, at = a, i
			}
		}
		if of != nil {
			break
		}
	}
	return of, at
}

// drop takes one of an author's away.
func (s *shares) drop(of *share, i int) graspsync.EventID {
	p := of.pulls[i]
	of.pulls = slices.Delete(of.pulls, i, i+1)
	of.bytes -= p.Bytes
	s.count--
	s.bytes -= p.Bytes
	return p.ID
}
