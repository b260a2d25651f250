package wire

import (
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/sync/internal/negentropy"
)

// Errors that [Parse] wraps.
var (
	// ErrMalformed means that the bytes are not a valid message (NIP-01), or exceed a limit of
	// [Parse].
	ErrMalformed = errors.New("malformed message")
	// ErrUnknown means that the bytes are a JSON array with an unknown label.
	ErrUnknown = errors.New("unknown message")
)

// MaxSub is the maximum length of a subscription id, in bytes (NIP-01).
const MaxSub = 64

// MaxTags is the maximum number of tags in an event. A relay that accepts more from its clients
// stores events that other servers do not fetch.
const MaxTags = 10_000

const (
	// maxEvent is the maximum size of an event, in bytes of JSON. A ref of a state takes about 75
	// bytes.
	maxEvent = 512 << 10
	// maxDepth is the maximum nesting of arrays and objects. A plain event needs 4.
	maxDepth = 8
)

// Parse reads one message of a relay. The error wraps [ErrMalformed] or [ErrUnknown]. Parse neither
// keeps nor changes data.
//
// An EVENT is read strictly, because its id is the hash of its characters: valid UTF-8 without lone
// surrogates or repeated keys, at most 512 KiB, 10,000 tags, and arrays 8 deep. Unknown keys and
// extra elements are skipped. The text of NOTICE, CLOSED, OK and NEG-ERR may be invalid, because
// losing such a message is worse.
func Parse(data []byte) (Message, error) { return ParseNew(data, nil) }

// ParseNew is like Parse, but reads only the fields of [Message.Known] from an event whose id is
// known, because many relays send the same events.
func ParseNew(data []byte, known func(graspsync.EventID) bool) (Message, error) {
	p := &parser{scanner: scanner{data: data}, known: known}
	if err := p.message(); err != nil {
		return Message{}, fmt.Errorf("%w, at byte %d of %d", err, p.pos, len(data))
	}
	p.m.Size = len(data)
	return p.m, nil
}

type parser struct {
	scanner
	eventParser
	known    func(graspsync.EventID) bool // nil if all ids are new
	m        Message
	form     form
	elements int // of the message, read so far
}

type form struct {
	of       Type
	required int // number of elements after the label; more may be missing
	elements []func(*parser) error
}

var forms = map[string]form{
	"EVENT":     {TypeEvent, 2, []func(*parser) error{(*parser).sub, (*parser).eventElement}},
	"EOSE":      {TypeEOSE, 1, []func(*parser) error{(*parser).sub, (*parser).hint}},
	"CLOSED":    {TypeClosed, 1, []func(*parser) error{(*parser).sub, (*parser).reason}},
	"NOTICE":    {TypeNotice, 0, []func(*parser) error{(*parser).reason}},
	"OK":        {TypeOK, 2, []func(*parser) error{(*parser).id, (*parser).accepted, (*parser).reason}},
	"AUTH":      {TypeAuth, 1, []func(*parser) error{(*parser).challenge}},
	"NEG-MSG":   {TypeNegMsg, 2, []func(*parser) error{(*parser).sub, (*parser).payload}},
	"NEG-ERR":   {TypeNegErr, 1, []func(*parser) error{(*parser).sub, (*parser).reason, (*parser).maximum}},
	"NEG-ERROR": {TypeNegErr, 1, []func(*parser) error{(*parser).sub, (*parser).reason, (*parser).maximum}},
}

func (p *parser) message() error {
	p.space()
	if err := p.array(0, p.element); err != nil {
		return err
	}
	p.space()
	switch {
	case p.pos != len(p.data):
		return malformed("bytes after the message")
	case p.elements <= p.form.required:
		return malformed("an element is missing")
	}
	return nil
}

func (p *parser) element() error {
	n := p.elements
	p.elements++
	switch {
	case n == 0:
		return p.label()
	case n <= len(p.form.elements):
		return p.form.elements[n-1](p)
	}
	return p.skip(1)
}

func (p *parser) label() error {
	label, err := p.string()
	if err != nil {
		return err
	}
	var ok bool
	if p.form, ok = forms[label]; !ok {
		return fmt.Errorf("%w: label %q", ErrUnknown, graspsync.Clip(label, MaxSub))
	}
	p.m.Type = p.form.of
	return nil
}

func (p *parser) string() (string, error) {
	b, err := p.str(nil)
	return string(b), err
}

func (p *parser) sub() (err error) {
	if p.m.Sub, err = p.string(); err == nil && len(p.m.Sub) > MaxSub {
		err = malformed("subscription id too long")
	}
	return err
}

func (p *parser) eventElement() (err error) {
	p.m.Event, err = p.event()
	p.m.Known = p.isKnown
	return err
}

// hint reads the array of NIP-67. "more" wins, because an extra page costs less than lost events.
func (p *parser) hint() error {
	if p.peek() != '[' {
		return p.skip(1)
	}
	return p.array(1, func() error {
		if p.peek() != '"' {
			return p.skip(2)
		}
		s, err := p.text(len("finish") + 1)
		switch {
		case s == "more":
			p.m.Hint = HintMore
		case s == "finish" && p.m.Hint == HintNone:
			p.m.Hint = HintFinish
		}
		return err
	})
}

// reason reads a text. A value that is not a string is returned as JSON.
func (p *parser) reason() (err error) {
	if p.peek() == '"' {
		p.m.Text, err = p.text(graspsync.MaxText)
		return err
	}
	raw, err := p.raw()
	p.m.Text = graspsync.Clip(strings.ToValidUTF8(raw, "\uFFFD"), graspsync.MaxText)
	return err
}

func (p *parser) raw() (string, error) {
	start := p.pos
	err := p.skip(1)
	return string(p.data[start:p.pos]), err
}

func (p *parser) id() error {
	id, err := p.string()
	if err != nil {
		return err
	}
	if p.m.ID, err = graspsync.ParseEventID(id); err != nil {
		return malformed("OK without an event id")
	}
	return nil
}

func (p *parser) accepted() error {
	p.m.Accepted = p.literal("true")
	if !p.m.Accepted && !p.literal("false") {
		return malformed("OK without true or false")
	}
	return nil
}

// challenge reads the challenge of an AUTH, which is never cut.
func (p *parser) challenge() (err error) {
	p.m.Text, err = p.string()
	if err == nil && (p.m.Text == "" || len(p.m.Text) > graspsync.MaxText) {
		err = malformed("challenge empty or too long")
	}
	return err
}

// payload reads the payload of a NEG-MSG. Khatru ends a reconciliation with an empty one.
func (p *parser) payload() error {
	digits, err := p.string()
	if err != nil {
		return err
	}
	if p.m.Payload, err = hex.DecodeString(digits); err != nil {
		return malformed("payload is not hex")
	}
	return nil
}

// maximum reads the maximum of a NEG-ERR, a number or one in quotes. Other values count as 0.
func (p *parser) maximum() error {
	raw, err := p.raw()
	if n, no := strconv.Atoi(strings.Trim(raw, `"`)); no == nil {
		p.m.Max = max(n, 0)
	}
	return err
}

// CheckNegMessage returns an error if the message of a NEG-OPEN or NEG-MSG, in hex, is invalid
// (NIP-77). Use it in front of relays whose decoder panics or allocates what a message claims.
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
