package sync_test

import (
	"math/rand/v2"

	"github.com/graspsync/graspsync/sync/relaytest"
)

// trait is a permanent property of an honest relay.
type trait struct {
	name string
	on   bool // enabled by default; see -sim.traits
	set  func(rng *rand.Rand, b *relaytest.Behavior)
}

// simTraits are the traits that the generator uses.
var simTraits = []trait{
	{"page of 5 to 45", true, func(rng *rand.Rand, b *relaytest.Behavior) { b.Cap = 5 + rng.IntN(40) }},
	{"page of 5", true, func(_ *rand.Rand, b *relaytest.Behavior) { b.Cap = 5 }},
	{"default limit", true, func(_ *rand.Rand, b *relaytest.Behavior) { b.DefaultLimit = 10 }},
	{"hints", true, func(_ *rand.Rand, b *relaytest.Behavior) { b.Hints = true }},
	{"wrong order", true, func(_ *rand.Rand, b *relaytest.Behavior) { b.WrongOrder = true }},
	{"interleaves", true, func(_ *rand.Rand, b *relaytest.Behavior) { b.Interleave = true }},
	{"late events", true, func(_ *rand.Rand, b *relaytest.Behavior) { b.LateEvents = 3 }},
	{"listens late", true, func(_ *rand.Rand, b *relaytest.Behavior) { b.LateListen = true }},
	{"limit 0 returns stored", true, func(_ *rand.Rand, b *relaytest.Behavior) { b.LimitZeroReturnsStored = true }},
	{"slow link", true, func(_ *rand.Rand, b *relaytest.Behavior) { b.BytesPerSecond = 20_000 }},
	{"rate limit", true, func(rng *rand.Rand, b *relaytest.Behavior) { b.RateLimit = 5 + rng.IntN(20) }},
	{"rate limit by NOTICE", true, func(rng *rand.Rand, b *relaytest.Behavior) { b.RateLimit, b.RateLimitNotice = 5+rng.IntN(20), true }},
	{"small messages, says so", true, func(_ *rand.Rand, b *relaytest.Behavior) {
		b.Info.MaxMessageLength, b.MaxMessage = 8<<10, 8<<10
	}},
	{"few filters, says so", true, func(_ *rand.Rand, b *relaytest.Behavior) { b.Info.MaxFilters, b.MaxFilters = 4, 4 }},
	{"few subscriptions, says so", true, func(_ *rand.Rand, b *relaytest.Behavior) { b.Info.MaxSubscriptions, b.MaxSubs = 6, 6 }},
	{"forgets NEG sessions", true, func(_ *rand.Rand, b *relaytest.Behavior) { b.NegRounds, b.NegFrame = 1, 4096 }},
	{"few filters", true, func(rng *rand.Rand, b *relaytest.Behavior) { b.MaxFilters = 1 + rng.IntN(8) }},
	{"few filters, by NOTICE", true, func(rng *rand.Rand, b *relaytest.Behavior) { b.MaxFilters, b.RefuseByNotice = 1+rng.IntN(8), true }},
	{"few subscriptions", true, func(rng *rand.Rand, b *relaytest.Behavior) { b.MaxSubs = 4 + rng.IntN(6) }},
	{"few tag values", true, func(rng *rand.Rand, b *relaytest.Behavior) { b.RefuseTagValuesOver = 10 + rng.IntN(40) }},
	{"no filters without kinds", true, func(_ *rand.Rand, b *relaytest.Behavior) { b.RefuseKindless = true }},
	{"few records to reconcile", true, func(rng *rand.Rand, b *relaytest.Behavior) {
		b.Negentropy, b.NegMax = relaytest.NegOn, 3+rng.IntN(50)
	}},
	{"small messages", true, func(_ *rand.Rand, b *relaytest.Behavior) { b.MaxMessage = 16 << 10 }},
	{"offers authentication", true, func(_ *rand.Rand, b *relaytest.Behavior) { b.Auth = relaytest.AuthOffered }},
}

// simModels are relay programs, with limits that matter in a small world.
var simModels = []trait{
	{"rust-nostr", true, func(rng *rand.Rand, b *relaytest.Behavior) { rustLike(rng, b, relaytest.LocalRelay()) }},
	{"ngit-grasp", true, func(rng *rand.Rand, b *relaytest.Behavior) { rustLike(rng, b, relaytest.GraspRelay()) }},
	{"old rust-nostr", true, func(rng *rand.Rand, b *relaytest.Behavior) {
		rustLike(rng, b, relaytest.LocalRelay())
		b.RateLimit, b.NegRate, b.MessageRate = 120, 120, 300
	}},
	{"strfry", true, func(rng *rand.Rand, b *relaytest.Behavior) { strfryLike(rng, b, relaytest.Strfry()) }},
	{"strfry as nos.lol", true, func(rng *rand.Rand, b *relaytest.Behavior) { strfryLike(rng, b, relaytest.StrfryNosLol()) }},
	{"strfry as primal", true, func(rng *rand.Rand, b *relaytest.Behavior) { strfryLike(rng, b, relaytest.StrfryPrimal()) }},
	{"strfry as damus", true, func(rng *rand.Rand, b *relaytest.Behavior) { strfryLike(rng, b, relaytest.StrfryDamus()) }},
	{"strfry that validates", true, func(rng *rand.Rand, b *relaytest.Behavior) { strfryLike(rng, b, relaytest.StrfryValidating()) }},
	{"khatru", true, func(rng *rand.Rand, b *relaytest.Behavior) { khatruLike(rng, b, relaytest.Khatru()) }},
	{"khatru with defaults", true, func(rng *rand.Rand, b *relaytest.Behavior) { khatruLike(rng, b, relaytest.KhatruDefaults()) }},
}

// rustLike is a rust-nostr relay with its usual limits, which are never reached, or with low ones.
func rustLike(rng *rand.Rand, b *relaytest.Behavior, model relaytest.Behavior) {
	model.Latency = b.Latency
	*b = model
	if rng.IntN(2) == 0 {
		return
	}
	b.MaxSubBytes = 4<<10 + rng.IntN(60<<10)
	b.MaxFilters = 1 + rng.IntN(8)
	b.MaxNegs, b.NegMax = 1+rng.IntN(3), 10+rng.IntN(100)
	b.MaxLive = 5 + rng.IntN(20)
	b.Cap = 10 + rng.IntN(50)
	b.MaxSubs = 5 + rng.IntN(10)
	b.Info.MaxLimit, b.Info.MaxSubscriptions = b.Cap, b.MaxSubs
}

// strfryLike is a strfry with its usual limits or with low ones.
func strfryLike(rng *rand.Rand, b *relaytest.Behavior, model relaytest.Behavior) {
	model.Latency = b.Latency
	*b = model
	if rng.IntN(2) == 0 {
		return
	}
	b.MaxFilters = 1 + rng.IntN(8)
	b.NegMax = 10 + rng.IntN(100)
	b.Cap = 10 + rng.IntN(50)
	b.MaxSubs = 5 + rng.IntN(10)
	b.MaxMessage = 8<<10 + rng.IntN(32<<10)
	b.Info.MaxLimit, b.Info.MaxSubscriptions, b.Info.MaxMessageLength = b.Cap, b.MaxSubs, b.MaxMessage
}

// khatruLike is a khatru with or without NIP-77, whose database returns a limited number of events
// or all.
func khatruLike(rng *rand.Rand, b *relaytest.Behavior, model relaytest.Behavior) {
	model.Latency = b.Latency
	if b.Negentropy == relaytest.NegOn {
		model.Negentropy = relaytest.NegOn
	}
	*b = model
	if rng.IntN(2) == 0 {
		b.Cap = 10 + rng.IntN(100)
		b.DefaultLimit = b.Cap
	}
}

// Other parts of a simulation, which can be disabled.
const (
	simFuture      = true // events dated further ahead than is accepted, which time catches up with
	simSecond      = true // more events in a second than a page holds
	simState       = true // restarts with a memory, once Config has one
	simFailedQuery = true // a NOTICE and EOSE instead of events is a failure, to ids as well
	simLateLimit   = true // "rate-limited" counts, though the request that it answers was given up
	simReexamined  = true // states of those who become maintainers later: needs the memory of what was rejected
	simLongDown    = true // a relay is down for more than a day
	simBulk        = true // deletions of more events than a filter or a REQ takes
	simSickStore   = true // our store fails for some events, for a while
	simForeign     = true // relays hold far more of other servers' repositories than of ours
	simDirect      = true // clients publish to our own relay as well
	simFakes       = true // strangers' repositories that list us, on relays that have nothing
	simPartly      = true // our store can't prove that it gives all there is
	simUndialed    = true // a relay is not dialed for more than a day, for reasons of our own
	simBadCopies   = true // an honest relay has events with wrong signatures, for good
)
