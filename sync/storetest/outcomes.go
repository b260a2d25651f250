package storetest

import (
	"errors"
	"fmt"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
)

const (
	stored     = graspsync.Stored
	duplicate  = graspsync.Duplicate
	superseded = graspsync.Superseded
	deleted    = graspsync.Deleted
	refused    = graspsync.Refused
)

type step struct {
	event *nostr.Event
	want  graspsync.Result
}

// play saves events one after the other and then compares the Store with the model.
func (s *subject) play(steps ...step) error {
	var all []*nostr.Event
	for i, st := range steps {
		if err := s.save(st.event, st.want); err != nil {
			return fmt.Errorf("step %d: %w", i, err)
		}
		all = append(all, st.event)
		if err := s.holds(all, model(all)); err != nil {
			return fmt.Errorf("after step %d: %w", i, err)
		}
	}
	return nil
}

func checkRefused(s *subject) error {
	return s.play(
		step{s.event(s.key(), 20000, start), refused},
		step{s.event(s.key(), 29999, start, nostr.Tag{"d", "x"}), refused},
		step{s.event(s.key(), 19999, start), stored},
		step{s.event(s.key(), 30000, start), stored})
}

func checkBatch(s *subject) error {
	if got, err := s.Save(s.ctx, nil); err != nil || len(got) != 0 {
		return fmt.Errorf("Save of no events: %d outcomes, %v", len(got), err)
	}
	a, d := s.key(), nostr.Tag{"d", "repo"}
	one := s.event(a, 1, start)
	old, mid := s.event(a, kindAnnouncement, start, d), s.event(a, kindAnnouncement, start+1, d)
	late := s.event(a, kindAnnouncement, start+2, d)
	batch := []*nostr.Event{one, mid, one, old, s.event(a, 20001, start), late, mid, late}
	err := s.saveAll(batch, stored, stored, duplicate, superseded, refused, stored, superseded, duplicate)
	if err != nil {
		return err
	}
	for _, none := range []graspsync.Event{{}, {Event: one}} {
		got, err := s.Save(s.ctx, []graspsync.Incoming{{Event: none}})
		if err != nil || len(got) != 1 || got[0].Result != graspsync.Refused || !errors.Is(got[0].Err, graspsync.ErrEvent) {
			return fmt.Errorf("Save of what nobody has parsed: %v, %w", got, err)
		}
	}
	return s.holds(batch, []*nostr.Event{one, late})
}

func checkVersions(s *subject) error {
	var steps []step
	for _, kind := range []int{0, 3, 10002, 19999, 30000, kindAnnouncement, 30618, 39999} {
		a, d := s.key(), nostr.Tag{"d", "repo"}
		v1, v2 := s.event(a, kind, start, d), s.event(a, kind, start+1, d)
		v3 := s.event(a, kind, start+2, d)
		steps = append(steps, step{v2, stored}, step{v1, superseded}, step{v2, duplicate},
			step{v3, stored}, step{v2, superseded}, step{v1, superseded}, step{v3, duplicate},
			step{s.event(s.key(), kind, start, d), stored})
	}
	return s.play(steps...)
}

func checkTies(s *subject) error {
	var steps []step
	for _, kind := range []int{0, 10002, kindAnnouncement} {
		v := s.tie(3, s.key(), kind, nostr.Tag{"d", "repo"})
		steps = append(steps, step{v[1], stored}, step{v[2], superseded}, step{v[1], duplicate},
			step{v[0], stored}, step{v[1], superseded}, step{v[2], superseded})
	}
	return s.play(steps...)
}

// checkIdentifiers saves two versions for each of many similar identifiers.
func checkIdentifiers(s *subject) error {
	a := s.key()
	var steps, later []step
	for _, tags := range identifiers() {
		steps = append(steps, step{s.event(a, kindAnnouncement, start, tags...), stored})
		later = append(later, step{s.event(a, kindAnnouncement, start+1, tags...), stored})
	}
	// No d tag, a d tag without value, and an empty d tag are the same address.
	for _, tags := range []nostr.Tags{{{"d"}}, {{"d", ""}}, {{"d", "", "x"}, {"d", "y"}}} {
		later = append(later, step{s.event(a, kindAnnouncement, start, tags...), superseded})
	}
	return s.play(append(steps, later...)...)
}

func identifiers() []nostr.Tags {
	long := make([]byte, 150)
	for i := range long {
		long[i] = 'a' + byte(i%26)
	}
	sets := []nostr.Tags{
		{}, // the empty identifier
		{{"d", "first"}, {"d", "second"}},
		{{"d", "second"}, {"d", "first"}},
		{{"e"}, {"d", "with"}, {"d"}},
	}
	for _, id := range []string{
		"repo", "Repo", "repo-cli", "repos", "repoe", "repo:1", "repo:", ":", "r", "%", "_", "%20", `\`,
		"ünï", "a b", string(long), string(long[:100]), string(long[:101]),
	} {
		sets = append(sets, nostr.Tags{{"d", id}})
	}
	return sets
}
