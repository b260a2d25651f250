package relaytest

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync/sync/wire"
)

// Software is the program that a [Relay] imitates: its messages, how it sends them, and the order
// of its checks.
type Software uint8

// The zero Software is an imaginary program with common messages.
const (
	SoftwareAny Software = iota
	// SoftwareRustNostr is the relay of rust-nostr 0.45 (nostr-sdk, local_relay).
	SoftwareRustNostr
	// SoftwareStrfry is strfry since 1.1.
	SoftwareStrfry
	// SoftwareOldStrfry is strfry 1.0, which refuses a REQ by NOTICE.
	SoftwareOldStrfry
	// SoftwareKhatru is khatru 0.19 with messages of its package policies.
	SoftwareKhatru
)

// program is the constant messages and habits of a program. Its functions are called with relay.mu.
type program struct {
	meter      func() meter
	req, neg   []step        // checks of a REQ and of a NEG-OPEN, in order
	greets     bool          // sends the challenge at the start, not with a refusal
	challenges bool          // each challenge is new
	authAge    time.Duration // maximum age of an AUTH, 0 for any
	merges     bool          // sorts the events of several filters together

	negOff     string // NOTICE if NIP-77 is off
	negLost    string
	negInvalid string
	negRate    string
	negError   bool // NEG-ERROR instead of NEG-ERR

	malformed string             // malformed message; "%v" is the error
	overflow  string             // too many waiting live events
	outcomes  map[string]outcome // of events that are not stored, by the archive's reason

	ended func(c *Conn, s *subscription) []frame // frames after the EOSE; may be nil
}

func programOf(s Software) *program {
	switch s {
	case SoftwareRustNostr:
		return &rustNostr
	case SoftwareStrfry, SoftwareOldStrfry:
		return &strfry
	case SoftwareKhatru:
		return &khatru
	}
	return &anyProgram
}

type outcome struct {
	accepted bool
	text     string
}

// refusal is the answer to a request that a relay refuses.
type refusal struct {
	text      string
	notice    bool // NOTICE instead of CLOSED or NEG-ERR
	eose      bool // followed by EOSE
	rate      bool // because of the rate
	challenge bool // preceded by AUTH
	max       int  // maximum number of records in a NEG-ERR
	after     int  // number of filters accepted before
}

// step checks a request of size bytes. It returns nil if it refuses nothing.
type step func(c *Conn, req wire.Request, size int) *refusal

// firstOf returns the refusal of the first step that refuses.
func firstOf(steps []step, c *Conn, req wire.Request, size int) *refusal {
	for _, s := range steps {
		if no := s(c, req, size); no != nil {
			return no
		}
	}
	return nil
}

// limitStep refuses a request that exceeds a limit, which replaces %d in the text.
func limitStep(text string, notice bool, of func(c *Conn, b *Behavior, req wire.Request, size int) (n, most int)) step {
	return func(c *Conn, req wire.Request, size int) *refusal {
		n, most := of(c, &c.relay.behavior, req, size)
		if !exceeds(n, most) {
			return nil
		}
		return &refusal{text: strings.Replace(text, "%d", fmt.Sprint(most), 1), notice: notice}
	}
}

func subsStep(text string, notice bool) step {
	return limitStep(text, notice, func(c *Conn, b *Behavior, req wire.Request, _ int) (n, most int) {
		if n, _ = c.openSubs(req.Sub); c.subs[req.Sub] != nil {
			return 0, 0
		}
		return n + 1, b.MaxSubs
	})
}

func bytesStep(text string, notice bool) step {
	return limitStep(text, notice, func(c *Conn, b *Behavior, req wire.Request, size int) (n, most int) {
		_, open := c.openSubs(req.Sub)
		return open + size, b.MaxSubBytes
	})
}

func idStep(text string) step {
	return limitStep(text, false, func(_ *Conn, b *Behavior, req wire.Request, _ int) (n, most int) { return len(req.Sub), b.MaxSubID })
}

func countStep(text string) step {
	return limitStep(text, false, func(_ *Conn, b *Behavior, req wire.Request, _ int) (n, most int) {
		return len(req.Filters), b.MaxFilters
	})
}

func negsStep(text string, notice bool) step {
	return limitStep(text, notice, func(c *Conn, b *Behavior, req wire.Request, _ int) (n, most int) {
		if c.negs[req.Sub] != nil {
			return 0, 0
		}
		return len(c.negs) + 1, or(b.MaxNegs, b.MaxSubs)
	})
}

func authStep(text string, challenge bool) step {
	return func(c *Conn, _ wire.Request, _ int) *refusal {
		switch mode := c.relay.behavior.Auth; {
		case mode >= AuthRequired && !c.authed:
			return &refusal{text: text, challenge: challenge}
		case mode == AuthRestricted && c.authed:
			return &refusal{text: "restricted: not on the list"}
		}
		return nil
	}
}

func rateStep(text string) step {
	return func(c *Conn, _ wire.Request, _ int) *refusal {
		if b := &c.relay.behavior; !c.spend(rateQueries, b.RateLimit) {
			return &refusal{text: text, notice: b.RateLimitNotice, rate: true}
		}
		return nil
	}
}

// negMaxStep refuses more than NegMax records. With max the refusal contains the number.
func negMaxStep(text string, max bool) step {
	return func(c *Conn, req wire.Request, _ int) *refusal {
		b := &c.relay.behavior
		n := 0
		for id, s := range c.negs { // only rust-nostr adds the other sessions
			if id != req.Sub && !max {
				n += s.items
			}
		}
		if b.NegMax == 0 || n+len(c.found(req)) <= b.NegMax {
			return nil
		}
		no := &refusal{text: orText(b.NegText, text)}
		if max {
			no.max = b.NegMax
		}
		return no
	}
}

// otherStep does the checks of filters that a program does not have itself.
func otherStep(own func(b *Behavior)) step {
	return func(c *Conn, req wire.Request, _ int) *refusal {
		b := c.relay.behavior
		if own != nil {
			own(&b)
		}
		return b.refuseFilters(req.Filters)
	}
}

const slowDown = "rate-limited: slow down, please"

var anyAuth = authStep("auth-required: all requests must be authenticated", false)

// anyProgram is an imaginary program with the most common behavior.
var anyProgram = program{
	meter:      newWindow,
	greets:     true,
	negOff:     "ERROR: bad msg: negentropy disabled",
	negLost:    "closed: unknown subscription handle",
	negInvalid: "PROTOCOL-ERROR",
	negRate:    slowDown,
	malformed:  "ERROR: bad msg: %v",
	overflow:   "error: you read too slowly",
	req: []step{
		anyAuth,
		func(c *Conn, req wire.Request, size int) *refusal { // a REQ for live events only does not count
			if !slices.ContainsFunc(req.Filters, func(f nostr.Filter) bool { return !f.LimitZero }) {
				return nil
			}
			return rateStep(slowDown)(c, req, size)
		},
		subsStep("ERROR: too many concurrent REQs", true),
		idStep("bad req: subscription id too long"),
		bytesStep("blocked: subscriptions too large", false),
		countStep("bad req: too many filters"),
		otherStep(nil),
	},
	neg: []step{
		anyAuth, rateStep(slowDown), negsStep("ERROR: too many concurrent NEG requests", true),
		negMaxStep("blocked: too many query results", true),
	},
}

// refuseFilters checks the limits of single filters.
func (b *Behavior) refuseFilters(fs []nostr.Filter) *refusal {
	for _, f := range fs {
		switch {
		case b.RefuseKindless && len(f.Kinds)+len(f.Authors)+len(f.IDs) == 0:
			return &refusal{text: "blocked: an author must be specified to get their kind:1 notes"}
		case exceeds(len(f.Tags), b.RefuseTagNamesOver):
			return &refusal{text: "bad req: too many tags in filter"}
		}
		for _, l := range lists(f) {
			if l.tag && exceeds(len(l.items), b.RefuseTagValuesOver) {
				return &refusal{text: "too many tag values", notice: true, eose: true}
			}
			if why := l.large(b, l.bytes()); why != "" {
				return &refusal{text: "bad req: " + why}
			}
		}
	}
	return nil
}

// large returns which limit a list of size bytes exceeds, or "".
func (l list) large(b *Behavior, size int) string {
	switch {
	case l.tag && slices.ContainsFunc(l.items, func(v string) bool { return exceeds(len(v), b.RefuseValueOver) }):
		return "filter item too large"
	case exceeds(size, b.RefuseSetOver):
		return "total filter items too large"
	}
	return ""
}

// list is a list of values of a filter.
type list struct {
	name  string
	tag   bool
	items []string
}

// lists returns the lists of a filter except kinds, ordered by name.
func lists(f nostr.Filter) []list {
	var all []list
	for _, name := range sortedKeys(f.Tags) {
		all = append(all, list{name: "#" + name, tag: true, items: f.Tags[name]})
	}
	return append(all, list{name: "authors", items: f.Authors}, list{name: "ids", items: f.IDs})
}

func (l list) bytes() int {
	distinct := slices.Clone(l.items)
	slices.Sort(distinct)
	return len(strings.Join(slices.Compact(distinct), ""))
}

// Reasons for an invalid AUTH.
const (
	faultEvent     = "auth-required: invalid authentication event"
	faultKind      = "auth-required: invalid authentication event kind"
	faultChallenge = "auth-required: received invalid challenge"
	faultTime      = "auth-required: challenge is too old"
)

// rate is a class of messages with a limit per minute.
type rate uint8

const (
	rateQueries rate = iota
	rateNegs
	rateMessages
)

// meter limits a rate.
type meter interface {
	// take counts a message and reports whether it is within the rate.
	take(now time.Time, perMinute int) bool
}

// window is a meter over the last 60 seconds. Refused messages do not count.
type window []time.Time

func newWindow() meter { return &window{} }

func (w *window) take(now time.Time, perMinute int) bool {
	*w = slices.DeleteFunc(*w, func(t time.Time) bool { return now.Sub(t) >= time.Minute })
	if len(*w) >= perMinute {
		return false
	}
	*w = append(*w, now)
	return true
}

// mostChallenges is the maximum number of unanswered challenges, as in rust-nostr.
const mostChallenges = 20
