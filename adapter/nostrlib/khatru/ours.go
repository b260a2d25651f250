package khatruadapter

import (
	"context"
	"errors"
	"reflect"
	"time"

	"fiatjaf.com/nostr"
	"fiatjaf.com/nostr/khatru"
	"fiatjaf.com/nostr/nip11"

	relaysync "github.com/graspsync/graspsync/sync"
	"github.com/graspsync/graspsync/sync/wire"
)

// ErrReplaced is wrapped by the error of [Sync.Run] if a hook of the relay was set after [New].
var ErrReplaced = errors.New("a hook of the relay was set after New; set it before, and both are called")

type hooks struct {
	onEvent          func(ctx context.Context, e nostr.Event) (reject bool, msg string)
	deleteEvent      func(ctx context.Context, id nostr.ID) error
	onEventSaved     func(ctx context.Context, e nostr.Event)
	onRequest        func(ctx context.Context, f nostr.Filter) (reject bool, msg string)
	preventBroadcast func(ws *khatru.WebSocket, f nostr.Filter, e nostr.Event) bool
}

func hooksOf(r *khatru.Relay) hooks {
	return hooks{
		onEvent: r.OnEvent, deleteEvent: r.DeleteEvent, onEventSaved: r.OnEventSaved, onRequest: r.OnRequest,
		preventBroadcast: r.PreventBroadcast,
	}
}

// Embed adds the hooks to the relay. Call it once, before the relay serves.
func (s *Sync) Embed() {
	r := s.relay
	if r.ServiceURL == "" {
		r.ServiceURL = s.core.Us.CloneBase() // else khatru derives it from the Host header
	}
	r.OnEvent, r.StoreEvent, r.ReplaceEvent = s.onEvent, s.storeEvent, s.storeEvent
	r.DeleteEvent, r.OnEventSaved = s.deleteEvent, s.onEventSaved
	r.OnRequest, r.QueryStored = s.onRequest, s.queryStored
	if s.hides != nil {
		r.PreventBroadcast = s.preventBroadcast
	}
	s.embedded = pointers(r)
	if r.Info == nil {
		return
	}
	r.Info.AddSupportedNIP(40)
	r.Info.AddSupportedNIP(62)
	if r.Info.Limitation == nil { // clients use it for paging
		most := min(s.maxQuery, s.store.PageSize())
		r.Info.Limitation = &nip11.RelayLimitationDocument{
			MaxMessageLength: int(r.MaxMessageSize), MaxLimit: most, DefaultLimit: most, MaxEventTags: wire.MaxTags,
			RestrictedWrites: s.core.ApplyPolicyToClients,
		}
		if s.core.ApplyPolicyToClients {
			r.Info.Limitation.CreatedAtUpperLimit = int64(relaysync.FutureTolerance / time.Second)
		}
	}
}

func pointers(r *khatru.Relay) (all [7]uintptr) {
	for i, hook := range []any{r.OnEvent, r.StoreEvent, r.ReplaceEvent, r.DeleteEvent, r.OnEventSaved, r.OnRequest, r.QueryStored} {
		all[i] = reflect.ValueOf(hook).Pointer()
	}
	return all
}
