package khatruadapter

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"reflect"
	"time"

	"fiatjaf.com/nostr"
	"fiatjaf.com/nostr/khatru"
	"fiatjaf.com/nostr/nip11"

	relaysync "github.com/graspsync/graspsync/sync"
	"github.com/graspsync/graspsync/sync/wire"
)

// ErrReplaced is wrapped by the error of [Sync.Run] if a hook of the relay was set after [New],
// because that hook would replace the hook of New.
var ErrReplaced = errors.New("a hook of the relay was set after New; set it before, and both are called")

// hooks are the hooks of a relay that wire wraps.
type hooks struct {
	onEvent       func(ctx context.Context, e nostr.Event) (reject bool, msg string)
	storeEvent    func(ctx context.Context, e nostr.Event) error
	replaceEvent  func(ctx context.Context, e nostr.Event) error
	deleteEvent   func(ctx context.Context, id nostr.ID) error
	onEventSaved  func(ctx context.Context, e nostr.Event)
	allowDeleting func(ctx context.Context, target, deletion nostr.Event) bool
	onRequest     func(ctx context.Context, f nostr.Filter) (reject bool, msg string)
	onCount       func(ctx context.Context, f nostr.Filter) (reject bool, msg string)
	queryStored   func(ctx context.Context, f nostr.Filter) iter.Seq[nostr.Event]
	count         func(ctx context.Context, f nostr.Filter) (uint32, error)
	// used with Config.Hides
	preventBroadcast func(ws *khatru.WebSocket, f nostr.Filter, e nostr.Event) bool
}

func hooksOf(r *khatru.Relay) hooks {
	return hooks{
		onEvent: r.OnEvent, storeEvent: r.StoreEvent, replaceEvent: r.ReplaceEvent, deleteEvent: r.DeleteEvent,
		onEventSaved: r.OnEventSaved, allowDeleting: r.AllowDeleting,
		onRequest: r.OnRequest, onCount: r.OnCount, queryStored: r.QueryStored, count: r.Count,
		preventBroadcast: r.PreventBroadcast,
	}
}

func (s *Sync) wire() {
	r := s.relay
	r.OnEvent = s.onEvent
	r.StoreEvent, r.ReplaceEvent = s.storeEvent, s.replaceEvent
	r.DeleteEvent = s.deleteEvent
	r.OnEventSaved = s.onEventSaved
	r.AllowDeleting = s.allowDeleting
	r.OnRequest, r.OnCount = s.onRequest, s.onCount
	withholds := s.withheld.names != nil
	switch {
	case s.theirs.queryStored == nil:
		r.QueryStored = s.queryStored
	case withholds:
		r.QueryStored = s.queryTheirs
	}
	if withholds {
		r.PreventBroadcast = s.preventBroadcast
	}
	if s.theirs.count == nil {
		r.Count = s.count
	}
	if r.Info == nil {
		return
	}
	r.Info.AddSupportedNIP(40)
	r.Info.AddSupportedNIP(62)
	if r.Info.Limitation == nil && s.theirs.queryStored == nil { // clients use it for paging
		most := min(s.maxQuery, s.store.PageSize())
		r.Info.Limitation = &nip11.RelayLimitationDocument{
			MaxMessageLength: int(r.MaxMessageSize), MaxLimit: most, DefaultLimit: most, MaxEventTags: wire.MaxTags,
			RestrictedWrites: s.core.Gate,
		}
		if s.core.Gate {
			r.Info.Limitation.CreatedAtUpperLimit = int64(relaysync.FutureTolerance / time.Second)
		}
	}
}

// inPlace returns an error if a hook of wire was replaced.
func (s *Sync) inPlace() error {
	r, withholds := s.relay, s.withheld.names != nil
	query := s.queryStored
	if s.theirs.queryStored != nil {
		query = s.queryTheirs
	}
	for _, h := range []struct {
		name     string
		is, ours any
		set      bool // by us
	}{
		{"OnEvent", r.OnEvent, s.onEvent, true}, {"StoreEvent", r.StoreEvent, s.storeEvent, true},
		{"ReplaceEvent", r.ReplaceEvent, s.replaceEvent, true}, {"DeleteEvent", r.DeleteEvent, s.deleteEvent, true},
		{"OnEventSaved", r.OnEventSaved, s.onEventSaved, true}, {"AllowDeleting", r.AllowDeleting, s.allowDeleting, true},
		{"OnRequest", r.OnRequest, s.onRequest, true}, {"OnCount", r.OnCount, s.onCount, true},
		{"QueryStored", r.QueryStored, query, s.theirs.queryStored == nil || withholds},
		{"PreventBroadcast", r.PreventBroadcast, s.preventBroadcast, withholds},
	} {
		if h.set && reflect.ValueOf(h.is).Pointer() != reflect.ValueOf(h.ours).Pointer() {
			return fmt.Errorf("khatru adapter: %s: %w", h.name, ErrReplaced)
		}
	}
	return nil
}
