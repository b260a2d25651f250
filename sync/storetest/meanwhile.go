package storetest

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync/atomic"
	"time"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/eventtest"
	relaysync "github.com/graspsync/graspsync/sync"
)

// patience is the maximum time for about 20 calls during an iteration, each of which reads at most
// a thousand events.
const patience = 30 * time.Second

// checkMeanwhile checks that a Store can be called during an iteration, and that events stored the
// whole time are yielded once.
func checkMeanwhile(ctx context.Context, store relaysync.Store) error {
	return meanwhile(ctx, store, patience)
}

func meanwhile(ctx context.Context, store relaysync.Store, patience time.Duration) error {
	s, g := subject{store, ctx}, newGen(33)
	events := make([]*nostr.Event, 700)
	for i := range events {
		events[i] = g.event(g.key(), 1, start+nostr.Timestamp(i/3))
	}
	if err := s.fill(events); err != nil {
		return err
	}
	r := &reader{subject: s, g: g, events: events}
	r.doing.Store(&[2]string{"reading", "nothing"})
	done := make(chan error, 1)
	go func() { done <- r.run() }()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	select {
	case err := <-done:
		return err
	case <-deadline.C: // its goroutine leaks, because nothing can stop it
		doing := *r.doing.Load()
		return fmt.Errorf("%s, called while %s is read, does not return: is a lock held while that yields?", doing[0], doing[1])
	}
}

// reader reads a Store and calls its methods during the iteration.
type reader struct {
	subject
	g      *gen
	events []*nostr.Event
	doing  atomic.Pointer[[2]string] // last method called, and the iterator that is read
}

func (r *reader) run() error {
	if err := read(r, "Stamps", r.Keys, func(s graspsync.EventKey) graspsync.EventID { return s.ID }); err != nil {
		return err
	}
	return read(r, "Events", r.Events, func(e graspsync.Event) graspsync.EventID { return e.ID })
}

func read[T any](
	r *reader, name string, all func(context.Context, nostr.Filter) iter.Seq2[T, error], id func(T) graspsync.EventID,
) error {
	seen := make(map[graspsync.EventID]int)
	n := 0
	for it, err := range all(r.ctx, nostr.Filter{Kinds: []int{1}}) {
		if err != nil {
			return fmt.Errorf("%s, while the Store is called: %w", name, err)
		}
		seen[id(it)]++
		if n++; n == 1 || n == len(r.events)/2 {
			if err := r.call(name); err != nil {
				return fmt.Errorf("while %s is read: %w", name, err)
			}
		}
	}
	for _, e := range r.events {
		if seen[idOf(e)] != 1 {
			return fmt.Errorf("%s gave %s %d times, while others came and went", name, describe(e), seen[idOf(e)])
		}
	}
	return nil
}

func (r *reader) call(reading string) error {
	come := r.g.event(r.g.key(), kindIssue, start+5)
	for _, c := range []struct {
		name string
		do   func() error
	}{
		{"Save", func() error { return r.save(come, stored) }},
		{"Has", func() error {
			_, err := r.Has(r.ctx, []graspsync.EventID{idOf(come)})
			return err
		}},
		{"Deleted", func() error { return r.deleted(come, false) }},
		{"Stamps", func() error {
			_, err := r.stamps(nostr.Filter{IDs: []string{come.ID}})
			return err
		}},
		{"Events", func() error { return r.finds(nostr.Filter{Authors: []string{come.PubKey}}, []*nostr.Event{come}) }},
		{"Remove", func() error {
			if err := r.Remove(r.ctx, eventtest.Of(come)); !errors.Is(err, relaysync.ErrCannotRemove) {
				return err
			}
			return nil
		}},
	} {
		r.doing.Store(&[2]string{c.name, reading})
		if err := c.do(); err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
	}
	return nil
}
