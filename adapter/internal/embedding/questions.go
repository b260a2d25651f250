package embedding

import (
	"context"
	"encoding/binary"
	"errors"
	"time"

	"github.com/nbd-wtf/go-nostr"

	eventstoreadapter "github.com/graspsync/graspsync/adapter/eventstore"
)

// MsgUnread is the message for a client whose query failed.
const MsgUnread = "error: the store could not be read, try again later"

// closeFrame is the type of a close frame, internalError a status (RFC 6455).
const (
	closeFrame    = 8
	internalError = 1011
)

// Closed returns true after Close, and a message, because the answer of a closed store would look complete.
func (c *Core) Closed() (bool, string) { return c.closed.Load(), MsgEnding }

// Subscription returns the id of the answered subscription, or "".
func (c *Core) Subscription(ctx context.Context) (id string) {
	defer func() { _ = recover() }()
	return c.Hooks.Subscription(ctx)
}

// Unanswered closes the subscription, or the connection of a reconciliation, after a failed query, because
// an empty answer would look complete. It returns false if no client waits.
func (c *Core) Unanswered(ctx context.Context, err error) bool {
	ws := c.Hooks.Client(ctx)
	if err == nil || ws == nil || ctx.Err() != nil {
		return false
	}
	why := MsgUnread
	if errors.Is(err, eventstoreadapter.ErrClosed) {
		why = MsgEnding
	} else if c.lines.Allow(struct{}{}, time.Now()) {
		c.Log.Error("reading the store for a client failed", "err", err)
	}
	if id := c.Subscription(ctx); id != "" {
		_ = ws.WriteJSON(nostr.ClosedEnvelope{SubscriptionID: id, Reason: why})
	} else {
		_ = ws.WriteMessage(closeFrame, append(binary.BigEndian.AppendUint16(nil, internalError), why...))
	}
	return true
}
