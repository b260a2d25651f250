package storetest

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync/internal/eventtest"
	relaysync "github.com/graspsync/graspsync/sync"
)

func checkDeletionByID(s *subject) error {
	a, b := s.key(), s.key()
	one, two, three := s.event(a, 1, start), s.event(a, kindIssue, start), s.event(a, 1, start+100)
	ann := s.event(a, kindAnnouncement, start, nostr.Tag{"d", "repo"})
	theirs, comment, note := s.event(b, 1, start), s.event(a, kindComment, start, nostr.Tag{"K", "1621"}), s.event(a, 1985, start)
	return s.play(
		step{one, stored}, step{theirs, stored}, step{ann, stored}, step{comment, stored}, step{note, stored},
		step{s.deletion(a, start+9, comment.ID, note.ID), stored}, step{comment, deleted}, step{note, deleted},
		step{s.deletion(b, start+9, one.ID, two.ID), stored}, // another author
		step{one, duplicate}, step{two, stored},
		step{s.deletion(a, start+9, one.ID, theirs.ID, ann.ID), stored},
		step{one, deleted}, step{theirs, duplicate}, step{ann, deleted}, step{two, duplicate},
		step{s.deletion(a, start+1, three.ID), stored}, // an id is deleted at any time
		step{three, deleted}, step{three, deleted},
		step{s.deletion(a, start, two.ID, two.ID, "nonsense", strings.ToUpper(theirs.ID)), stored},
		step{two, deleted})
}

func checkDeletionByAddress(s *subject) error {
	var steps []step
	for i, id := range []string{"repo", "a:b", ":", "repo-cli", strings.Repeat("long", 40)} {
		a, d := s.key(), nostr.Tag{"d", id}
		addr := address(kindAnnouncement, a, id)
		v := make([]*nostr.Event, 6)
		for n := range v {
			v[n] = s.event(a, kindAnnouncement, start+nostr.Timestamp(n), d)
		}
		other := s.event(a, kindAnnouncement, start, nostr.Tag{"d", id + "x"})
		state := s.event(a, 30618, start, d)
		steps = append(steps, step{v[2], stored}, step{other, stored}, step{state, stored},
			step{s.deletion(s.key(), start+9, addr), stored}, // another author
			step{s.deletion(a, start+1, addr), stored},       // older than the stored version
			step{v[1], deleted}, step{v[2], duplicate},       //
			step{s.deletion(a, start+2, addr), stored}, // as old as the stored version
			step{v[2], deleted}, step{v[0], deleted},   //
			step{v[4], stored}, step{s.deletion(a, start, addr), stored}, // an older deletion changes nothing
			step{v[5], stored}, step{v[4], superseded})
		if i == 0 { // before any version is stored
			c := s.key()
			steps = append(steps,
				step{s.deletion(c, start+1, address(10002, c, ""), address(kindAnnouncement, c, "")), stored},
				step{s.event(c, 10002, start+1), deleted}, step{s.event(c, 10002, start+2), stored},
				step{s.event(c, kindAnnouncement, start, nostr.Tag{"d"}), deleted},
				step{s.event(c, 1, start), stored})
		}
	}
	return s.play(steps...)
}

func checkDeletionOfDeletion(s *subject) error {
	a := s.key()
	target := s.event(a, 1, start)
	first := s.deletion(a, start, target.ID)
	second := s.deletion(a, start, first.ID, address(5, a, ""))
	early := s.deletion(a, start, second.ID)
	return s.play(step{early, stored}, step{target, stored}, step{first, stored},
		step{second, stored}, step{target, deleted}, step{first, duplicate}, step{second, duplicate})
}

// scene returns events of one author, and of another author who interferes.
func scene(g *gen, versionsByID bool) []*nostr.Event {
	a, b := g.key(), g.key()
	var events []*nostr.Event
	at := func() nostr.Timestamp { return start + nostr.Timestamp(g.IntN(6)) }
	for range 3 {
		events = append(events, g.event(a, 1, at()), g.event(b, kindIssue, at()))
	}
	regular := len(events)
	for range 5 {
		events = append(events, g.event(a, kindAnnouncement, at(), nostr.Tag{"d", "repo"}),
			g.event(a, 10002, at()))
	}
	named := events[:regular]
	if versionsByID {
		named = events
	}
	for range 4 {
		author, owner := a, a
		if g.IntN(3) == 0 {
			author = b
		}
		switch g.IntN(3) {
		case 0:
			events = append(events, g.deletion(author, at(), address(kindAnnouncement, owner, "repo")))
		case 1:
			events = append(events, g.deletion(author, at(), address(10002, owner, ""), named[g.IntN(len(named))].ID))
		case 2:
			events = append(events, g.deletion(author, at(), named[g.IntN(len(named))].ID))
		}
	}
	return events
}

func shuffled(g *gen, events []*nostr.Event) []*nostr.Event {
	all := append([]*nostr.Event{}, events...)
	for range 5 { // duplicates
		all = append(all, events[g.IntN(len(events))])
	}
	g.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all
}

// checkOrder checks that the content does not depend on the order of saves, and that older versions
// and deleted events stay away when they are delivered again. Each round has new authors, so one
// Store is enough.
func checkOrder(s *subject) error {
	for round := range uint64(60) {
		g := newGen(100 + round)
		events := scene(g, round%2 == 0)
		for range 1 + round%3 {
			if err := s.deliver(g, shuffled(g, events)); err != nil {
				return err
			}
		}
		if err := s.holds(events, model(events)); err != nil {
			return fmt.Errorf("round %d: %w", round, err)
		}
	}
	return nil
}

// checkDeletedVersion deletes the newest version of an address by its id. Older versions must be
// deleted too, in any order of arrival, so that no relay can replace it by an old version. Newer
// versions are stored.
func checkDeletedVersion(s *subject) error {
	for _, kind := range []int{0, 10002, kindAnnouncement, 30618} {
		for _, d := range []nostr.Tags{{{"d", "repo"}}, {}, {{"d", strings.Repeat("long", 40)}}} {
			for _, order := range [][]int{{0, 1, 3}, {1, 3, 0}, {1, 0, 3}, {0, 3, 1}, {3, 1, 0}, {3, 0, 1}} {
				a := s.key()
				v := []*nostr.Event{s.event(a, kind, start, d...), s.event(a, kind, start+1, d...), s.event(a, kind, start+2, d...)}
				other := s.event(a, 30001, start, d...)
				all := append(v, s.deletion(a, start+1, v[1].ID), other)
				for _, i := range append([]int{4}, order...) {
					if err := s.deliver(s.gen, all[i:i+1]); err != nil {
						return err
					}
				}
				here := append(slices.Clone(v[:2]), all[3:]...)
				if err := s.holds(here, model(here)); err != nil {
					return fmt.Errorf("kind %d, in the order %v: %w", kind, order, err)
				}
				if err := s.saveAll(all, deleted, deleted, stored, duplicate, duplicate); err != nil {
					return fmt.Errorf("again, kind %d after the order %v: %w", kind, order, err)
				}
				if err := s.holds(all, model(all)); err != nil {
					return fmt.Errorf("a newer version of kind %d: %w", kind, err)
				}
			}
		}
	}
	ties := s.tie(3, s.key(), kindAnnouncement, nostr.Tag{"d", "repo"})
	return s.play(step{ties[2], stored}, step{ties[1], stored}, step{s.deletion(ties[1].PubKey, start, ties[1].ID), stored},
		step{ties[2], deleted}, step{ties[1], deleted}, step{ties[0], stored})
}

// checkDeletedVersionIsKnown checks that Deleted is true for versions before a deleted version,
// because purgatory relies on it. After the deletion is removed, they can be stored again.
func checkDeletedVersionIsKnown(s *subject) error {
	a, d := s.key(), nostr.Tag{"d", "repo"}
	v := []*nostr.Event{s.event(a, 30618, start, d), s.event(a, 30618, start+1, d), s.event(a, 30618, start+2, d)}
	deletion := s.deletion(a, start+9, v[1].ID)
	if err := s.saveAll([]*nostr.Event{v[1], deletion}, stored); err != nil {
		return err
	}
	err := s.Remove(s.ctx, eventtest.Of(v[1]))
	if errors.Is(err, relaysync.ErrCannotRemove) { // another process owns the store
		return nil
	}
	if err = errors.Join(err, s.deleted(v[0], true), s.deleted(v[1], true), s.deleted(v[2], false)); err != nil {
		return err
	}
	if err := s.Remove(s.ctx, eventtest.Of(deletion)); err != nil {
		return fmt.Errorf("Remove of a deletion: %w", err)
	}
	return s.saveAll(v, stored)
}
