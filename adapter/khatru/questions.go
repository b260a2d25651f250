package khatruadapter

import (
	"context"

	"github.com/fiatjaf/khatru"
	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync/adapter/internal/embedding"
)

// refuse is a hook that refuses all questions once we are closed.
func (s *Sync) refuse(context.Context, nostr.Filter) (reject bool, msg string) {
	return s.core.Questions.Closed(), embedding.MsgEnding
}

// answered is a query whose failure is no answer. khatru says EOSE then, or reconciles what
// it has not read as if nothing was there, and other servers believe that for a day. A
// subscription is closed instead, by which the EOSE that follows is nobody's. A reconciliation has
// no name here that could be said: its connection ends.
func (s *Sync) answered(q query) query {
	return func(ctx context.Context, f nostr.Filter) (chan *nostr.Event, error) {
		ch, err := q(ctx, f)
		ws := khatru.GetConnection(ctx)
		if err == nil || ws == nil || ctx.Err() != nil {
			return ch, err
		}
		why := s.core.Questions.Unanswered(err)
		if id, ok := subscription(ctx); ok {
			_ = ws.WriteJSON(nostr.ClosedEnvelope{SubscriptionID: id, Reason: why}) // else the client has gone
		} else {
			_ = ws.WriteMessage(embedding.CloseFrame, embedding.Closing(why))
		}
		none := make(chan *nostr.Event)
		close(none)
		return none, nil
	}
}

// subscription is the name of the subscription that is answered. khatru panics if there is none.
func subscription(ctx context.Context) (id string, ok bool) {
	defer func() { ok = recover() == nil }()
	return khatru.GetSubscriptionID(ctx), true
}
