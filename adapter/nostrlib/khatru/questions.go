package khatruadapter

import (
	"context"

	"fiatjaf.com/nostr"
	"fiatjaf.com/nostr/khatru"

	"github.com/graspsync/graspsync/adapter/internal/embedding"
)

// unanswered makes a failed query different from an empty answer. After an error khatru would send
// EOSE or reconcile with an empty set, which other servers believe for a day. Instead, unanswered
// closes the subscription, and the client ignores the following EOSE. A reconciliation has no name
// in this context, so its connection is closed.
func (s *Sync) unanswered(ctx context.Context, err error) {
	if ctx.Err() != nil { // the client has disconnected
		return
	}
	why := s.core.Questions.Unanswered(err)
	ws := khatru.GetConnection(ctx)
	if ws == nil || khatru.IsInternalCall(ctx) {
		return
	}
	if id, ok := subscription(ctx); ok && !khatru.IsNegentropySession(ctx) {
		_ = ws.WriteJSON(nostr.ClosedEnvelope{SubscriptionID: id, Reason: why}) // fails only if the client has disconnected
	} else {
		_ = ws.WriteMessage(embedding.CloseFrame, embedding.Closing(why))
	}
}

// subscription returns the id of the subscription that is answered. khatru panics if the context
// has none.
func subscription(ctx context.Context) (id string, ok bool) {
	defer func() { ok = recover() == nil }()
	return khatru.GetSubscriptionID(ctx), true
}
