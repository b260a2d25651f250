package embedding

import (
	"context"
	"strings"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
	eventstoreadapter "github.com/graspsync/graspsync/adapter/eventstore"
	relaysync "github.com/graspsync/graspsync/sync"
)

// ReasonHook is why events are rejected that a hook refuses. What the hook says is a detail, since reasons are
// counted.
const ReasonHook = "blocked: refused by a hook of the relay"

// Policy returns one that holds events, behind the hooks of the relay that refuse events: what they refuse is not
// held, so that no git data is fetched for it and no repository made. What a client submits has just passed them.
// When it is judged again, since it gave way or could not be saved, they are asked as they are for what came by
// sync: they may have come to refuse it.
func (s *Imports) Policy(behind relaysync.Policy) relaysync.Policy { return &hooked{behind, s} }

type hooked struct {
	relaysync.Policy
	imports *Imports
}

// Judge implements [relaysync.Policy].
func (h *hooked) Judge(
	ctx context.Context, e graspsync.Event, src graspsync.Source, view relaysync.View,
) (graspsync.Verdict, error) {
	if !isSubmission(ctx) {
		switch o := h.imports.admit(synced(ctx), graspsync.Incoming{Event: e, Source: src}); o.Result {
		case graspsync.Refused:
			detail := strings.TrimPrefix(o.Err.Error(), ErrRejected.Error()+": ")
			return graspsync.Verdict{Decision: graspsync.Reject, Reason: ReasonHook, Detail: detail}, nil
		case graspsync.Failed:
			return graspsync.Verdict{}, o.Err
		}
	}
	// What is stored at once is refused by the Store; what waits would be lost when its time comes.
	if err := h.imports.Storable(e); err != nil && !nostr.IsEphemeralKind(e.Kind) {
		detail := strings.TrimPrefix(err.Error(), eventstoreadapter.ErrUnstorable.Error()+": ")
		return graspsync.Verdict{Decision: graspsync.Reject, Reason: "invalid: " + eventstoreadapter.ErrUnstorable.Error(), Detail: detail}, nil
	}
	return h.Policy.Judge(ctx, e, src, view)
}
