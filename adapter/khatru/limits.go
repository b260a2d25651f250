package khatruadapter

import (
	"context"
	"time"

	"github.com/fiatjaf/eventstore"
	"github.com/fiatjaf/khatru"
	"github.com/nbd-wtf/go-nostr"

	relaysync "github.com/graspsync/graspsync/sync"
)

// defaultLimit is in stored events for a filter without a limit.
const defaultLimit = 500

// Limit limits the stored events for a filter to most, and returns limitation fields of the NIP-11
// document, to which gate.Gate.Limits adds. Call it before other hooks are added.
func Limit(relay *khatru.Relay, most int) map[string]any {
	fewest := min(defaultLimit, most)
	relay.OverwriteFilter = append(relay.OverwriteFilter, func(ctx context.Context, f *nostr.Filter) {
		switch {
		case eventstore.IsNegentropySession(ctx) || khatru.IsInternalCall(ctx) || khatru.GetConnection(ctx) == nil:
		case nostr.GetTheoreticalLimit(*f) >= 0: // bounded by ids or addresses
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
