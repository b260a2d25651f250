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

// What a client hears whose event is not stored, with the prefixes of NIP-01.
const (
	MsgMalformed = "invalid: malformed event"
	MsgTags      = "invalid: more than 10,000 tags"
	MsgDeleted   = "blocked: this event has been deleted"
	MsgLookup    = "error: could not look up deletions"
	MsgRoom      = "error: no room on the disk, try again later"
	MsgEnding    = "error: the server is ending, try again later"
	MsgJudge     = "error: could not judge the event"
	MsgReject    = "blocked: not for this relay"
	MsgDepends   = "blocked: the repository or event that it belongs to is not stored"
	MsgHeld      = "blocked: held back until what it needs is here"
)

// startGrace is how long a client's event waits for the store being read, after a start.
const startGrace = 10 * time.Second

// Reject returns why a client's event is not stored, before a policy that holds events is asked; "" if it may be. unread is why e
// could not be parsed, and odd what is wrong with it for the library of the relay. What is refused is recorded for EventState.
func (v *Core) Reject(ctx context.Context, kind int, e graspsync.Event, unread error, odd func() string) (msg string) {
	if unread == nil {
		msg = v.Blocked(e)
	}
	switch ephemeral := nostr.IsEphemeralKind(kind); {
	case ephemeral:
		return msg // nothing is recorded of it
	case msg != "":
	case v.Questions.Closed():
		return MsgEnding
	case unread != nil:
		return "invalid: " + unread.Error()
	default:
		if msg = odd(); msg == "" {
			msg = v.refuses(ctx, e)
		}
	}
	if msg != "" {
		v.Manager.Refused(e, msg)
		return msg
	}
	if v.Gate && !v.Holding { // a policy that holds is asked once no hook has refused the event
		if verdict, msg := v.Verdict(ctx, e); verdict.Decision != graspsync.Accept {
			return msg
		}
	}
	return ""
}

// Overhear records for EventState that a hook of the relay refuses a client's event.
func (v *Core) Overhear(ctx context.Context, e graspsync.Event, msg string) {
	if !IsSynced(ctx) && !nostr.IsEphemeralKind(e.Kind) {
		v.Manager.Refused(e, Reason(msg))
	}
}

// Reason returns the message of a hook that refuses an event as an OK message has it.
func Reason(msg string) string {
	return nostr.NormalizeOKMessage(cmp.Or(strings.TrimSpace(msg), "no reason"), "blocked")
}

// refuses says why the relay would not have what a client submits, whatever the policy says; "" if it would.
func (v *Core) refuses(ctx context.Context, e graspsync.Event) (msg string) {
	if len(e.Tags) > wire.MaxTags { // no other server would have it from here
		return MsgTags
	}
	if v.Room.Of(e.Event) != nil {
		return MsgRoom
	}
	deleted, err := v.Store.Deleted(ctx, e)
	if err != nil {
		v.Log.Error("deletions could not be looked up", "err", err)
		return MsgLookup
	}
	if deleted {
		if _, err := v.Store.Save(ctx, []graspsync.Incoming{{Event: e}}); err != nil { // older versions go with it
			v.Log.Error("older versions of a deleted event could not be removed", "err", err)
		}
		v.FollowRemovals(ctx)
		return MsgDeleted
	}
	msg, err = v.Undeletable(ctx, e)
	if err != nil {
		v.Log.Error("what a deletion names could not be looked up", "err", err)
		return MsgLookup
	}
	return msg
}

// Verdict asks the policy about what a client submits and no hook of the relay refuses, and says what the client is
// to hear if that is not Accept.
func (v *Core) Verdict(ctx context.Context, e graspsync.Event) (verdict graspsync.Verdict, msg string) {
	ctx = submission(ctx)
	verdict, err := v.Manager.Judge(ctx, e)
	if errors.Is(err, relaysync.ErrNotReady) && v.started(ctx) {
		verdict, err = v.Manager.Judge(ctx, e)
	}
	if errors.Is(err, ErrRoom) { // since the hooks were asked
		return graspsync.Verdict{}, MsgRoom
	}
	if err != nil {
		v.Log.Error("event could not be judged", "err", err)
		v.Manager.Refused(e, MsgJudge)
		return graspsync.Verdict{}, MsgJudge
	}
	if verdict.Decision == graspsync.Reject || verdict.Decision == graspsync.Depend {
		// What is stored is a duplicate, whatever would be said of it now: a deletion
		// deletes nothing any more that was here when it came.
		if has, err := v.Store.Has(ctx, []graspsync.EventID{e.ID}); err == nil && has[0] {
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

// started waits for a while until the store has been read. It reports whether it was.
func (v *Core) started(ctx context.Context) bool {
	patience := time.NewTimer(startGrace)
	defer patience.Stop()
	select {
	case <-v.Manager.Ready():
		return true
	case <-patience.C:
	case <-ctx.Done():
	}
	return false
}
