package wire

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/mailru/easyjson/jlexer"

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
	// maxHint is the maximum size of the hints of an EOSE that are read, in bytes.
	maxHint = 1 << 10
	// maxFault is the maximum length of the cause in an error, in bytes.
	maxFault = 100
)

// Parse reads one message of a relay. The error wraps [ErrMalformed] or [ErrUnknown]. Parse neither
// keeps nor changes data.
//
// An event must be UTF-8 without lone surrogates or repeated keys, because programs compute different
// ids of other events. It has at most 512 KiB and 10,000 tags. Unknown keys and extra elements are skipped.
// The text of NOTICE, CLOSED, OK and NEG-ERR may be invalid, because losing such a message is worse.
func Parse(data []byte) (Message, error) { return ParseNew(data, nil) }

// ParseNew is like Parse, but reads only the fields of [Message.Known] from an event whose id is
// known, because many relays send the same events.
func ParseNew(data []byte, known func(graspsync.EventID) bool) (Message, error) {
	p := &parser{l: jlexer.Lexer{Data: data}, known: known}
	p.message()
	if err := p.err(); err != nil {
		return Message{}, fmt.Errorf("%w, at byte %d of %d", err, p.l.GetPos(), len(data))
	}
	p.m.Size = len(data)
	return p.m, nil
}

// ParseEvent reads an event of a client like [Parse]. The error wraps [ErrMalformed] and names the
// invalid field.
func ParseEvent(data []byte) (graspsync.Event, error) {
	p := &parser{l: jlexer.Lexer{Data: data}}
	p.event()
	p.l.Consumed()
	return p.m.Event, p.err()
}

// parser reads a message. The lexer keeps the first error, after which it reads nothing.
type parser struct {
	l     jlexer.Lexer
	known func(graspsync.EventID) bool // nil if all ids are new
	m     Message
	field string // of the event, while it is read
}

func (p *parser) fail(fault string) { p.l.AddError(errors.New(fault)) }

func (p *parser) err() error {
	err := p.l.Error()
	if err == nil || errors.Is(err, ErrUnknown) {
		return err
	}
	var syntax *jlexer.LexerError
	if errors.As(err, &syntax) {
		err = errors.New(graspsync.PrintableAtMost(syntax.Reason, maxFault)) // it may quote the message
	}
	if p.field != "" {
		return fmt.Errorf("%w: %s: %w", ErrMalformed, p.field, err)
	}
	return fmt.Errorf("%w: %w", ErrMalformed, err)
}

type form struct {
	of       Type
	required int // number of elements after the label; more may be missing
	elements []func(*parser)
}

var forms = map[string]form{
	"EVENT":     {TypeEvent, 2, []func(*parser){(*parser).sub, (*parser).event}},
	"EOSE":      {TypeEOSE, 1, []func(*parser){(*parser).sub, (*parser).hint}},
	"CLOSED":    {TypeClosed, 1, []func(*parser){(*parser).sub, (*parser).reason}},
	"NOTICE":    {TypeNotice, 0, []func(*parser){(*parser).reason}},
	"OK":        {TypeOK, 2, []func(*parser){(*parser).id, (*parser).accepted, (*parser).reason}},
	"AUTH":      {TypeAuth, 1, []func(*parser){(*parser).challenge}},
	"NEG-MSG":   {TypeNegMsg, 2, []func(*parser){(*parser).sub, (*parser).payload}},
	"NEG-ERR":   {TypeNegErr, 1, []func(*parser){(*parser).sub, (*parser).reason, (*parser).maximum}},
	"NEG-ERROR": {TypeNegErr, 1, []func(*parser){(*parser).sub, (*parser).reason, (*parser).maximum}},
}

func (p *parser) message() {
	var form form
	n := -1 // the label comes before the elements of the form
	p.list(func() {
		switch {
		case n < 0:
			label := p.str()
			if form = forms[label]; form.of == 0 && p.l.Ok() {
				p.l.AddError(fmt.Errorf("%w: label %q", ErrUnknown, graspsync.Clip(label, MaxSub)))
			}
		case n < len(form.elements):
			form.elements[n](p)
		default:
			p.l.SkipRecursive()
		}
		n++
	})
	p.l.Consumed()
	if p.m.Type = form.of; n < max(form.required, 0) {
		p.fail("an element is missing")
	}
}

// list reads an array, and calls element at each value.
func (p *parser) list(element func()) {
	for p.l.Delim('['); !p.l.IsDelim(']'); p.l.WantComma() {
		element()
	}
	p.l.Delim(']')
}

func (p *parser) str() string {
	s := strings.Clone(p.l.UnsafeString()) // exactly as large as the value
	if !utf8.ValidString(s) {
		p.fail("string is not UTF-8")
	}
	return s
}

func (p *parser) sub() {
	if p.m.Sub = p.str(); len(p.m.Sub) > MaxSub {
		p.fail("subscription id too long")
	}
}

// hint reads the array of NIP-67. "more" wins, because an extra page costs less than lost events.
func (p *parser) hint() {
	var hints []any
	if raw := p.l.Raw(); len(raw) <= maxHint {
		_ = json.Unmarshal(raw, &hints) // other values have no meaning
	}
	switch {
	case slices.Contains(hints, any("more")):
		p.m.Hint = HintMore
	case slices.Contains(hints, any("finish")):
		p.m.Hint = HintFinish
	}
}

// reason reads a text. An invalid string is returned as written, with U+FFFD in place of invalid
// UTF-8, and another value as JSON.
func (p *parser) reason() {
	raw := string(p.l.Raw())
	if text, ok := strings.CutPrefix(raw, `"`); ok && json.Unmarshal([]byte(raw), &raw) != nil {
		raw = strings.TrimSuffix(text, `"`)
	}
	p.m.Text = strings.Clone(graspsync.Clip(strings.ToValidUTF8(raw, "\uFFFD"), graspsync.MaxText))
}

func (p *parser) id() {
	var err error
	if p.m.ID, err = graspsync.ParseEventID(p.str()); err != nil {
		p.fail("OK without an event id")
	}
}

func (p *parser) accepted() { p.m.Accepted = p.l.Bool() }

// challenge reads the challenge of an AUTH, which is never cut.
func (p *parser) challenge() {
	if p.m.Text = p.str(); p.m.Text == "" || len(p.m.Text) > graspsync.MaxText {
		p.fail("challenge empty or too long")
	}
}

// payload reads the payload of a NEG-MSG. Khatru ends a reconciliation with an empty one.
func (p *parser) payload() {
	var err error
	if p.m.Payload, err = hex.DecodeString(p.str()); err != nil {
		p.fail("payload is not hex")
	}
}

// maximum reads the maximum of a NEG-ERR, a number or one in quotes. Other values count as 0.
func (p *parser) maximum() {
	if n, err := strconv.Atoi(strings.Trim(string(p.l.Raw()), `"`)); err == nil {
		p.m.Max = max(n, 0)
	}
}

// CheckNegMessage returns an error if the message of a NEG-OPEN or NEG-MSG, in hex, is invalid
// (NIP-77). Use it in front of relays whose decoder panics or allocates what a message claims.
func CheckNegMessage(text string) error {
	msg, err := hex.DecodeString(text)
	if err == nil {
		err = negentropy.Check(msg)
	}
	if err != nil {
		return fmt.Errorf("negentropy message: %w", err)
	}
	return nil
}
