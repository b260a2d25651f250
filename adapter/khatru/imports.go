package khatruadapter

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
	eventstoreadapter "github.com/graspsync/graspsync/adapter/eventstore"
	relaysync "github.com/graspsync/graspsync/sync"
)

// Sentinels of the outcomes of synced events.
var (
	// ErrRejected is wrapped by the reason of an event that a RejectEvent hook of
	// the relay refused.
	ErrRejected = errors.New("rejected by the relay")
	// ErrHook is wrapped where a hook of the relay panicked.
	ErrHook = errors.New("hook of the relay failed")
)

// imports is the Store that synced events go into: what the relay would do with an
// event that a client publishes, without the client.
type imports struct {
	*eventstoreadapter.Store
	sync *Sync
}

var (
	_ relaysync.Store   = (*imports)(nil)
	_ relaysync.Remover = (*imports)(nil)
)

// Remove implements [relaysync.Remover]: the DeleteEvent hooks are told.
func (s *imports) Remove(ctx context.Context, e *nostr.Event) error {
	if err := s.Store.Remove(ctx, e); err != nil {
		return err
	}
	s.sync.removed.add(e)
	s.sync.followRemovals(synced(ctx))
	return nil
}

// Save implements [relaysync.Store].
func (s *imports) Save(ctx context.Context, events []graspsync.Incoming) ([]graspsync.Outcome, error) {
	ctx = synced(ctx)
	outcomes := make([]graspsync.Outcome, len(events))
	passed := make([]graspsync.Incoming, 0, len(events))
	places := make([]int, 0, len(events))
	for i, in := range events {
		if outcomes[i] = s.sync.acceptable(ctx, in); outcomes[i].Result == 0 {
			passed, places = append(passed, in), append(places, i)
		}
	}
	saved, err := s.sync.save(ctx, s.Store, passed)
	if err != nil {
		return nil, err
	}
	for i, o := range saved {
		outcomes[places[i]] = o
	}
	return outcomes, nil
}

// save stores events and does what follows for those that are new.
func (s *Sync) save(
	ctx context.Context, store relaysync.Store, events []graspsync.Incoming,
) (outcomes []graspsync.Outcome, err error) {
	removed := s.removed.count()
	outcomes, err = store.Save(ctx, events)
	s.followRemovals(ctx)
	if err != nil {
		s.unsure.add(events...)
		return nil, err
	}
	if len(outcomes) != len(events) {
		return nil, fmt.Errorf("%d outcomes of %d events", len(outcomes), len(events))
	}
	for i, in := range events {
		o := &outcomes[i]
		if o.Result == graspsync.Failed {
			s.unsure.add(in)
			continue
		}
		if in.Event == nil {
			continue
		}
		if tried := s.unsure.take(in.Event.ID); tried && o.Result == graspsync.Duplicate {
			o.Result = graspsync.Stored // by the attempt that failed, which nothing followed
		}
		switch o.Result {
		case graspsync.Stored:
			s.imported(ctx, in.Event)
			if s.removed.count() != removed { // maybe this one, before all hooks had it
				s.undo(ctx, in.Event)
			}
		case graspsync.Duplicate:
			s.expiry.track(in.Event) // an earlier process may have ended before that
		}
	}
	return outcomes, nil
}

// maxUnsure is how many ids of events are remembered whose saving failed.
const maxUnsure = 10_000

// unsure remembers events that may be stored although that failed, the latest of them.
type unsure struct {
	mu sync.Mutex
	// guarded by mu
	ids   map[string]int // places in order
	order []string       // a ring
	next  int            // place in it
}

func (u *unsure) add(events ...graspsync.Incoming) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, in := range events {
		if in.Event == nil {
			continue
		}
		id := in.Event.ID
		if _, known := u.ids[id]; known {
			continue
		}
		if u.ids == nil {
			u.ids = make(map[string]int)
		}
		if len(u.order) < maxUnsure {
			u.ids[id] = len(u.order)
			u.order = append(u.order, id)
			continue
		}
		if old := u.order[u.next]; u.ids[old] == u.next {
			delete(u.ids, old)
		}
		u.ids[id], u.order[u.next] = u.next, id
		u.next = (u.next + 1) % maxUnsure
	}
}

// take forgets an id and reports whether it was remembered.
func (u *unsure) take(id string) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	_, known := u.ids[id]
	delete(u.ids, id)
	return known
}

// acceptable asks the relay's hooks about an event that is about to be stored. The zero
// Outcome means that they let it pass.
func (s *Sync) acceptable(ctx context.Context, in graspsync.Incoming) (outcome graspsync.Outcome) {
	if in.Event == nil {
		return outcome // the store knows what to say
	}
	if !s.holding { // else they were asked before the policy was
		if outcome = s.admit(ctx, in); outcome.Result != 0 {
			return outcome
		}
	}
	if err := s.Room(in.Event); err != nil {
		return graspsync.Outcome{Result: graspsync.Failed, Err: err}
	}
	var msg string
	var err error
	if perr := protect(func() { msg, err = s.undeletable(ctx, in.Event) }); perr != nil {
		err = fmt.Errorf("%w: OverwriteDeletionOutcome: %w", ErrHook, perr)
	}
	switch {
	case err != nil:
		return graspsync.Outcome{Result: graspsync.Failed, Err: err}
	case msg != "":
		return graspsync.Outcome{Result: graspsync.Refused, Err: fmt.Errorf("%w: %.300q", ErrRejected, msg)}
	}
	return outcome
}

// admit asks the RejectEvent hooks. The zero Outcome means that they let it pass. What a
// client was allowed to submit needs no authentication when it is released.
func (s *Sync) admit(ctx context.Context, in graspsync.Incoming) (outcome graspsync.Outcome) {
	e := in.Event
	err := protect(func() {
		for _, hook := range s.relay.RejectEvent {
			reject, msg := hook(ctx, e)
			if !reject || strings.HasPrefix(msg, "rate-limited:") ||
				(in.Source.Kind == graspsync.Direct && strings.HasPrefix(msg, "auth-required:")) {
				continue
			}
			if !s.told.Swap(true) {
				s.log.Warn("a RejectEvent hook refuses what comes by sync; khatruadapter.IsSynced tells it", "reason", msg)
			}
			outcome = graspsync.Outcome{Result: graspsync.Refused, Err: fmt.Errorf("%w: %.300q", ErrRejected, msg)}
			if strings.HasPrefix(msg, "error:") {
				outcome.Result = graspsync.Failed
			}
			return
		}
	})
	if err != nil {
		return graspsync.Outcome{Result: graspsync.Failed, Err: fmt.Errorf("%w: RejectEvent: %w", ErrHook, err)}
	}
	return outcome
}

// imported does what follows for an event that is newly stored.
func (s *Sync) imported(ctx context.Context, e *nostr.Event) {
	s.followStored(ctx, e)
	s.deleteElsewhere(ctx, e)
	for _, hook := range s.relay.OnEventSaved {
		if err := protect(func() { hook(ctx, e) }); err != nil {
			s.log.Error("hook of the relay failed", "hook", "OnEventSaved", "err", err)
		}
	}
	s.expiry.track(e)
	s.broadcast(e)
}
