package embedding

import (
	"context"
	"strings"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
	eventstoreadapter "github.com/graspsync/graspsync/adapter/eventstore"
	relaysync "github.com/graspsync/graspsync/sync"
)

// ReasonHook is the reason of a refusal by a hook, whose message is a detail, because metrics count by
// reason.
const ReasonHook = "blocked: refused by a hook of the relay"

// Policy checks the hooks of the relay before a policy that holds events, so that no git data is fetched
// for a refused event. Events of clients passed the hooks on arrival.
func (c *Core) Policy(behind relaysync.Policy) relaysync.Policy { return &hooked{behind, c} }

type hooked struct {
	relaysync.Policy
	env *Core
}

func (h *hooked) Judge(
	ctx context.Context, e graspsync.Event, src graspsync.Source, view relaysync.View,
) (graspsync.Verdict, error) {
	if !isSubmission(ctx) {
		switch o := h.env.admit(synced(ctx), graspsync.Incoming{Event: e, Source: src}); o.Result {
		case graspsync.Refused:
			detail := strings.TrimPrefix(o.Err.Error(), ErrRejected.Error()+": ")
			return graspsync.Verdict{Decision: graspsync.Reject, Reason: ReasonHook, Detail: detail}, nil
		case graspsync.Failed:
			return graspsync.Verdict{}, o.Err
		}
	}
	// A held unstorable event would fail only when it is released.
	if err := h.env.Store.Storable(e); err != nil && !nostr.IsEphemeralKind(e.Kind) {
		detail := strings.TrimPrefix(err.Error(), eventstoreadapter.ErrUnstorable.Error()+": ")
		return graspsync.Verdict{Decision: graspsync.Reject, Reason: "invalid: " + eventstoreadapter.ErrUnstorable.Error(), Detail: detail}, nil
	}
	return h.Policy.Judge(ctx, e, src, view)
}
