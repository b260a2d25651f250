package embedding

import (
	"cmp"
	"context"
	"errors"
	"strings"
	"time"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
	relaysync "github.com/graspsync/graspsync/sync"
	"github.com/graspsync/graspsync/sync/wire"
)

// Messages for a client whose event is not stored, with prefixes of NIP-01.
const (
	MsgMalformed = "invalid: malformed event"
	MsgTags      = "invalid: more than 10,000 tags"
	MsgDeleted   = "blocked: this event has been deleted"
	MsgLookup    = "error: could not look up deletions"
	MsgRoom      = "error: no room on the disk, try again later"
	MsgStore     = "error: could not store the event, try again later"
	MsgEnding    = "error: the server is shutting down, try again later"
	MsgJudge     = "error: could not judge the event"
	MsgReject    = "blocked: not for this relay"
	MsgDepends   = "blocked: the repository or event that it belongs to is not stored"
	MsgHeld      = "blocked: held until the events or git data that it needs arrive"
)

const startGrace = 10 * time.Second

// Reject returns why a published event is refused before a holding policy judges it, or "". unread is the
// parse error of e, odd finds problems of the relay's library.
func (c *Core) Reject(ctx context.Context, kind int, e graspsync.Event, unread error, odd func() string) (msg string) {
	if unread == nil {
		msg = c.Blocked(e)
	}
	switch ephemeral := nostr.IsEphemeralKind(kind); {
	case ephemeral: // not recorded
		if msg == "" && unread == nil && c.ApplyPolicyToClients {
			msg = c.accepts(ctx, e)
		}
		return msg
	case msg != "":
	case c.closed.Load():
		return MsgEnding
	case unread != nil:
		return "invalid: " + unread.Error()
	default:
		if msg = odd(); msg == "" {
			msg = c.refuses(ctx, e)
		}
	}
	if msg != "" {
		c.Manager.NotifyRefused(e, msg)
		return msg
	}
	if c.ApplyPolicyToClients && !c.holds() { // a holding policy judges after all hooks
		return c.accepts(ctx, e)
	}
	return ""
}

func (c *Core) accepts(ctx context.Context, e graspsync.Event) (msg string) {
	verdict, msg := c.Verdict(ctx, e)
	if verdict.Decision == graspsync.Accept {
		return ""
	}
	return msg
}

// Publish stores a published event that no hook refuses, or lets the policy hold it. The error is
// Hooks.Duplicate if nothing was stored and the client receives OK.
func (c *Core) Publish(ctx context.Context, e graspsync.Event, unread error) error {
	if unread != nil {
		return errors.New(MsgMalformed)
	}
	if c.ApplyPolicyToClients && c.holds() {
		switch verdict, msg := c.Verdict(ctx, e); verdict.Decision {
		case graspsync.Accept:
		case graspsync.Hold:
			if ws := c.Hooks.Client(ctx); ws != nil {
				_ = ws.WriteJSON(nostr.NoticeEnvelope(msg))
			}
			return c.Hooks.Duplicate
		default:
			return errors.New(msg)
		}
	}
	in := graspsync.Incoming{Event: e}
	outcomes, err := c.Store.Save(context.WithoutCancel(ctx), []graspsync.Incoming{in})
	if err != nil {
		c.addUnsure(in)
		return c.failed("storing an event failed", err)
	}
	switch o := outcomes[0]; o.Result {
	case graspsync.Stored:
		return nil
	case graspsync.Duplicate:
		if c.takeUnsure(e.ID) {
			return nil
		}
		return c.Hooks.Duplicate
	case graspsync.Superseded:
		c.FollowRemovals(ctx) // khatru calls no hook for a duplicate
		return c.Hooks.Duplicate
	case graspsync.Deleted:
		return errors.New(MsgDeleted)
	case graspsync.Refused:
		return errors.New("invalid: " + o.Err.Error())
	default:
		c.addUnsure(in)
		return c.failed("storing an event failed", o.Err)
	}
}

// Overhear records for EventState that a hook refused a published event.
func (c *Core) Overhear(ctx context.Context, e graspsync.Event, msg string) {
	if !IsSynced(ctx) && !nostr.IsEphemeralKind(e.Kind) {
		c.Manager.NotifyRefused(e, Reason(msg))
	}
}

// Reason returns the message of a hook with a prefix of NIP-01.
func Reason(msg string) string {
	return nostr.NormalizeOKMessage(cmp.Or(strings.TrimSpace(msg), "no reason"), "blocked")
}

func (c *Core) refuses(ctx context.Context, e graspsync.Event) (msg string) {
	if len(e.Tags) > wire.MaxTags { // other servers would not sync it
		return MsgTags
	}
	if c.Room.Of(e.Event) != nil {
		return MsgRoom
	}
	deleted, err := c.Store.Deleted(ctx, e)
	if err != nil {
		c.Log.Error("reading deletions failed", "err", err)
		return MsgLookup
	}
	if deleted {
		if _, err := c.Store.Save(ctx, []graspsync.Incoming{{Event: e}}); err != nil { // also removes older versions
			c.Log.Error("removing older versions of a deleted event failed", "err", err)
		}
		c.FollowRemovals(ctx)
		return MsgDeleted
	}
	msg, err = c.Undeletable(ctx, e)
	if err != nil {
		c.Log.Error("targets of a deletion could not be looked up", "err", err)
		return MsgLookup
	}
	return msg
}

// Verdict judges a published event after the hooks. msg is for the client.
func (c *Core) Verdict(ctx context.Context, e graspsync.Event) (verdict graspsync.Verdict, msg string) {
	ctx = submission(ctx)
	verdict, err := c.Manager.Judge(ctx, e)
	if errors.Is(err, relaysync.ErrNotReady) {
		select {
		case <-c.Manager.Ready():
			verdict, err = c.Manager.Judge(ctx, e)
		case <-time.After(startGrace):
		case <-ctx.Done():
		}
	}
	if errors.Is(err, ErrRoom) { // the disk filled up after the hooks ran
		return graspsync.Verdict{}, MsgRoom
	}
	if err != nil {
		c.Log.Error("judging an event failed", "err", err)
		c.Manager.NotifyRefused(e, MsgJudge)
		return graspsync.Verdict{}, MsgJudge
	}
	if verdict.Decision == graspsync.Reject || verdict.Decision == graspsync.Depend {
		// A stored event is a duplicate even if the policy now refuses it.
		if has, err := c.Store.Has(ctx, []graspsync.EventID{e.ID}); err == nil && has[0] {
			return graspsync.Verdict{Decision: graspsync.Accept}, ""
		}
	}
	switch verdict.Decision {
	case graspsync.Hold:
		msg = MsgHeld
	case graspsync.Depend:
		msg = MsgDepends
	default:
		msg = MsgReject
	}
	if verdict.Reason != "" {
		msg = verdict.Message()
	}
	return verdict, msg
}
