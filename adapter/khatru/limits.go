package khatruadapter

import (
	"context"
	"time"

	"github.com/fiatjaf/eventstore"
	"github.com/fiatjaf/khatru"
	"github.com/nbd-wtf/go-nostr"

	relaysync "github.com/graspsync/graspsync/sync"
)

// defaultLimit is the number of stored events that a filter without a limit gets: so many of the largest events are
// what a client may cost without having asked for it.
const defaultLimit = 500

// Limit has a relay give at most so many stored events for a filter, because a backend that gives at most so many would give
// fewer to some that ask for more. It returns the limits that hold in a NIP-11 document, with that of GateDirect for dates. A
// gate has others, see its Limits. It is called before other hooks are added to the relay.
func Limit(relay *khatru.Relay, most int) map[string]any {
	fewest := min(defaultLimit, most)
	relay.OverwriteFilter = append(relay.OverwriteFilter, func(ctx context.Context, f *nostr.Filter) {
		switch {
		case eventstore.IsNegentropySession(ctx) || khatru.IsInternalCall(ctx) || khatru.GetConnection(ctx) == nil:
		case nostr.GetTheoreticalLimit(*f) >= 0: // by ids, for one: they bound it
		case f.Limit > most:
			f.Limit = most
		case f.Limit == 0 && !f.LimitZero:
			f.Limit = fewest
		}
	})
	return map[string]any{
		"max_limit": most, "default_limit": fewest, "created_at_upper_limit": int(relaysync.FutureTolerance / time.Second),
		"auth_required": false, "payment_required": false, "restricted_writes": true,
	}
}
