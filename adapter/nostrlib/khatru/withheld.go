package khatruadapter

import (
	"context"
	"iter"
	"slices"

	"fiatjaf.com/nostr"
	"fiatjaf.com/nostr/khatru"

	"github.com/graspsync/graspsync"
	eventstoreadapter "github.com/graspsync/graspsync/adapter/eventstore"
	"github.com/graspsync/graspsync/adapter/nostrlib"
)

// withheld hides deletions and requests to vanish for which Config.Hides is true from clients.
type withheld struct {
	names func(graspsync.Event) bool // nil: nothing is withheld
	store *nostrlib.Store
}

// stays are the kinds that can be hidden.
var stays = []nostr.Kind{graspsync.KindDeletion, graspsync.KindVanish}

// among returns the kinds in stays that a filter matches.
func among(f nostr.Filter) []nostr.Kind {
	if len(f.Kinds) == 0 { // an empty list, which some backends read as no list
		return stays
	}
	return slices.DeleteFunc(slices.Clone(stays), func(k nostr.Kind) bool { return !slices.Contains(f.Kinds, k) })
}

func (w withheld) is(e nostr.Event) bool {
	if w.names == nil || !slices.Contains(stays, e.Kind) {
		return false
	}
	ev, err := nostrlib.FromEvent(e)
	return err == nil && w.names(ev)
}

// from reports whether a query can match hidden events and must not return them.
func (w withheld) from(ctx context.Context, f nostr.Filter) bool {
	return w.names != nil && !khatru.IsInternalCall(ctx) && len(among(f)) > 0
}

// context returns a context in which the store omits hidden events if the query requires that.
func (w withheld) context(ctx context.Context, f nostr.Filter) context.Context {
	if !w.from(ctx, f) {
		return ctx
	}
	return eventstoreadapter.Without(ctx, func(e graspsync.Event) bool {
		return (e.Kind == graspsync.KindDeletion || e.Kind == graspsync.KindVanish) && w.names(e)
	})
}

// reconciled returns the events of a reconciliation without hidden events. Most events are read as
// time and id only, so a second query finds the hidden ones. It runs afterwards, because events
// that arrive in between are not in the first result.
func (w withheld) reconciled(ctx context.Context, f nostr.Filter) ([]graspsync.EventKey, error) {
	stamps, err := w.store.Reconciled(ctx, f)
	if err != nil || len(stamps) == 0 || !w.from(ctx, f) {
		return stamps, err
	}
	f.Kinds, f.Limit, f.LimitZero = among(f), 0, false
	hidden := make(map[graspsync.EventID]struct{})
	for e, err := range w.store.Events(ctx, nostrlib.FromFilter(f)) {
		if err != nil {
			return nil, err
		}
		if w.names(e) {
			hidden[e.ID] = struct{}{}
		}
	}
	return slices.DeleteFunc(stamps, func(s graspsync.EventKey) bool {
		_, is := hidden[s.ID]
		return is
	}), nil
}

// queryTheirs wraps the embedder's QueryStored hook if Config.Hides is set.
func (s *Sync) queryTheirs(ctx context.Context, f nostr.Filter) iter.Seq[nostr.Event] {
	if !s.withheld.from(ctx, f) {
		return s.theirs.queryStored(ctx, f)
	}
	return func(yield func(nostr.Event) bool) {
		f, ctx, wanted := f, s.withheld.context(ctx, f), f.Limit
		for ; ; f.Limit *= 2 { // to replace hidden events by others
			found := slices.Collect(s.theirs.queryStored(ctx, f))
			n := len(found)
			found = slices.DeleteFunc(found, s.withheld.is)
			if 0 < f.Limit && f.Limit <= n && f.Limit < s.maxQuery && len(found) < wanted {
				continue
			}
			for i, e := range found {
				if i > 0 && i == wanted || !yield(e) {
					return
				}
			}
			return
		}
	}
}

// preventBroadcast is the PreventBroadcast hook if Config.Hides is set.
func (s *Sync) preventBroadcast(ws *khatru.WebSocket, f nostr.Filter, e nostr.Event) bool {
	return s.withheld.is(e) || s.theirs.preventBroadcast != nil && s.theirs.preventBroadcast(ws, f, e)
}
