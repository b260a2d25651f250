package wire

import (
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/sync/internal/negentropy"
)

// Errors that [Parse] wraps.
var (
	// ErrMalformed means that the bytes are not a valid message (NIP-01), or exceed a limit of
	// [Parse].
	ErrMalformed = errors.New("malformed message")
	// ErrUnknown means that the bytes are a JSON array with an unknown label, from a newer relay or
	// in answer to a request that we never send. Only the label was read.
	ErrUnknown = errors.New("unknown message")
)

// MaxSub is the maximum length of a subscription id, in bytes (NIP-01).
const MaxSub = 64

// MaxTags is the maximum number of tags in an event that [Parse] accepts. A relay that accepts more
// from its clients stores events that other servers do not fetch.
const MaxTags = 10_000

// limits contains the limits of [Parse]. The zero value means the defaults. Only tests set others.
type limits struct {
	// Event is the maximum size of an event, in bytes of JSON. A smaller value would lose states of
	// repositories with many refs, which take about 75 bytes per ref. Defaults to 512 KiB.
	Event int
	// Tags is the maximum number of tags in an event. Defaults to [MaxTags].
	Tags int
	// Depth is the maximum nesting of arrays and objects, including the message. A plain event
	// needs 4. At most 64. Defaults to 8.
	Depth int
}

const maxDepth = 64

func (l limits) withDefaults() limits {
	if l.Event <= 0 {
		l.Event = 512 << 10
	}
	if l.Tags <= 0 {
		l.Tags = MaxTags
	}
	if l.Depth <= 0 {
		l.Depth = 8
	}
	l.Depth = min(l.Depth, maxDepth)
	return l
}

// Parse reads one message of a relay. The error wraps [ErrMalformed] or [ErrUnknown], and quotes at
// most a few bytes of the message. Parse neither keeps nor changes data.
//
// An EVENT is read strictly, because its id is the hash of its characters. It must be valid UTF-8
// without lone surrogates or repeated keys, and each field must have the form of NIP-01. Unknown
// keys of an event and extra elements of a message are skipped. The text of NOTICE, CLOSED, OK and
// NEG-ERR may be invalid, because losing such a message is worse.
//
// An event may have 512 KiB and 10,000 tags. Arrays and objects may nest 8 deep.
func Parse(data []byte) (Message, error) { return limits{}.parse(data, nil) }

// ParseNew is like Parse, but reads only the fields of [Message.Known] from an event whose id is
// known. Many relays send the same events, and only the first copy is used.
func ParseNew(data []byte, known func(graspsync.EventID) bool) (Message, error) {
	return limits{}.parse(data, known)
}

func (l limits) parse(data []byte, known func(graspsync.EventID) bool) (Message, error) {
	p := parser{scanner: scanner{data: data}, limits: l.withDefaults(), known: known}
	p.depth = p.limits.Depth
	m, err := p.message()
	if err != nil {
		return Message{}, fmt.Errorf("%w, at byte %d of %d", err, p.pos, len(data))
	}
	m.Size = len(data)
	return m, nil
}

// parser reads one message.
type parser struct {
	scanner
	limits limits
	known  func(graspsync.EventID) bool // nil if all ids are new
}

// message reads all of data.
func (p *parser) message() (Message, error) {
	p.space()
	if !p.accept('[') {
		return Message{}, malformed("not an array")
	}
	p.space()
	var scratch [MaxSub]byte
	label, err := p.str(scratch[:0])
	if err != nil {
		return Message{}, err
	}
	var m Message
	switch string(label) {
	case "EVENT":
		m.Type, err = TypeEvent, p.eventMessage(&m)
	case "EOSE":
		m.Type, err = TypeEOSE, p.eose(&m)
	case "CLOSED":
		m.Type, err = TypeClosed, p.closed(&m)
	case "NOTICE":
		m.Type, err = TypeNotice, p.notice(&m)
	case "OK":
		m.Type, err = TypeOK, p.ok(&m)
	case "AUTH":
		m.Type, err = TypeAuth, p.auth(&m)
	case "NEG-MSG":
		m.Type, err = TypeNegMsg, p.negMsg(&m)
	case "NEG-ERR", "NEG-ERROR":
		m.Type, err = TypeNegErr, p.negErr(&m)
	default:
		return Message{}, fmt.Errorf("%w: label %q", ErrUnknown, graspsync.Clip(string(label), MaxSub))
	}
	if err == nil {
		err = p.finish()
	}
	return m, err
}

// next moves to the next element of the message and reports whether there is one.
func (p *parser) next() (bool, error) {
	p.space()
	if p.accept(',') {
		p.space()
		return true, nil
	}
	if p.peek() == ']' {
		return false, nil
	}
	return false, malformed("no comma or end after an element")
}

// need moves to a required element.
func (p *parser) need() error {
	more, err := p.next()
	if err == nil && !more {
		err = malformed("an element is missing")
	}
	return err
}

// finish skips extra elements and checks that nothing follows the message.
func (p *parser) finish() error {
	for {
		more, err := p.next()
		if err != nil {
			return err
		}
		if !more {
			break
		}
		if err := p.skip(1); err != nil {
			return err
		}
	}
	p.pos++ // the ] that next has seen
	p.space()
	if p.pos != len(p.data) {
		return malformed("bytes after the message")
	}
	return nil
}

// sub reads the subscription id, always the second element.
func (p *parser) sub() (string, error) {
	var scratch [MaxSub]byte
	b, err := p.subInto(scratch[:0])
	return string(b), err
}

// subInto appends the subscription id to dst.
func (p *parser) subInto(dst []byte) ([]byte, error) {
	if err := p.need(); err != nil {
		return dst, err
	}
	dst, err := p.str(dst)
	if err == nil && len(dst) > MaxSub {
		err = malformed("subscription id too long")
	}
	return dst, err
}

func (p *parser) eose(m *Message) (err error) {
	if m.Sub, err = p.sub(); err != nil {
		return err
	}
	more, err := p.next()
	if err != nil || !more {
		return err
	}
	if p.peek() != '[' {
		return p.skip(1)
	}
	m.Hint, err = p.hint()
	return err
}

// hint reads the array of NIP-67. If a relay sends both "finish" and "more", "more" counts, because
// an extra page costs less than lost events.
func (p *parser) hint() (Hint, error) {
	hint := HintNone
	err := p.array(1, func() error {
		if p.peek() != '"' {
			return p.skip(2)
		}
		s, err := p.text(len("finish") + 1)
		switch {
		case s == "more":
			hint = HintMore
		case s == "finish" && hint == HintNone:
			hint = HintFinish
		}
		return err
	})
	return hint, err
}

func (p *parser) closed(m *Message) (err error) {
	if m.Sub, err = p.sub(); err != nil {
		return err
	}
	m.Text, err = p.optionalText()
	return err
}

func (p *parser) notice(m *Message) (err error) {
	m.Text, err = p.optionalText()
	return err
}

// optionalText reads the next element, if any, as text. A value that is not a string is returned as
// JSON.
func (p *parser) optionalText() (string, error) {
	more, err := p.next()
	if err != nil || !more {
		return "", err
	}
	if p.peek() == '"' {
		return p.text(graspsync.MaxText)
	}
	start := p.pos
	if err := p.skip(1); err != nil {
		return "", err
	}
	return graspsync.Clip(toValid(p.data[start:p.pos]), graspsync.MaxText), nil
}

func (p *parser) ok(m *Message) error {
	if err := p.need(); err != nil {
		return err
	}
	var scratch [64]byte
	id, err := p.str(scratch[:0])
	if err != nil {
		return err
	}
	if m.ID, err = graspsync.ParseEventID(string(id)); err != nil {
		return malformed("OK without an event id")
	}
	if err := p.need(); err != nil {
		return err
	}
	switch {
	case p.literal("true"):
		m.Accepted = true
	case p.literal("false"):
	default:
		return malformed("OK without true or false")
	}
	m.Text, err = p.optionalText()
	return err
}

// auth reads a challenge. It is never cut, because the answer to a cut challenge would be wrong.
func (p *parser) auth(m *Message) error {
	if err := p.need(); err != nil {
		return err
	}
	var scratch [MaxSub]byte
	challenge, err := p.str(scratch[:0])
	if err != nil {
		return err
	}
	if len(challenge) == 0 || len(challenge) > graspsync.MaxText {
		return malformed("challenge empty or too long")
	}
	m.Text = string(challenge)
	return nil
}

// negMsg reads a NEG-MSG. The payload may be empty, because khatru ends a reconciliation in this
// way.
func (p *parser) negMsg(m *Message) (err error) {
	if m.Sub, err = p.sub(); err != nil {
		return err
	}
	if err = p.need(); err != nil {
		return err
	}
	digits, err := p.rawString()
	if err != nil {
		return err
	}
	payload := make([]byte, hex.DecodedLen(len(digits)))
	if _, err := hex.Decode(payload, digits); err != nil {
		return malformed("payload is not hex")
	}
	m.Payload = payload
	return nil
}

func (p *parser) negErr(m *Message) (err error) {
	if m.Sub, err = p.sub(); err != nil {
		return err
	}
	if m.Text, err = p.optionalText(); err != nil {
		return err
	}
	more, err := p.next()
	if err != nil || !more {
		return err
	}
	start := p.pos
	if err := p.skip(1); err != nil {
		return err
	}
	m.Max = count(p.data[start:p.pos])
	return nil
}

// count reads a JSON number, or one in quotes, as a count. Other values give 0.
func count(raw []byte) int {
	if n := len(raw); n >= 2 && raw[0] == '"' {
		raw = raw[1 : n-1]
	}
	if len(raw) > 20 {
		return 0
	}
	n, err := strconv.ParseInt(string(raw), 10, 0)
	if err != nil || n < 0 {
		return 0
	}
	return int(n)
}

// CheckNegMessage returns an error if the message of a NEG-OPEN or NEG-MSG, in hex, is invalid
// (NIP-77). Use it in front of relays whose decoder panics or allocates the memory that a message
// claims.
func CheckNegMessage(text string) error {
	msg, err := hex.DecodeString(text)
	if err != nil {
		return fmt.Errorf("negentropy message: %w", err)
	}
	if err := negentropy.Check(msg); err != nil {
		return fmt.Errorf("negentropy message: %w", err)
	}
	return nil
}
