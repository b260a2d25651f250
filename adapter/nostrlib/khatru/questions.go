package khatruadapter

import (
	"context"
	"encoding/binary"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"fiatjaf.com/nostr"
	"fiatjaf.com/nostr/khatru"

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

// unanswered tells a client that there is no answer. khatru says EOSE then, or reconciles what
// it has not read as if nothing was there, and other servers believe that for a day. A
// subscription is closed instead, by which the EOSE that follows is nobody's. A reconciliation has
// no name here that could be said: its connection ends.
func (u *questions) unanswered(ctx context.Context, err error) {
	if ctx.Err() != nil { // who asked has gone
		return
	}
	why := msgUnread
	if errors.Is(err, eventstoreadapter.ErrClosed) {
		why = msgEnding
	} else {
		u.say(err)
	}
	ws := khatru.GetConnection(ctx)
	if ws == nil || khatru.IsInternalCall(ctx) {
		return
	}
	if id, ok := subscription(ctx); ok && !khatru.IsNegentropySession(ctx) {
		_ = ws.WriteJSON(nostr.ClosedEnvelope{SubscriptionID: id, Reason: why}) // else the client has gone
	} else {
		_ = ws.WriteMessage(closeFrame, append(binary.BigEndian.AppendUint16(nil, internalError), why...))
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
		u.log.Error("the store could not be read", "err", err)
	}
}
