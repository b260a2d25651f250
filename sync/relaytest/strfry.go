package relaytest

import "github.com/graspsync/graspsync/sync/wire"

// Strfry returns the behavior of strfry 1.1.1 with default settings:
//
//	200 subscriptions, and separately 200 NEG sessions
//	200 filters in a REQ, 3 tag names in a filter, 500 events for a filter
//	values of 255 bytes, 65,535 bytes of values in a list
//	1,000,000 records to reconcile, answers of 500,000 bytes
//	messages of 128 KiB, events of 64 KiB, subscription ids of 64 bytes
//
// It has no rate limits. It refuses a REQ by CLOSED with "ERROR: bad req:" and the reason; one bad
// value refuses the whole REQ. If there are too many subscriptions, it still sends the stored
// events and then a NOTICE without id, and no live events. The NIP-11 document contains the number
// of subscriptions, the limit of a filter, and the maximum length of a message.
func Strfry() Behavior {
	b := Behavior{
		Software: SoftwareStrfry,
		Info: wire.Info{
			Software: "git+https://github.com/hoytech/strfry.git",
			NIPs:     []int{1, 2, 4, 9, 11, 28, 40, 45, 70, 77},
			MaxLimit: 500,
		},
		Cap:        500,
		MaxFilters: 200,
		MaxSubID:   64, MaxEvent: 64 << 10,
		RefuseTagNamesOver: 3,
		RefuseValueOver:    255,
		RefuseSetOver:      65_535,
		NegMax:             1_000_000,
		NegFrame:           500_000,
	}
	b.setLimits(200, 128<<10)
	return b
}

// setLimits sets the limits that operators usually change.
func (b *Behavior) setLimits(subs, message int) {
	b.MaxSubs, b.Info.MaxSubscriptions = subs, subs
	b.MaxMessage, b.Info.MaxMessageLength = message, message
}

// StrfryNosLol is strfry as on nos.lol: 20 subscriptions.
func StrfryNosLol() Behavior {
	b := Strfry()
	b.setLimits(20, 128<<10)
	return b
}

// StrfryDamus is strfry as on relay.damus.io: messages of 1,000,000 bytes.
func StrfryDamus() Behavior {
	b := Strfry()
	b.setLimits(200, 1_000_000)
	return b
}

// StrfryPrimal is strfry 1.0.3 as on relay.primal.net: 20 subscriptions, messages of 1,000,000
// bytes, refusals by NOTICE, and at most 20 filters. It lists NIP-77 and does not support it.
func StrfryPrimal() Behavior {
	b := Strfry()
	b.RefuseByNotice = true
	b.MaxSubID = 71
	b.MaxFilters = 20
	b.Negentropy = NegNotice
	b.setLimits(20, 1_000_000)
	return b
}

// StrfryValidating is [Strfry] with filterValidation: 3 filters in a REQ, 3 kinds in a filter.
func StrfryValidating() Behavior {
	b := Strfry()
	b.MaxFilters, b.RefuseKindsOver = 3, 3
	return b
}
