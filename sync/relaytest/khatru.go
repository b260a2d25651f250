package relaytest

import (
	"time"

	"github.com/graspsync/graspsync/sync/wire"
)

// Khatru returns the behavior of khatru 0.19.1 after NewRelay: messages of at most 512,000 bytes,
// no other limit, no limits in NIP-11, and no NIP-77. Fields correspond to its package policies:
//
//	MustAuth              Auth: AuthRequired
//	FilterIPRateLimiter   RateLimit and RateBurst
//	AntiSyncBots          RefuseKindless
//	relay.Negentropy      Negentropy: NegOn
//
// The database limits the number of events (Cap, DefaultLimit). The challenge is sent with the
// refusal that requires AUTH. Filters with limit 0 are not checked. If a filter of a REQ is
// refused, earlier filters still receive live events. A NEG session ends after 7 s without a
// message.
func Khatru() Behavior {
	return Behavior{
		Software:   SoftwareKhatru,
		Info:       wire.Info{Software: "https://github.com/fiatjaf/khatru", NIPs: []int{1, 11, 42, 70, 86}},
		MaxMessage: 512_000,
		Negentropy: NegNotice,
		NegFrame:   1 << 20,
		NegTimeout: 7 * time.Second,
	}
}

// KhatruDefaults is [Khatru] with the rate of policies.ApplySaneDefaults: per address 20 filters a minute
// after a burst of 100.
func KhatruDefaults() Behavior {
	b := Khatru()
	b.RateLimit, b.RateBurst = 20, 100
	return b
}

// bucket is khatru's meter. Each request fills it by one, up to burst, and once a minute the
// allowance of a minute flows off.
type bucket struct {
	level int
	since time.Time // time of the last outflow
}

func (b *bucket) take(now time.Time, perMinute, burst int) bool {
	if b.since.IsZero() {
		b.since = now
	}
	for ; now.Sub(b.since) >= time.Minute; b.since = b.since.Add(time.Minute) {
		b.level = max(0, b.level-perMinute)
	}
	if b.level >= burst {
		return false
	}
	b.level++
	return true
}
