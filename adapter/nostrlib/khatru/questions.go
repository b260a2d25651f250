package khatruadapter

import (
	"context"

	"fiatjaf.com/nostr"
	"fiatjaf.com/nostr/khatru"

	"github.com/graspsync/graspsync/adapter/internal/embedding"
)

// unanswered tells a client that there is no answer. khatru says EOSE then, or reconciles what
// it has not read as if nothing was there, and other servers believe that for a day. A
// subscription is closed instead, by which the EOSE that follows is nobody's. A reconciliation has
// no name here that could be said: its connection ends.
func (s *Sync) unanswered(ctx context.Context, err error) {
	if ctx.Err() != nil { // who asked has gone
		return
	}
	why := s.core.Questions.Unanswered(err)
	ws := khatru.GetConnection(ctx)
	if ws == nil || khatru.IsInternalCall(ctx) {
		return
	}
	if id, ok := subscription(ctx); ok && !khatru.IsNegentropySession(ctx) {
		_ = ws.WriteJSON(nostr.ClosedEnvelope{SubscriptionID: id, Reason: why}) // else the client has gone
	} else {
		_ = ws.WriteMessage(embedding.CloseFrame, embedding.Closing(why))
	}
}

// subscription is the name of the subscription that is answered. khatru panics if there is none.
func subscription(ctx context.Context) (id string, ok bool) {
	defer func() { ok = recover() == nil }()
	return khatru.GetSubscriptionID(ctx), true
}
