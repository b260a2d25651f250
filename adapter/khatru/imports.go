package khatruadapter

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/nbd-wtf/go-nostr"

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

var _ relaysync.Store = (*imports)(nil)

// Save implements [relaysync.Store].
func (s *imports) Save(ctx context.Context, events []relaysync.Incoming) ([]relaysync.Outcome, error) {
	ctx = synced(ctx)
	outcomes := make([]relaysync.Outcome, len(events))
	passed := make([]relaysync.Incoming, 0, len(events))
	places := make([]int, 0, len(events))
	for i, in := range events {
		if outcomes[i] = s.sync.admit(ctx, in.Event); outcomes[i].Result == 0 {
			passed, places = append(passed, in), append(places, i)
		}
	}
	saved, err := s.Store.Save(ctx, passed)
	if err != nil {
		return nil, err
	}
	for i, o := range saved {
		outcomes[places[i]] = o
		switch o.Result {
		case relaysync.Stored:
			s.sync.imported(ctx, passed[i].Event)
		case relaysync.Duplicate:
			s.sync.expiry.track(passed[i].Event) // an attempt that failed may have stored it
		}
	}
	return outcomes, nil
}

// admit asks the RejectEvent hooks. The zero Outcome means that they let it pass.
func (s *Sync) admit(ctx context.Context, e *nostr.Event) (outcome relaysync.Outcome) {
	if e == nil {
		return outcome // the store knows what to say
	}
	err := protect(func() {
		for _, hook := range s.relay.RejectEvent {
			reject, msg := hook(ctx, e)
			if !reject || strings.HasPrefix(msg, "rate-limited:") {
				continue
			}
			outcome = relaysync.Outcome{Result: relaysync.Refused, Err: fmt.Errorf("%w: %.300q", ErrRejected, msg)}
			if strings.HasPrefix(msg, "error:") {
				outcome.Result = relaysync.Failed
			}
			return
		}
	})
	if err != nil {
		return relaysync.Outcome{Result: relaysync.Failed, Err: fmt.Errorf("%w: RejectEvent: %w", ErrHook, err)}
	}
	return outcome
}

// imported does what follows for an event that is newly stored.
func (s *Sync) imported(ctx context.Context, e *nostr.Event) {
	for _, hook := range s.relay.OnEventSaved {
		if err := protect(func() { hook(ctx, e) }); err != nil {
			s.log.Error("hook of the relay failed", "hook", "OnEventSaved", "err", err)
		}
	}
	s.expiry.track(e)
	s.broadcast(e)
}
