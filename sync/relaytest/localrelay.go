package relaytest

import (
	"time"

	"github.com/graspsync/graspsync/sync/wire"
)

// LocalRelay returns the behavior of the relay in rust-nostr (nostr-sdk 0.45.4, local_relay) with
// default settings:
//
//	500 REQs of 20 filters, 1 MiB of REQs in all
//	500 events for a filter, also without a limit
//	10 NEG sessions of together 50,000 records, answers of 60,000 bytes
//	1,200 REQs and NEG-OPENs, 1,200 NEG-MSGs a minute
//	6,000 messages a minute, then the connection ends without a message
//	messages of 5 MiB, events of 64 KiB, subscription ids of 250 bytes
//	1,024 waiting live events, then all subscriptions are closed
//
// All refusals begin with "rate-limited:", even permanent ones. Versions before 0.45.2 allow 120
// queries a minute (RateLimit and NegRate), older versions 300 messages (MessageRate).
//
// Quota is returned by whole seconds since the last attempt, even a refused one. A client that asks
// more than once a second therefore gets no quota back.
//
// The NIP-11 document contains the number of subscriptions, the limit of a filter, and the maximum
// lengths of a message and an id. Without an embedder that serves it there is no document; use an
// empty Info for that.
func LocalRelay() Behavior {
	return Behavior{
		Software: SoftwareRustNostr,
		Info: wire.Info{
			Software:         "https://github.com/rust-nostr/nostr",
			NIPs:             []int{1, 9, 11, 42, 45, 70, 77},
			MaxMessageLength: 5 << 20,
			MaxSubscriptions: 500,
			MaxLimit:         500,
			MaxSubIDLength:   250,
		},
		Cap:          500,
		DefaultLimit: 500,
		MaxSubs:      500,
		MaxFilters:   20,
		MaxMessage:   5 << 20,
		RateLimit:    1200,
		MaxNegs:      10,
		MaxSubBytes:  1 << 20,
		MaxSubID:     250,
		MaxEvent:     64 << 10,
		MaxLive:      1024,
		NegRate:      1200,
		MessageRate:  6000,
		NegMax:       50_000,
		NegFrame:     60_000,
	}
}

// GraspRelay is [LocalRelay] as ngit-grasp 3.0 configures it: 5 MiB of REQs in all, and events of
// 192 KiB.
func GraspRelay() Behavior {
	b := LocalRelay()
	b.Info.Software = "https://gitworkshop.dev/danconwaydev.com/ngit-grasp"
	b.Info.NIPs = []int{1, 5, 9, 11, 34, 62, 77}
	b.MaxSubBytes = 5 << 20
	b.MaxEvent = 192 << 10
	return b
}

// tokens is rust-nostr's meter. It returns quota by whole seconds since the last attempt.
type tokens struct {
	left int
	last time.Time // zero before the first attempt
}

func (t *tokens) take(now time.Time, perMinute int) bool {
	if t.last.IsZero() {
		t.left = perMinute
	} else {
		elapsed := min(now.Sub(t.last), time.Minute)
		part := float32(elapsed/time.Second) / 60
		t.left = min(t.left+int(part*float32(perMinute)), perMinute)
	}
	t.last = now
	if t.left == 0 {
		return false
	}
	t.left--
	return true
}
