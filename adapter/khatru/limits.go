package khatruadapter

import (
	"context"
	"sync"

	"github.com/fiatjaf/eventstore"
	"github.com/fiatjaf/khatru"
	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync/sync/wire"
)

// The limits of a relay are those that other GRASP servers have: the events of thousands of
// repositories are followed in hundreds of subscriptions. Others assume as many where a relay
// says so, and not the few that each relay has.
const (
	maxSubscriptions = 500 // of one connection
	maxSubIDLength   = 250 // bytes
)

// limits are what a relay publishes in its NIP-11 document and holds clients to. khatru has no
// bound but the length of a message.
type limits struct {
	subscriptions int // that one connection has open
	subIDLength   int // of the name of a subscription, in bytes
	// limit bounds the stored events that a filter gets: what the backend gives at most. One
	// that asks for more would get fewer from some. Who asks for no number gets at most
	// defaultLimit.
	limit int
}

// Limit has a relay refuse what goes beyond its limits, and returns them as NIP-11 has them: a
// connection has 500 subscriptions, whose names have 250 bytes, and a filter gets as many
// stored events as most says, which is what the backend gives at most. It comes before other
// hooks are added to the relay, or they may be asked in vain.
func Limit(relay *khatru.Relay, most int) map[string]any {
	return limits{maxSubscriptions, maxSubIDLength, most}.enforce(relay)
}

// defaultLimit is as many as a filter gets that does not say how many: so many of the
// largest events are what a client may cost us at once without having asked for it.
const defaultLimit = 500

func (l limits) enforce(relay *khatru.Relay) map[string]any {
	open := &subscriptions{most: l.subscriptions, of: make(map[*khatru.WebSocket]map[context.Context]bool)}
	// Of a filter that wants nothing that is stored, khatru asks no hook that could refuse it.
	relay.OverwriteFilter = append(relay.OverwriteFilter, func(ctx context.Context, f *nostr.Filter) {
		ws := subscriber(ctx)
		switch {
		case ws == nil:
		case !open.enter(ctx, ws) || len(khatru.GetSubscriptionID(ctx)) > l.subIDLength:
			f.LimitZero = false
		case nostr.GetTheoreticalLimit(*f) >= 0: // by ids, for one: they bound it
		case f.Limit > l.limit:
			f.Limit = l.limit
		case f.Limit == 0 && !f.LimitZero:
			f.Limit = min(defaultLimit, l.limit)
		}
	})
	relay.RejectFilter = append(relay.RejectFilter, func(ctx context.Context, _ nostr.Filter) (bool, string) {
		ws := subscriber(ctx)
		switch {
		case ws == nil:
			return false, ""
		case len(khatru.GetSubscriptionID(ctx)) > l.subIDLength:
			return true, "invalid: the subscription id is too long"
		case !open.has(ctx, ws):
			return true, "rate-limited: too many subscriptions are open"
		}
		return false, ""
	})
	return map[string]any{
		"max_message_length": relay.MaxMessageSize, "max_subscriptions": l.subscriptions, "max_subid_length": l.subIDLength,
		"max_limit": l.limit, "default_limit": min(defaultLimit, l.limit),
		"max_event_tags": wire.MaxTags, "auth_required": false, "payment_required": false, "restricted_writes": true,
	}
}

// subscriber is whose subscription a filter is of; nil if it is of none.
func subscriber(ctx context.Context) *khatru.WebSocket {
	if eventstore.IsNegentropySession(ctx) || khatru.IsInternalCall(ctx) {
		return nil
	}
	return khatru.GetConnection(ctx)
}

// subscriptions are those that are open. khatru makes a context for each, which ends when it
// is closed, refused, or its connection ends.
type subscriptions struct {
	most int

	mu sync.Mutex
	// guarded by mu
	of map[*khatru.WebSocket]map[context.Context]bool
}

// enter counts a subscription, if there is room for it or it is counted already.
func (s *subscriptions) enter(ctx context.Context, ws *khatru.WebSocket) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.of[ws][ctx]:
		return true
	case len(s.of[ws]) >= s.most:
		return false
	case s.of[ws] == nil:
		s.of[ws] = make(map[context.Context]bool)
	}
	s.of[ws][ctx] = true
	context.AfterFunc(ctx, func() { s.leave(ctx, ws) })
	return true
}

func (s *subscriptions) has(ctx context.Context, ws *khatru.WebSocket) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.of[ws][ctx]
}

func (s *subscriptions) leave(ctx context.Context, ws *khatru.WebSocket) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.of[ws], ctx)
	if len(s.of[ws]) == 0 {
		delete(s.of, ws)
	}
}
