package relaytest

import (
	"fmt"
	"time"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync/sync/wire"
)

// Behavior configures a [Relay]. The zero value is an honest relay with NIP-77 and without limits.
// Functions are called while the client sends; they must not block or change their arguments.
type Behavior struct {
	// Info is the NIP-11 document, which the rules of [Relay.Violations] follow. The relay itself
	// refuses requests by the fields below.
	Info wire.Info
	// Software selects the messages. [LocalRelay], [GraspRelay], [Strfry] and [Khatru] set it
	// together with their limits.
	Software Software
	// Down makes every dial fail. Setting it cuts all connections.
	Down      bool
	DialError error
	DialDelay time.Duration
	// NoAnswer makes dials block.
	NoAnswer bool
	// Latency delays every answer and every live event.
	Latency time.Duration
	// CutAfter cuts a connection after this number of delivered messages, at most Cuts times over
	// all connections (0: always).
	CutAfter int
	Cuts     int
	// Cap is the maximum number of events for a filter.
	Cap int
	// DefaultLimit is the limit of a filter without limit.
	DefaultLimit int
	// MaxSubs is the maximum number of subscriptions of a connection, and of NEG sessions.
	MaxSubs    int
	MaxFilters int
	// MaxMessage is the maximum size of a message in bytes. A longer one cuts the connection.
	MaxMessage int
	// RateLimit is the maximum number of REQ and NEG-OPEN per connection in 60 s, without REQs of
	// limit 0.
	RateLimit int
	// ClosedReason refuses a REQ by CLOSED unless it returns "".
	ClosedReason func(req wire.Request) string
	Hints        bool
	Auth         AuthMode
	Negentropy   NegMode
	OnConnect    func(c *ConnScript)
	// Handle is called first for each message. If it returns true, the relay does not answer.
	Handle func(c *ConnScript, req wire.Request) (handled bool)

	// How slowly a relay reads and sends.

	// MessageDelay is the minimum time between two messages.
	MessageDelay   time.Duration
	BytesPerSecond int
	StopReading    bool
	// Drip is the time between two stored events.
	Drip time.Duration

	// Less common limits; 0 means none.

	// MaxNegs is the maximum number of NEG sessions, by default MaxSubs.
	MaxNegs int
	// MaxSubBytes is the maximum total size of the REQs of all subscriptions.
	MaxSubBytes int
	MaxSubID    int
	// RateLimitNotice refuses by NOTICE what exceeds RateLimit.
	RateLimitNotice bool
	// RateBurst is the number of requests before RateLimit applies, by default RateLimit. Only
	// khatru uses it; it counts filters, of all connections together.
	RateBurst int
	// NegRate is the maximum number of NEG-MSG per connection in 60 s, MessageRate that of all
	// messages; one more cuts the connection.
	NegRate, MessageRate int
	// MaxEvent is the maximum size of an EVENT in bytes.
	MaxEvent int
	// MaxLive is the maximum number of live events that wait for a slow reader. One more drops them
	// and closes all subscriptions.
	MaxLive int

	// Unusual refusals.

	// RefuseKindless refuses a filter without kinds, authors and ids, the next fields one with
	// longer values, more tag names, more kinds, or a list with more bytes.
	RefuseKindless     bool
	RefuseValueOver    int
	RefuseTagNamesOver int
	RefuseKindsOver    int
	RefuseSetOver      int
	// RefuseTagValuesOver answers a filter with more tag values by NOTICE and EOSE.
	RefuseTagValuesOver int
	// RefuseByNotice refuses every REQ by a NOTICE without its id.
	RefuseByNotice bool

	// Deviations from NIP-01 without bad intent.

	NeverEOSE bool
	// LimitZeroReturnsStored treats limit 0 as no limit.
	LimitZeroReturnsStored bool
	IgnoreLimit            bool
	IgnoreUntil            bool
	// WrongOrder sends stored events oldest first.
	WrongOrder bool
	// Interleave mixes concurrent answers.
	Interleave bool
	// LateListen sends live events only after EOSE, so that some are missed.
	LateListen bool
	// LateEvents is the number of messages of a subscription that arrive after its CLOSE.
	LateEvents int

	// Harmful behavior.

	// Forge sends forged copies of events. With ForgeFirst the genuine ones follow.
	Forge      Forgery
	ForgeFirst bool
	// EndlessEvents is the time between invented events after the stored ones, without end. They
	// match kinds and first tag values of the filter. Endless, if set, creates them.
	EndlessEvents time.Duration
	Endless       func(n int, f nostr.Filter) *nostr.Event
	// LyingNegentropy is the number of claimed ids that do not exist.
	LyingNegentropy int

	// Limits and messages of NIP-77.

	// NegText is the text of the refusal.
	NegText string
	// NegMax is the maximum number of records; on rust-nostr of all sessions of a connection.
	NegMax int
	// NegRounds ends a session after this number of answers, NegTimeout after this time without a
	// message.
	NegRounds  int
	NegTimeout time.Duration
	// NegFrame is the maximum size of an answer in bytes, by default 500,000.
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
	// NegError refuses with NEG-ERROR, khatru's spelling.
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

// String names the mode, for test tables.
func (m NegMode) String() string {
	names := [...]string{"on", "notice", "neg-err", "neg-error", "closed", "silent", "endless", "garbage", "huge list"}
	if int(m) < len(names) {
		return names[m]
	}
	return fmt.Sprintf("neg(%d)", uint8(m))
}
