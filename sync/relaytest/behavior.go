package relaytest

import (
	"fmt"
	"time"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync/sync/wire"
)

// Behavior configures a [Relay]. The zero value is an honest relay with NIP-77 and without limits.
// The fields are independent of each other. Functions are called while the client sends. They must
// not block and must not change their arguments.
type Behavior struct {
	// Info is the NIP-11 document. Clients must not send messages larger than
	// Info.MaxMessageLength, and the rules of [Relay.Violations] follow Info. The relay itself
	// refuses requests by the fields below.
	Info wire.Info
	// Software selects the messages of the relay, and the order in which it checks the limits
	// below. [LocalRelay], [GraspRelay], [Strfry] and [Khatru] set it together with the limits of
	// these programs.
	Software Software
	// Down makes every dial fail. Setting it cuts all connections.
	Down bool
	// DialError is the error of every dial.
	DialError error
	// DialDelay is the duration of every dial.
	DialDelay time.Duration
	// NoAnswer makes dials block until their context ends.
	NoAnswer bool
	// Latency delays every answer and every live event.
	Latency time.Duration
	// CutAfter cuts a connection after this number of delivered messages.
	CutAfter int
	// Cuts is the maximum number of cuts by CutAfter, over all connections; 0 means no maximum.
	Cuts int
	// Cap is the maximum number of events for a filter, whatever its limit.
	Cap int
	// DefaultLimit is the limit of a filter without limit; 0 means none.
	DefaultLimit int
	// MaxSubs is the maximum number of subscriptions per connection, and separately of NEG
	// sessions. More are refused by a NOTICE without id.
	MaxSubs int
	// MaxFilters is the maximum number of filters in a REQ.
	MaxFilters int
	// MaxMessage is the maximum size of a message in bytes. A longer message cuts the connection.
	MaxMessage int
	// RateLimit is the maximum number of REQ and NEG-OPEN per connection in 60 s. As on khatru, a
	// REQ in which every filter has limit 0 does not count. More are refused by CLOSED or NEG-ERR.
	RateLimit int
	// ClosedReason refuses a REQ by CLOSED with the returned reason, unless it is empty.
	ClosedReason func(req wire.Request) string
	// Hints adds NIP-67 hints to EOSE.
	Hints bool
	// Auth is the use of NIP-42.
	Auth AuthMode
	// Negentropy is the use of NIP-77.
	Negentropy NegMode
	// OnConnect is called for each new connection.
	OnConnect func(c *ConnScript)
	// Handle is called first for each message. If it returns true, the relay does not answer the
	// message otherwise.
	Handle func(c *ConnScript, req wire.Request) (handled bool)

	// Less common fields are grouped.
	Link
	Bounds
	Refusals
	Oddities
	Hostility
	Reconciling
}

// Link configures the connection to a relay.
type Link struct {
	// MessageDelay is the minimum time between two messages of a connection.
	MessageDelay time.Duration
	// BytesPerSecond is the speed of a connection; 0 means no limit.
	BytesPerSecond int
	// StopReading blocks Send of the client, like a full socket.
	StopReading bool
	// Drip is the time between two stored events of an answer.
	Drip time.Duration
}

// Bounds are less common limits; 0 means no limit.
type Bounds struct {
	// MaxNegs is the maximum number of NEG sessions per connection. Defaults to MaxSubs.
	MaxNegs int
	// MaxSubBytes is the maximum total size of the REQs of all subscriptions of a connection, in
	// bytes as sent.
	MaxSubBytes int
	// MaxSubID is the maximum length of a subscription id in bytes.
	MaxSubID int
	// RateLimitNotice refuses by NOTICE the requests that exceed RateLimit.
	RateLimitNotice bool
	// RateBurst is the number of requests that are allowed before RateLimit applies. Defaults to
	// RateLimit. Only khatru uses it. khatru counts filters instead of REQs, for all connections
	// together.
	RateBurst int
	// NegRate is the maximum number of NEG-MSG per connection in 60 s. MessageRate is the maximum number
	// of messages of any type in 60 s; one more ends the connection without a message.
	NegRate, MessageRate int
	// MaxEvent is the maximum size of an EVENT in bytes of its JSON.
	MaxEvent int
	// MaxLive is the maximum number of live events that wait for a slow reader. One more drops all
	// waiting live events and closes all subscriptions of the connection.
	MaxLive int
}

// Refusals are requests that some relays refuse, and unusual ways to refuse.
type Refusals struct {
	// RefuseKindless refuses a REQ with a filter that has no kinds, authors or ids.
	RefuseKindless bool
	// RefuseValueOver refuses a REQ with a value longer than this number of bytes.
	RefuseValueOver int
	// RefuseTagNamesOver refuses a REQ with a filter that has more tag names.
	RefuseTagNamesOver int
	// RefuseTagValuesOver answers a filter with more tag values by NOTICE and EOSE, like relays on
	// SQL databases.
	RefuseTagValuesOver int
	// RefuseSetOver refuses a REQ with a list of ids, authors or tag values that has more bytes in
	// total.
	RefuseSetOver int
	// ValidFilters and ValidKinds are strfry's filterValidation: the maximum number of filters in a REQ
	// and of kinds in a filter. 0 filters turn it off.
	ValidFilters, ValidKinds int
	// RefuseByNotice refuses every REQ by a NOTICE without its id, like older relays.
	RefuseByNotice bool
	// NoticeInstead answers a REQ only with the returned NOTICE, unless it is empty.
	NoticeInstead func(req wire.Request) string
	// NoticeThenEOSE answers a REQ with the returned NOTICE and EOSE, like khatru after a failure
	// of its database, unless it is empty.
	NoticeThenEOSE func(req wire.Request) string
}

// Oddities are deviations from NIP-01 without bad intent.
type Oddities struct {
	// NeverEOSE omits every EOSE.
	NeverEOSE bool
	// LimitZeroReturnsStored treats limit 0 as no limit.
	LimitZeroReturnsStored bool
	// IgnoreLimit ignores limits. Cap still applies.
	IgnoreLimit bool
	// IgnoreUntil ignores until in filters.
	IgnoreUntil bool
	// WrongOrder sends the events of an answer oldest first.
	WrongOrder bool
	// Interleave mixes concurrent answers.
	Interleave bool
	// LateListen sends live events of a subscription only after its EOSE, so that events published
	// between query and EOSE are missed. As on khatru, filters with limit 0 receive live events
	// immediately.
	LateListen bool
	// LateEvents is the number of messages of a subscription that still arrive after its CLOSE.
	LateEvents int
	// EventsAfterClosed still sends events for a REQ that was refused by CLOSED.
	EventsAfterClosed bool
}

// Hostility is harmful behavior.
type Hostility struct {
	// UnaskedEvents is the number of events before each answer that match no filter.
	UnaskedEvents int
	// Forge sends forged copies of events. With ForgeFirst the genuine event follows.
	Forge      Forgery
	ForgeFirst bool
	// EndlessEvents sends invented events after the stored ones, with this time between two events,
	// and never ends an answer. They have valid signatures and match kinds and first tag values of
	// the filter. Endless, if set, creates them instead.
	EndlessEvents time.Duration
	Endless       func(n int, f nostr.Filter) *nostr.Event
	// LyingNegentropy is the number of announced ids that do not exist.
	LyingNegentropy int
}

// Reconciling are limits and messages of NIP-77.
type Reconciling struct {
	// NegText replaces the text of the refusal.
	NegText string
	// NegMax is the maximum number of records to reconcile. More are refused ("blocked", with the
	// number). On rust-nostr it applies to all sessions of a connection together.
	NegMax int
	// NegRounds ends a session after this number of answers ("closed").
	NegRounds int
	// NegTimeout ends a session after this time without a message ("closed").
	NegTimeout time.Duration
	// NegFrame is the maximum size of an answer in bytes. Defaults to 500,000.
	NegFrame int
}

// AuthMode is the use of NIP-42 by a [Relay].
type AuthMode uint8

// The zero AuthMode sends no challenge.
const (
	AuthNone AuthMode = iota
	// AuthOffered sends a challenge and requires nothing.
	AuthOffered
	// AuthRequired refuses requests before AUTH ("auth-required:").
	AuthRequired
	// AuthRestricted refuses requests also after AUTH ("restricted:").
	AuthRestricted
)

// Forgery is a way to forge an event. The id is always the genuine id.
type Forgery uint8

// The zero Forgery forges nothing.
const (
	ForgeNone Forgery = iota
	// ForgeSignature has genuine content and an invalid signature.
	ForgeSignature
	// ForgeContent has other content with genuine signature and author.
	ForgeContent
	// ForgeID has other content, with a valid signature by another author. Only a comparison of the
	// id detects it.
	ForgeID
)

// NegMode is the use of NIP-77 by a [Relay].
type NegMode uint8

// The zero NegMode reconciles.
const (
	NegOn NegMode = iota
	// NegNotice refuses with a NOTICE.
	NegNotice
	// NegErr refuses with NEG-ERR.
	NegErr
	// NegError refuses with NEG-ERROR, khatru's spelling. It differs from NegErr only over a real
	// socket.
	NegError
	// NegClosed refuses with CLOSED.
	NegClosed
	// NegSilent does not answer.
	NegSilent
	// NegEndless answers every message with ranges that never match.
	NegEndless
	// NegGarbage answers with bytes that are not a negentropy message.
	NegGarbage
	// NegHugeList answers with a list that claims 2^27 ids and contains none.
	NegHugeList
)

func (b *Behavior) off() bool {
	switch b.Negentropy {
	case NegNotice, NegErr, NegError, NegClosed, NegSilent:
		return true
	}
	return false
}

// strfryLimits sets the limits that operators usually change.
func (b *Behavior) strfryLimits(subs, message int) Behavior {
	b.MaxSubs, b.Info.MaxSubscriptions = subs, subs
	b.MaxMessage, b.Info.MaxMessageLength = message, message
	return *b
}

// String names the mode, for test tables.
func (m NegMode) String() string {
	names := [...]string{"on", "notice", "neg-err", "neg-error", "closed", "silent", "endless", "garbage", "huge list"}
	if int(m) < len(names) {
		return names[m]
	}
	return fmt.Sprintf("neg(%d)", uint8(m))
}
