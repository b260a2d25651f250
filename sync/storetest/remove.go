package storetest

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/eventtest"
	relaysync "github.com/graspsync/graspsync/sync"
)

// checkRemove removes events. If the Store returns ErrCannotRemove, every event must stay.
func checkRemove(s *subject) error {
	a, d := s.key(), nostr.Tag{"d", "repo"}
	before, ann := s.event(a, kindAnnouncement, start, d), s.event(a, kindAnnouncement, start+1, d)
	issue, other := s.event(a, kindIssue, start), s.event(a, kindAnnouncement, start, nostr.Tag{"d", "other"})
	all := []*nostr.Event{before, ann, issue, other}
	if err := s.saveAll(all[1:], graspsync.Stored); err != nil {
		return err
	}
	if errors.Is(s.Remove(s.ctx, eventtest.Of(ann)), relaysync.ErrCannotRemove) {
		return s.stays(all[1:])
	}
	for range 2 { // the second time they are missing
		for _, e := range []*nostr.Event{before, ann, issue} {
			if err := s.Remove(s.ctx, eventtest.Of(e)); err != nil {
				return fmt.Errorf("Remove of %s: %w", describe(e), err)
			}
		}
	}
	if err := s.holds(all, []*nostr.Event{other}); err != nil {
		return fmt.Errorf("after Remove: %w", err)
	}
	for _, e := range all[:3] { // removed events can be saved again
		if err := s.save(e, graspsync.Stored); err != nil {
			return fmt.Errorf("after Remove: %w", err)
		}
	}
	if err := s.Remove(s.ctx, eventtest.Of(before)); err != nil {
		return fmt.Errorf("Remove of a version that is replaced: %w", err)
	}
	if err := s.holds(all, all[1:]); err != nil {
		return fmt.Errorf("after Remove of a version that is replaced: %w", err)
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
	at := address(kindAnnouncement, a, "repo")
	byID, again := s.deletion(a, start+9, issue.ID), s.deletion(a, start+10, issue.ID)
	early, late := s.deletion(a, start+2, at), s.deletion(a, start+4, at)
	vanish := s.vanish(b, start+1)
	here := []*nostr.Event{issue, ann, theirs, byID, again, early, late, vanish}
	if err := s.saveAll(here, stored); err != nil {
		return err
	}
	for left := 3; left < len(here); left++ {
		e := here[left]
		err := s.Remove(s.ctx, eventtest.Of(e))
		if errors.Is(err, relaysync.ErrCannotRemove) {
			return s.holds(here, here[3:])
		}
		if err != nil {
			return fmt.Errorf("Remove of %s: %w", describe(e), err)
		}
		all := slices.Concat(here[:3], here[left+1:]) // the remaining ones stay in force
		if err := s.holds(all, all[3:]); err != nil {
			return fmt.Errorf("after Remove of %s: %w", describe(e), err)
		}
	}
	return s.saveAll(here[:3], stored)
}
