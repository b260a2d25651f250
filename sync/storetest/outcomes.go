package storetest

import (
	"context"
	"errors"
	"fmt"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
	relaysync "github.com/graspsync/graspsync/sync"
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
func play(ctx context.Context, store relaysync.Store, steps ...step) error {
	s := subject{store, ctx}
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

func checkRefused(ctx context.Context, store relaysync.Store) error {
	g := newGen(2)
	return play(ctx, store,
		step{g.event(g.key(), 20000, start), refused},
		step{g.event(g.key(), 29999, start, nostr.Tag{"d", "x"}), refused},
		step{g.event(g.key(), 19999, start), stored},
		step{g.event(g.key(), 30000, start), stored})
}

func checkBatch(ctx context.Context, store relaysync.Store) error {
	s, g := subject{store, ctx}, newGen(3)
	if got, err := s.Save(ctx, nil); err != nil || len(got) != 0 {
		return fmt.Errorf("Save of no events: %d outcomes, %v", len(got), err)
	}
	a, d := g.key(), nostr.Tag{"d", "repo"}
	one := g.event(a, 1, start)
	old, mid := g.event(a, kindAnnouncement, start, d), g.event(a, kindAnnouncement, start+1, d)
	late := g.event(a, kindAnnouncement, start+2, d)
	batch := []*nostr.Event{one, mid, one, old, g.event(a, 20001, start), late, mid, late}
	err := s.saveAll(batch, stored, stored, duplicate, superseded, refused, stored, superseded, duplicate)
	if err != nil {
		return err
	}
	for _, none := range []graspsync.Event{{}, {Event: one}} {
		got, err := s.Save(ctx, []graspsync.Incoming{{Event: none}})
		if err != nil || len(got) != 1 || got[0].Result != graspsync.Refused || !errors.Is(got[0].Err, graspsync.ErrEvent) {
			return fmt.Errorf("Save of what nobody has parsed: %v, %w", got, err)
		}
	}
	return s.holds(batch, []*nostr.Event{one, late})
}

func checkVersions(ctx context.Context, store relaysync.Store) error {
	g := newGen(4)
	var steps []step
	for _, kind := range []int{0, 3, 10002, 19999, 30000, kindAnnouncement, 30618, 39999} {
		a, d := g.key(), nostr.Tag{"d", "repo"}
		v1, v2 := g.event(a, kind, start, d), g.event(a, kind, start+1, d)
		v3 := g.event(a, kind, start+2, d)
		steps = append(steps, step{v2, stored}, step{v1, superseded}, step{v2, duplicate},
			step{v3, stored}, step{v2, superseded}, step{v1, superseded}, step{v3, duplicate},
			step{g.event(g.key(), kind, start, d), stored})
	}
	return play(ctx, store, steps...)
}

func checkTies(ctx context.Context, store relaysync.Store) error {
	g := newGen(5)
	var steps []step
	for _, kind := range []int{0, 10002, kindAnnouncement} {
		v := g.tie(3, g.key(), kind, nostr.Tag{"d", "repo"})
		steps = append(steps, step{v[1], stored}, step{v[2], superseded}, step{v[1], duplicate},
			step{v[0], stored}, step{v[1], superseded}, step{v[2], superseded})
	}
	return play(ctx, store, steps...)
}

// checkIdentifiers saves two versions for each of many similar identifiers.
func checkIdentifiers(ctx context.Context, store relaysync.Store) error {
	g := newGen(6)
	a := g.key()
	var steps, later []step
	for _, tags := range identifiers() {
		steps = append(steps, step{g.event(a, kindAnnouncement, start, tags...), stored})
		later = append(later, step{g.event(a, kindAnnouncement, start+1, tags...), stored})
	}
	// No d tag, a d tag without value, and an empty d tag are the same address.
	for _, tags := range []nostr.Tags{{{"d"}}, {{"d", ""}}, {{"d", "", "x"}, {"d", "y"}}} {
		later = append(later, step{g.event(a, kindAnnouncement, start, tags...), superseded})
	}
	return play(ctx, store, append(steps, later...)...)
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
