package khatruadapter

import (
	"context"

	"github.com/fiatjaf/khatru"
	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync/adapter/internal/embedding"
)

func (s *Sync) refuse(context.Context, nostr.Filter) (reject bool, msg string) {
	return s.core.Questions.Closed(), embedding.MsgEnding
}

// answered wraps a query so that a failure does not look like an empty answer. After an error
// khatru would send EOSE or reconcile with an empty set, which other servers believe for a day.
// Instead, answered closes the subscription, and the client ignores the following EOSE. A
// reconciliation has no name in this context, so its connection is closed.
func (s *Sync) answered(q query) query {
	return func(ctx context.Context, f nostr.Filter) (chan *nostr.Event, error) {
		ch, err := q(ctx, f)
		ws := khatru.GetConnection(ctx)
		if err == nil || ws == nil || ctx.Err() != nil {
			return ch, err
		}
		why := s.core.Questions.Unanswered(err)
		if id, ok := subscription(ctx); ok {
			_ = ws.WriteJSON(nostr.ClosedEnvelope{SubscriptionID: id, Reason: why}) // fails only if the client has disconnected
		} else {
			_ = ws.WriteMessage(embedding.CloseFrame, embedding.Closing(why))
		}
		none := make(chan *nostr.Event)
		close(none)
		return none, nil
	}
}

// subscription returns the id of the subscription that is answered. khatru panics if the context
// has none.
func subscription(ctx context.Context) (id string, ok bool) {
	defer func() { ok = recover() == nil }()
	return khatru.GetSubscriptionID(ctx), true
}
