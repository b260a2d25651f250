package khatruadapter

import (
	"context"
	"iter"
	"slices"

	"fiatjaf.com/nostr"
	"fiatjaf.com/nostr/khatru"
	gonostr "github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/adapter/internal/embedding"
	"github.com/graspsync/graspsync/adapter/nostrlib"
)

// withheld keeps clients from getting deletions and requests to vanish that Config.Withholds names.
type withheld struct {
	names func(graspsync.Event) bool // nil: nothing is withheld
	store *nostrlib.Store
	most  int // events that a query gives at most
}

// stays are the kinds of what is withheld.
var stays = []nostr.Kind{graspsync.KindDeletion, graspsync.KindVanish}

// among are those of the kinds that a filter asks for.
func among(f nostr.Filter) []nostr.Kind {
	if len(f.Kinds) == 0 { // which some backends take for none
		return stays
	}
	return slices.DeleteFunc(slices.Clone(stays), func(k nostr.Kind) bool { return !slices.Contains(f.Kinds, k) })
}

// is reports whether an event is withheld.
func (w withheld) is(e nostr.Event) bool {
	if w.names == nil || !slices.Contains(stays, e.Kind) {
		return false
	}
	ev, err := nostrlib.FromEvent(e)
	return err == nil && w.names(ev)
}

// from reports whether something may be withheld from who asks.
func (w withheld) from(ctx context.Context, f nostr.Filter) bool {
	return w.names != nil && !khatru.IsInternalCall(ctx) && len(among(f)) > 0
}

// page is what a client gets for a filter, of what ask gives of one.
func (w withheld) page(ctx context.Context, f nostr.Filter, ask func(nostr.Filter) ([]nostr.Event, error)) ([]nostr.Event, error) {
	if !w.from(ctx, f) {
		return ask(f)
	}
	if len(f.IDs) > 0 { // nobody takes it for a page
		events, err := ask(f)
		return slices.DeleteFunc(events, w.is), err
	}
	wanted := f.Limit
	if wanted <= 0 || wanted > w.most {
		wanted = w.most
	}
	return embedding.Withholding[nostr.Event]{
		Is: w.is,
		Of: func(e nostr.Event) (string, gonostr.Timestamp, int) {
			return e.ID.Hex(), gonostr.Timestamp(e.CreatedAt), len(e.Content)
		},
		Second: func(ctx context.Context, at gonostr.Timestamp) iter.Seq2[nostr.Event, error] {
			return w.second(ctx, f, at)
		},
	}.Page(ctx, func(_ context.Context, until *gonostr.Timestamp, limit int) ([]nostr.Event, error) {
		f := f
		f.Limit = limit
		if until != nil {
			if f.Until = nostr.Timestamp(*until); f.Until <= 0 { // which a filter can't say
				return nil, nil
			}
		}
		return ask(f)
	}, wanted, w.most)
}

// second is all of a second that matches.
func (w withheld) second(ctx context.Context, f nostr.Filter, at gonostr.Timestamp) iter.Seq2[nostr.Event, error] {
	return func(yield func(nostr.Event, error) bool) {
		theirs := nostrlib.FromFilter(f)
		if f.Search != "" || f.LimitZero { // a Store knows nothing of a search
			return
		}
		theirs.Since, theirs.Until, theirs.Limit = &at, &at, 0
		for e, err := range w.store.Events(ctx, theirs) {
			var out nostr.Event
			if err == nil {
				if out, err = nostrlib.ToEvent(e); err != nil {
					continue // it is none of theirs
				}
			}
			if !yield(out, err) {
				return
			}
		}
	}
}

// reconciled returns what a reconciliation is about. Of most there are only times and ids, so what is withheld is looked
// up by itself, after these: what comes between is not among them.
func (w withheld) reconciled(ctx context.Context, f nostr.Filter) ([]graspsync.Stamp, error) {
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
	return slices.DeleteFunc(stamps, func(s graspsync.Stamp) bool {
		_, is := hidden[s.ID]
		return is
	}), nil
}

// queryTheirs is the relay's QueryStored where it has one and something is withheld.
func (s *Sync) queryTheirs(ctx context.Context, f nostr.Filter) iter.Seq[nostr.Event] {
	switch {
	case !s.withheld.from(ctx, f):
		return s.theirs.queryStored(ctx, f)
	case khatru.IsNegentropySession(ctx): // which is not by pages
		return func(yield func(nostr.Event) bool) {
			for e := range s.theirs.queryStored(ctx, f) {
				if !s.withheld.is(e) && !yield(e) {
					return
				}
			}
		}
	}
	return func(yield func(nostr.Event) bool) {
		events, err := s.withheld.page(ctx, f, func(f nostr.Filter) ([]nostr.Event, error) {
			return slices.Collect(s.theirs.queryStored(ctx, f)), nil
		})
		if err != nil {
			s.unanswered(ctx, err)
			return
		}
		for _, e := range events {
			if !yield(e) {
				return
			}
		}
	}
}

// preventBroadcast is the relay's PreventBroadcast where something is withheld.
func (s *Sync) preventBroadcast(ws *khatru.WebSocket, f nostr.Filter, e nostr.Event) bool {
	return s.withheld.is(e) || s.theirs.preventBroadcast != nil && s.theirs.preventBroadcast(ws, f, e)
}
