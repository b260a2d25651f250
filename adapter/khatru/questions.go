package khatruadapter

import (
	"context"
	"encoding/binary"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/fiatjaf/khatru"
	"github.com/nbd-wtf/go-nostr"

	eventstoreadapter "github.com/graspsync/graspsync/adapter/eventstore"
)

// questions are those of clients that can't be answered: they are told so. It is safe for
// concurrent use.
type questions struct {
	log      *slog.Logger // read-only
	closed   atomic.Bool  // nothing is answered any more
	unreadAt atomic.Int64 // when it was said that the store could not be read, 0: never
}

const (
	msgEnding = "error: the server is ending, try again later"
	msgUnread = "error: the store could not be read, try again later"
)

// unreadEvery is how often it is said that the store can't be read.
const unreadEvery = time.Minute

// A close frame, and the status for what failed here (RFC 6455).
const (
	closeFrame    = 8
	internalError = 1011
)

// refuse is a hook that refuses all questions once we are closed: an answer without what could
// not be read would look like all there is.
func (u *questions) refuse(context.Context, nostr.Filter) (reject bool, msg string) {
	return u.closed.Load(), msgEnding
}

// answered is a query whose failure is no answer. khatru says EOSE then, or reconciles what
// it has not read as if nothing was there, and other servers believe that for a day. A
// subscription is closed instead, by which the EOSE that follows is nobody's. A reconciliation has
// no name here that could be said: its connection ends.
func (u *questions) answered(q query) query {
	return func(ctx context.Context, f nostr.Filter) (chan *nostr.Event, error) {
		ch, err := q(ctx, f)
		ws := khatru.GetConnection(ctx)
		if err == nil || ws == nil || ctx.Err() != nil {
			return ch, err
		}
		why := msgUnread
		if errors.Is(err, eventstoreadapter.ErrClosed) {
			why = msgEnding
		} else {
			u.say(err)
		}
		if id, ok := subscription(ctx); ok {
			_ = ws.WriteJSON(nostr.ClosedEnvelope{SubscriptionID: id, Reason: why}) // else the client has gone
		} else {
			_ = ws.WriteMessage(closeFrame, append(binary.BigEndian.AppendUint16(nil, internalError), why...))
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

// say logs that the store could not be read, unless that was said not long ago.
func (u *questions) say(err error) {
	now := time.Now().UnixNano()
	last := u.unreadAt.Load()
	if (last == 0 || now-last >= int64(unreadEvery)) && u.unreadAt.CompareAndSwap(last, now) {
		u.log.Error("the store could not be read for a client", "err", err)
	}
}
