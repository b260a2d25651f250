package relaytest

import (
	"fmt"
	"slices"
	"time"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync/sync/wire"
)

// Behavior is what a [Relay] does. The zero value is an honest relay with NIP-77
// and without limits. Every field is independent of the others. The functions are
// called while the client sends; they must not block, and not change what they
// are given.
type Behavior struct {
	// Info is what the relay says of itself (NIP-11). It is believed: the client
	// may send no message larger than Info.MaxMessageLength, and the rules behind
	// [Relay.Violations] are taken from it. It has no effect on what the relay
	// refuses: that is what the fields below say.
	Info wire.Info
	// Software is whose words the relay says, and in which order it looks at the
	// limits below. [LocalRelay], [GraspRelay], [Strfry] and [Khatru] set it together
	// with the limits of these programs.
	Software Software
	// Down makes every dial fail and, once set, ends all connections.
	Down bool
	// DialError is what every dial fails with.
	DialError error
	// DialDelay is how long a dial takes, whether it fails or not.
	DialDelay time.Duration
	// NoAnswer makes dials hang until their context ends.
	NoAnswer bool
	// Latency is added to every answer and to every live event.
	Latency time.Duration
	// CutAfter cuts a connection when it has delivered this many messages.
	CutAfter int
	// Cuts is how often CutAfter strikes, over all connections; 0 is always.
	Cuts int
	// Cap is the most events that one filter is answered with, whatever its limit.
	Cap int
	// DefaultLimit is the limit of a filter that has none; 0 is no limit.
	DefaultLimit int
	// MaxSubs is how many subscriptions a connection may have, and, counted apart,
	// how many NEG sessions; one more is refused by a NOTICE without its id.
	MaxSubs int
	// MaxFilters is how many filters a REQ may have.
	MaxFilters int
	// MaxMessage cuts the connection on a longer message, in bytes.
	MaxMessage int
	// RateLimit is how many REQ and NEG-OPEN a connection may send in 60 s. As on
	// khatru, a REQ all of whose filters have limit 0 does not count. What is too
	// much is refused by CLOSED or NEG-ERR.
	RateLimit int
	// ClosedReason refuses a REQ with CLOSED and this reason, unless it is empty.
	ClosedReason func(req wire.Request) string
	// Hints adds NIP-67 hints to EOSE.
	Hints bool
	// Auth is what the relay wants of NIP-42.
	Auth AuthMode
	// Negentropy is how NIP-77 is answered.
	Negentropy NegMode
	// OnConnect is called for each new connection.
	OnConnect func(c *ConnScript)
	// Handle is called for each message before anything else answers it; if it
	// returns true, nothing else does.
	Handle func(c *ConnScript, req wire.Request) (handled bool)

	// What few tests need is in groups.
	Link
	Bounds
	Refusals
	Oddities
	Hostility
	Reconciling
}

// Link is how a relay is connected to.
type Link struct {
	// InfoDocument replaces the NIP-11 document that is made of Info, and InfoDelay
	// is how long it takes; both only where the relay is served over a real socket.
	InfoDocument string
	InfoDelay    time.Duration
	// MessageDelay is the shortest time between two messages of a connection.
	MessageDelay time.Duration
	// BytesPerSecond is how fast a connection is; 0 is no limit.
	BytesPerSecond int
	// StopReading blocks the client's Send, as a full socket does.
	StopReading bool
	// MaxBacklog is how many bytes of live events wait for a slow reader before
	// its connection is cut. Defaults to 32 MiB.
	MaxBacklog int
	// Drip sends stored events this far apart.
	Drip time.Duration
}

// Bounds are limits that some programs have besides the usual ones of a [Behavior]; 0 is none.
type Bounds struct {
	// MaxNegs is how many NEG sessions a connection may have; 0 is MaxSubs.
	MaxNegs int
	// MaxSubBytes is how large the REQs of all subscriptions of a connection may be
	// together, in bytes as they were sent.
	MaxSubBytes int
	// MaxSubID is how long a subscription id may be, in bytes.
	MaxSubID int
	// RateLimitNotice has what is beyond RateLimit refused by NOTICE.
	RateLimitNotice bool
	// RateBurst is how many may come at once before RateLimit says how many more may
	// come; 0 is RateLimit. On khatru only, which counts filters instead of REQs, and
	// those of all connections together.
	RateBurst int
	// NegRate, EventRate and AuthRate are how many NEG-MSG, EVENT and AUTH a
	// connection may send in 60 s. MessageRate is how many messages of any type it may
	// send in 60 s; one more ends the connection, without a word.
	NegRate, EventRate, AuthRate, MessageRate int
	// MaxEvent is how large an EVENT may be, in bytes of its JSON.
	MaxEvent int
	// MaxLive is how many live events may wait for a slow reader. One more and all of
	// them are lost, and all subscriptions of the connection are closed.
	MaxLive int
}

// Refusals are requests that some relays turn down, and odd ways to do so.
type Refusals struct {
	// RefuseKindless refuses a REQ that has a filter without kinds, authors and ids.
	RefuseKindless bool
	// RefuseValueOver refuses a REQ that has a value longer than this many bytes.
	RefuseValueOver int
	// RefuseTagNamesOver refuses a REQ that has a filter with more tag names.
	RefuseTagNamesOver int
	// RefuseTagValuesOver answers a filter with more tag values by NOTICE and EOSE,
	// as relays on SQL databases do.
	RefuseTagValuesOver int
	// RefuseSetOver refuses a REQ that has a list of ids, authors or tag values with
	// more bytes in all.
	RefuseSetOver int
	// RefuseComplex refuses a filter with more than two tag names that has more than
	// four tag names and kinds together. RefuseEmpty refuses a filter without ids,
	// authors, kinds and tags.
	RefuseComplex, RefuseEmpty bool
	// Validation is strfry's own idea of what a REQ may ask for, nil for none.
	Validation *FilterValidation
	// RefuseByNotice makes every refusal of a REQ a NOTICE without its id, as older
	// relays do.
	RefuseByNotice bool
	// NoticeInstead answers a REQ with nothing but this NOTICE, unless it is empty.
	NoticeInstead func(req wire.Request) string
	// NoticeThenEOSE answers a REQ with this NOTICE and EOSE, as khatru does when its
	// database fails, unless it is empty.
	NoticeThenEOSE func(req wire.Request) string
}

// Oddities are what relays do that is not what NIP-01 says, and not meant ill.
type Oddities struct {
	// NeverEOSE leaves out every EOSE.
	NeverEOSE bool
	// LimitZeroReturnsStored takes limit 0 for no limit.
	LimitZeroReturnsStored bool
	// IgnoreLimit answers with up to Cap events, or all, whatever limit says.
	IgnoreLimit bool
	// IgnoreUntil answers as if no filter had an until.
	IgnoreUntil bool
	// WrongOrder sends the events of an answer oldest first.
	WrongOrder bool
	// Interleave mixes answers that are under way at the same time.
	Interleave bool
	// LateListen begins to follow a subscription at its EOSE only, so that what is
	// published between the query and the EOSE is not sent. As on khatru, filters
	// with limit 0 are followed at once.
	LateListen bool
	// LateEvents is how many messages of a subscription still come after its CLOSE.
	LateEvents int
	// EventsAfterClosed goes on answering, and following, a REQ that was refused by
	// CLOSED.
	EventsAfterClosed bool
}

// Hostility is what a relay does to harm its client.
type Hostility struct {
	// UnaskedEvents is how many events that match no filter precede every answer.
	UnaskedEvents int
	// Forge sends forged copies of events, each followed by the genuine one if
	// ForgeFirst is set, and instead of it otherwise.
	Forge      Forgery
	ForgeFirst bool
	// EndlessEvents never ends an answer: after the stored events come made-up
	// ones, this far apart, each with a valid signature and matching the filter as
	// far as kinds and first tag values go. Endless, if set, makes them instead.
	EndlessEvents time.Duration
	Endless       func(n int, f nostr.Filter) *nostr.Event
	// LyingNegentropy is how many ids are announced that are never served.
	LyingNegentropy int
}

// Reconciling are the limits of a relay in NIP-77, and what it says of them.
type Reconciling struct {
	// NegText replaces the text of the refusal.
	NegText string
	// NegMax refuses to reconcile more records than this ("blocked", with the
	// number); on rust-nostr, more in all sessions of a connection together.
	NegMax int
	// NegRounds forgets a session after so many answers ("closed").
	NegRounds int
	// NegTimeout forgets a session that was silent for this long ("closed").
	NegTimeout time.Duration
	// NegFrame is the frame size of the relay's answers in bytes. Defaults to
	// 500,000.
	NegFrame int
}

// AuthMode is what a [Relay] wants of NIP-42.
type AuthMode uint8

// The zero AuthMode sends no challenge.
const (
	AuthNone AuthMode = iota
	// AuthOffered sends a challenge and asks for nothing.
	AuthOffered
	// AuthRequired refuses requests before AUTH ("auth-required:").
	AuthRequired
	// AuthRestricted refuses them after AUTH as well ("restricted:").
	AuthRestricted
)

// Forgery is what is wrong with a forged event. Its id is always the genuine one.
type Forgery uint8

// The zero Forgery forges nothing.
const (
	ForgeNone Forgery = iota
	// ForgeSignature has the genuine content, and a signature that is not of it.
	ForgeSignature
	// ForgeContent has other content under the genuine signature and author.
	ForgeContent
	// ForgeID has other content, and a valid signature over it by another author:
	// only comparing the id finds out.
	ForgeID
)

// NegMode is how a [Relay] answers NIP-77.
type NegMode uint8

// The zero NegMode reconciles.
const (
	NegOn NegMode = iota
	// NegNotice refuses with a NOTICE.
	NegNotice
	// NegErr refuses with NEG-ERR.
	NegErr
	// NegError refuses with NEG-ERROR, khatru's spelling. Only over a real socket
	// is it another message.
	NegError
	// NegClosed refuses with CLOSED.
	NegClosed
	// NegSilent does not answer.
	NegSilent
	// NegEndless answers every message with ranges that never match.
	NegEndless
	// NegGarbage answers with bytes that are no negentropy message.
	NegGarbage
	// NegHugeList answers with a list that claims 2^27 ids and has none.
	NegHugeList
)

// refuseFilters looks at what a REQ asks for.
func (b *Behavior) refuseFilters(fs []nostr.Filter) *refusal {
	if exceeds(len(fs), b.MaxFilters) {
		return &refusal{text: "bad req: too many filters"}
	}
	for _, f := range fs {
		switch {
		case b.RefuseKindless && len(f.Kinds)+len(f.Authors)+len(f.IDs) == 0:
			return &refusal{text: "blocked: an author must be specified to get their kind:1 notes"}
		case b.RefuseEmpty && emptyFilter(f):
			return &refusal{text: "blocked: can't handle empty filters"}
		case b.RefuseComplex && complexFilter(f):
			return &refusal{text: "blocked: too many things to filter for"}
		case exceeds(len(f.Tags), b.RefuseTagNamesOver):
			return &refusal{text: "bad req: too many tags in filter"}
		}
		for _, values := range lists(f) {
			if exceeds(len(values.items), b.RefuseTagValuesOver) && values.tag {
				return &refusal{text: "too many tag values", notice: true, eose: true}
			}
			if values.tag && slices.ContainsFunc(values.items, func(v string) bool { return exceeds(len(v), b.RefuseValueOver) }) {
				return &refusal{text: "bad req: filter item too large"}
			}
			if exceeds(values.bytes(), b.RefuseSetOver) {
				return &refusal{text: "bad req: total filter items too large"}
			}
		}
	}
	return nil
}

// refuseOther is refuseFilters without what a program says in words of its own.
func (b Behavior) refuseOther(fs []nostr.Filter) *refusal {
	b.MaxFilters = 0
	switch b.Software {
	case SoftwareStrfry, SoftwareOldStrfry:
		b.RefuseTagNamesOver, b.RefuseValueOver, b.RefuseSetOver = 0, 0, 0
	case SoftwareKhatru:
		b.RefuseComplex, b.RefuseEmpty, b.RefuseKindless = false, false, false
	}
	return b.refuseFilters(fs)
}

// off reports whether the relay does not do NIP-77 at all.
func (b *Behavior) off() bool {
	switch b.Negentropy {
	case NegNotice, NegErr, NegError, NegClosed, NegSilent:
		return true
	}
	return false
}

// mostNegs is how many NEG sessions a connection may have, 0 for any number.
func (b *Behavior) mostNegs() int { return or(b.MaxNegs, b.MaxSubs) }

// strfryLimits sets the limits that operators change.
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
