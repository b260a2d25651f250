package relaytest

import (
	"fmt"
	"slices"
	"time"

	"github.com/graspsync/graspsync/sync/wire"
)

// Software is the program that a [Relay] is like: in its words, in how it says them,
// and in which limit it looks at first.
type Software uint8

// The zero Software is no real program; it says what many say.
const (
	SoftwareAny Software = iota
	// SoftwareRustNostr is the relay of rust-nostr 0.45 (nostr-sdk, local_relay).
	SoftwareRustNostr
	// SoftwareStrfry is strfry since 1.1.
	SoftwareStrfry
	// SoftwareOldStrfry is strfry 1.0, which refuses a REQ by NOTICE.
	SoftwareOldStrfry
	// SoftwareKhatru is khatru 0.19 with the words of its package policies.
	SoftwareKhatru
)

// String returns the name of the program.
func (s Software) String() string {
	names := [...]string{"any", "rust-nostr", "strfry", "old strfry", "khatru"}
	if int(s) < len(names) {
		return names[s]
	}
	return fmt.Sprintf("software(%d)", uint8(s))
}

// program judges what clients send. Its methods are called with relay.mu held; they
// return nil where there is nothing to refuse.
type program interface {
	// request judges a REQ of so many bytes.
	request(c *Conn, req wire.Request, size int) *refusal
	// ended is what follows the EOSE of a subscription that so many events answered.
	ended(c *Conn, s *subscription, found int) []frame
	// negOpen judges a NEG-OPEN; found counts the records that it is about.
	negOpen(c *Conn, req wire.Request, found func() int) *refusal
	// negSend judges a NEG-MSG of an open session.
	negSend(c *Conn) *refusal
	manners() *manners
}

// manners are the words of a program that need no judgement.
type manners struct {
	meter func() meter

	greets     bool          // the challenge comes at once, not with a refusal
	challenges bool          // each challenge is a new one
	authAge    time.Duration // of an AUTH, 0 for any
	authed     string        // the OK of an AUTH
	authWords  func(fault string) string
	authRate   string

	negOff      string // NIP-77 is not done, by NOTICE
	negLost     string
	negInvalid  string
	negError    bool // NEG-ERROR instead of NEG-ERR
	negTogether bool // NegMax is for all sessions of a connection

	malformed string // of what is no message; "%v" is why not
	overflow  string // of live events
	merges    bool   // what several filters find comes in one order

	wrongID, wrongSig string
	eventRate         string
	eventSize         string             // formatted with size and limit
	outcomes          map[string]outcome // of events that are not stored, by the archive's words
}

// outcome is an OK.
type outcome struct {
	accepted bool
	text     string
}

// What may be wrong with an AUTH, in the words of no program.
const (
	faultEvent     = "invalid: id or signature"
	faultKind      = "invalid: kind"
	faultChallenge = "invalid: challenge"
	faultRelay     = "invalid: relay"
	faultTime      = "invalid: time"
)

// program returns what judges. mu is held.
func (r *Relay) program() program {
	switch r.behavior.Software {
	case SoftwareRustNostr:
		return rustNostr{}
	case SoftwareStrfry:
		return strfry{}
	case SoftwareOldStrfry:
		return strfry{old: true}
	case SoftwareKhatru:
		return khatru{}
	}
	return anyProgram{}
}

// rate is something that is counted by the minute.
type rate uint8

const (
	rateQueries rate = iota
	rateNegs
	rateEvents
	rateAuths
	rateMessages
)

// meter counts what may happen so often in a minute.
type meter interface {
	// take reports whether it may happen once more, now.
	take(now time.Time, perMinute int) bool
}

// spend counts a message; it returns false if it is one too many. relay.mu is held.
func (c *Conn) spend(what rate, perMinute int) bool {
	if perMinute == 0 {
		return true
	}
	m := c.meters[what]
	if m == nil {
		m = c.relay.program().manners().meter()
		c.meters[what] = m
	}
	return m.take(time.Now(), perMinute)
}

// window is a meter that looks at the last sixty seconds; what was refused does not
// count.
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

// openSubs counts subscriptions that stay, or, if another id is to be opened, those
// besides it.
func (c *Conn) openSubs(but string) (n, size int) {
	for id, s := range c.subs {
		if id != but && !s.passes {
			n++
			size += s.size
		}
	}
	return n, size
}

// mostNegs is how many NEG sessions a connection may have, 0 for any number.
func (b *Behavior) mostNegs() int { return or(b.MaxNegs, b.MaxSubs) }

// tooManyNegs reports whether one more NEG session would be too many.
func (c *Conn) tooManyNegs(sub string) bool {
	most := c.relay.behavior.mostNegs()
	return most > 0 && c.negs[sub] == nil && len(c.negs) >= most
}

// negItems counts the records of the other NEG sessions.
func (c *Conn) negItems(but string) int {
	n := 0
	for id, s := range c.negs {
		if id != but {
			n += s.items
		}
	}
	return n
}

// mostChallenges is how many are kept that nobody answered, as rust-nostr does.
const mostChallenges = 20

// challenge makes a challenge that may be answered. relay.mu is held.
func (c *Conn) challenge() string {
	if !c.relay.program().manners().challenges {
		for _, old := range sortedKeys(c.challenges) {
			return old
		}
	}
	if len(c.challenges) > mostChallenges {
		clear(c.challenges)
	}
	c.relay.challenges++
	text := fmt.Sprintf("challenge-%d", c.relay.challenges)
	c.challenges[text] = struct{}{}
	return text
}

// wantsAuth reports whether a request is refused because of NIP-42: before AUTH, or
// after it as well.
func (c *Conn) wantsAuth() (before, after bool) {
	mode := c.relay.behavior.Auth
	return mode >= AuthRequired && !c.authed, mode == AuthRestricted && c.authed
}

// turnDown queues a refusal: of a REQ by CLOSED, of NIP-77 by NEG-ERR, or by NOTICE.
// relay.mu is held.
func (c *Conn) turnDown(typ wire.Type, sub string, no *refusal) {
	var frames []frame
	if no.challenge {
		frames = append(frames, frame{msg: wire.Message{Type: wire.TypeAuth, Text: c.challenge()}})
	}
	c.push(&answer{frames: append(frames, c.refused(typ, sub, no)...), due: c.soon()})
}

// refused makes the frames of a refusal; one about the rate starts the time in which
// nothing should be asked.
func (c *Conn) refused(typ wire.Type, sub string, no *refusal) []frame {
	f := frame{msg: wire.Message{Type: typ, Sub: sub, Text: no.text}}
	switch {
	case no.notice:
		f.msg = wire.Message{Type: wire.TypeNotice, Text: no.text}
	case typ == wire.TypeNegErr:
		f.msg.Max = no.max
		f.negError = c.relay.program().manners().negError
	}
	if no.rate {
		f.sent = func() {
			// One that comes while the client waits is about what it had asked before.
			if c.refusedAt.IsZero() || time.Since(c.refusedAt) >= coolDown {
				c.refusedAt = time.Now()
			}
		}
	}
	frames := []frame{f}
	if no.eose {
		frames = append(frames, frame{msg: wire.Message{Type: wire.TypeEOSE, Sub: sub}})
	}
	return frames
}
