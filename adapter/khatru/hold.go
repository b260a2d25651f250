package khatruadapter

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/fiatjaf/eventstore"
	"github.com/fiatjaf/khatru"
	"github.com/nbd-wtf/go-nostr"

	relaysync "github.com/graspsync/graspsync/sync"
)

// errReplace is returned by New for a relay that removes older versions of an event
// before anybody can say that the new one is held.
var errReplace = errors.New("khatru adapter: a relay whose policy holds events needs ReplaceEvent hooks where it has StoreEvent hooks")

// holding lets held events pass the relay's hooks: khatru has no answer between stored
// and refused. The RejectEvent hook lets them through, and the first hook that stores
// says that they are duplicates: the client hears OK, nothing is stored, nothing is
// broadcast, and OnEventSaved is not called.
type holding struct {
	on bool // the policy holds events; set by New

	mu sync.Mutex
	// guarded by mu: ids that were accepted and not stored yet. It only saves a second
	// look, so that it may forget.
	accepted map[string]struct{}
}

const maxAccepted = 1024

func (h *holding) accept(id string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.accepted == nil || len(h.accepted) >= maxAccepted {
		h.accepted = make(map[string]struct{})
	}
	h.accepted[id] = struct{}{}
}

// take reports whether an event was accepted, and forgets it.
func (h *holding) take(id string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	_, was := h.accepted[id]
	delete(h.accepted, id)
	return was
}

// hold is the first of the hooks that store.
func (s *Sync) hold(ctx context.Context, e *nostr.Event) error {
	if IsSynced(ctx) || s.holding.take(e.ID) {
		return nil
	}
	verdict, msg := s.verdict(ctx, e)
	switch verdict.Decision {
	case relaysync.Accept:
		return nil
	case relaysync.Hold:
		notice(ctx, msg)
		return eventstore.ErrDupEvent
	}
	return errors.New(msg)
}

// notice tells a client something, if there is one.
func notice(ctx context.Context, text string) {
	if ws := khatru.GetConnection(ctx); ws != nil {
		_ = ws.WriteJSON(nostr.NoticeEnvelope(text)) // who is gone needs not know
	}
}

// Release stores an event that the policy has held, sends it to subscribers and takes
// note of it. It returns when the event is durable; with Stored or Duplicate it is
// served.
func (s *Sync) Release(ctx context.Context, e *nostr.Event) (relaysync.Outcome, error) {
	outcomes, err := s.store.Save(ctx, []relaysync.Incoming{{Event: e}})
	if err != nil {
		return relaysync.Outcome{}, err
	}
	if len(outcomes) != 1 {
		return relaysync.Outcome{}, fmt.Errorf("%d outcomes of one event", len(outcomes))
	}
	switch outcomes[0].Result {
	case relaysync.Stored:
		s.imported(synced(ctx), e)
		s.manager.Stored(e)
	case relaysync.Duplicate:
		s.expiry.track(e) // an attempt that failed may have stored it
		s.manager.Stored(e)
	}
	return outcomes[0], nil
}

// Held is that of the SyncManager: what the policy held before, it holds again.
func (s *Sync) Held(e *nostr.Event) { s.manager.Held(e) }

// Removed is that of the SyncManager: what the policy held will not be released.
func (s *Sync) Removed(e *nostr.Event) { s.manager.Removed(e) }
