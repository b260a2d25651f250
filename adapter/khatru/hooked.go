package khatruadapter

import (
	"context"
	"errors"
	"strings"

	"github.com/fiatjaf/khatru"
	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
	relaysync "github.com/graspsync/graspsync/sync"
)

// errReplace is returned by New for a relay that removes older versions of an event
// before anybody can say that the new one is held.
var errReplace = errors.New("khatru adapter: a relay whose policy holds events needs ReplaceEvent hooks where it has StoreEvent hooks")

// notice tells a client something, if there is one.
func notice(ctx context.Context, text string) {
	if ws := khatru.GetConnection(ctx); ws != nil {
		_ = ws.WriteJSON(nostr.NoticeEnvelope(text)) // who is gone needs not know
	}
}

// hooked is a policy that holds events, behind the RejectEvent hooks of the relay: what
// they refuse is not held, so that no git data is fetched for it and no repository made.
// What a client submits has just passed them. When it is judged again, since it gave way
// or could not be saved, they are asked as they are for what came by sync: they may have
// come to refuse it.
type hooked struct {
	relaysync.Policy
	sync *Sync
}

// reasonHook is why events are rejected that a hook refuses. What the hook says is a detail,
// since reasons are counted.
const reasonHook = "blocked: refused by a hook of the relay"

// Judge implements [relaysync.Policy].
func (h *hooked) Judge(
	ctx context.Context, e graspsync.Event, src graspsync.Source, view relaysync.View,
) (graspsync.Verdict, error) {
	if !isSubmission(ctx) {
		switch o := h.sync.admit(synced(ctx), graspsync.Incoming{Event: e, Source: src}); o.Result {
		case graspsync.Refused:
			detail := strings.TrimPrefix(o.Err.Error(), ErrRejected.Error()+": ")
			return graspsync.Verdict{Decision: graspsync.Reject, Reason: reasonHook, Detail: detail}, nil
		case graspsync.Failed:
			return graspsync.Verdict{}, o.Err
		}
	}
	return h.Policy.Judge(ctx, e, src, view)
}
