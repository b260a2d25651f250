package wire

import (
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"

	"github.com/graspsync/graspsync"
)

// What the errors of [Parse] wrap.
var (
	// ErrMalformed says that the bytes are not a message as NIP-01 and its
	// companions define it, or exceed the limits of [Parse].
	ErrMalformed = errors.New("malformed message")
	// ErrUnknown says that the bytes are a JSON array that starts with a label we
	// do not know: a newer relay, or an answer to something we never ask. What
	// follows the label was not looked at.
	ErrUnknown = errors.New("unknown message")
)

// MaxSub is the longest subscription id, in bytes (NIP-01).
const MaxSub = 64

// MaxTags is the largest number of tags in an event that [Parse] accepts. A relay that takes more from its clients has what others
// won't fetch from it.
const MaxTags = 10_000

// limits bound what [Parse] accepts. The zero value stands for the defaults; only tests
// have others.
type limits struct {
	// Event is the largest event, in bytes of its JSON. A smaller value loses
	// states of repositories with many refs, at about 75 bytes a ref. Defaults to
	// 512 KiB.
	Event int
	// Tags is the largest number of tags in an event. Defaults to [MaxTags].
	Tags int
	// Depth is how deep arrays and objects may nest, the message itself counted; a
	// plain event needs 4. At most 64. Defaults to 8.
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

// Parse reads one message of a relay. The error wraps [ErrMalformed] or
// [ErrUnknown]; its text holds at most a few bytes of the message, quoted. Parse
// keeps no reference to data and does not change it.
//
// An EVENT is read strictly, since its id is computed over its characters: valid
// UTF-8, no lone surrogates, no key twice, and every field there in the form that
// NIP-01 gives it. Unknown keys of an event and surplus elements of a message are
// skipped. The free text of NOTICE, CLOSED, OK and NEG-ERR is read tolerantly,
// because missing it would cost more than it is worth.
//
// An event may have 512 KiB and 10,000 tags; arrays and objects may nest 8 deep.
func Parse(data []byte) (Message, error) { return limits{}.parse(data, nil) }

// ParseNew is Parse, but of an event whose id is known it reads no more than [Message.Known]
// says: what many relays have comes many times, and is of use once.
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
	known  func(graspsync.EventID) bool // nil: all are new
}

// message reads the whole of data.
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

// need moves to an element that must be there.
func (p *parser) need() error {
	more, err := p.next()
	if err == nil && !more {
		err = malformed("an element is missing")
	}
	return err
}

// finish skips surplus elements and sees to it that nothing follows the message.
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

// hint reads the array of NIP-67. A relay that says both "finish" and "more" is
// taken to have more: going on costs a page, stopping may cost events.
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

// optionalText reads the next element, if there is one, as free text. What is not
// a string is taken as the JSON that it is.
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

// auth reads a challenge. It is never shortened: a shortened one would be
// answered wrongly.
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

// negMsg reads a NEG-MSG. The payload may be empty: khatru says so that it has
// nothing more to say.
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

// count reads a JSON value as a count if it is one, also when it is in quotes;
// 0 if it is none.
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
