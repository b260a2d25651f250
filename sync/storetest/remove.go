package storetest

import (
	"context"
	"errors"
	"fmt"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync/internal/eventtest"
)

// checkRemove removes events and saves them again. If the Store returns ErrCannotRemove, every
// event must stay.
func checkRemove(s *subject) error {
	a, d := s.key(), nostr.Tag{"d", "repo"}
	before, ann := s.event(a, kindAnnouncement, start, d), s.event(a, kindAnnouncement, start+1, d)
	issue, other := s.event(a, kindIssue, start), s.event(a, kindAnnouncement, start, nostr.Tag{"d", "other"})
	if err := s.save(ann, issue, other); err != nil {
		return err
	}
	for range 2 { // the second time they are missing
		for _, e := range []*nostr.Event{before, ann, issue} {
			if err := s.remove(e); err != nil {
				return err
			}
		}
	}
	if err := s.holds(before); err != nil {
		return fmt.Errorf("after Remove: %w", err)
	}
	if err := errors.Join(s.save(before, ann, issue), s.remove(before), s.holds()); err != nil {
		return fmt.Errorf("after Remove: %w", err)
	}
	ended, cancel := context.WithCancel(s.ctx)
	cancel()
	if s.Remove(ended, eventtest.Of(ann)) == nil {
		return errors.New("Remove with a context that has ended: no error")
	}
	return nil
}

// checkRemoveDeletion removes deletions and a request to vanish. Events that no other deletion
// covers can be saved again.
func checkRemoveDeletion(s *subject) error {
	a, b, d := s.key(), s.key(), nostr.Tag{"d", "repo"}
	issue, ann, theirs := s.event(a, kindIssue, start), s.event(a, kindAnnouncement, start+3, d), s.event(b, kindIssue, start)
	repo := address(kindAnnouncement, a, "repo")
	state := func(n nostr.Timestamp) *nostr.Event { return s.event(a, 30618, start+n, d) }
	before, version, later := state(0), state(1), state(2)
	deletions := []*nostr.Event{
		s.deletion(a, start+9, issue.ID), s.deletion(a, start+10, issue.ID), s.deletion(a, start+2, repo),
		s.deletion(a, start+4, repo), s.vanish(b, start+1, allRelays), s.deletion(a, start+9, version.ID),
	}
	if err := s.save(append([]*nostr.Event{issue, ann, theirs, version}, deletions...)...); err != nil {
		return err
	}
	for _, e := range append([]*nostr.Event{version}, deletions...) {
		if err := s.remove(e); err != nil {
			return err
		}
		if err := s.holds(before, later); err != nil { // the remaining deletions stay in force
			return fmt.Errorf("after Remove of %s: %w", describe(e), err)
		}
	}
	return s.save(issue, ann, theirs, before, version, later)
}
