package wire

import (
	"encoding/binary"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
)

// Ranges of the numbers of an event (NIP-01). Programs that store times as floating-point numbers
// read times beyond 2^53 differently.
const (
	maxKind      = 65535
	maxCreatedAt = 1 << 53
)

// The fields of an event, as bits.
const (
	fieldID = 1 << iota
	fieldPubKey
	fieldCreatedAt
	fieldKind
	fieldTags
	fieldContent
	fieldSig
	fieldAll = 1<<iota - 1

	fieldsOfNew = fieldTags | fieldContent | fieldSig // fields that are read only for a new event
)

// span is a part of the collected text of an event.
type span struct{ start, end int }

// eventParser contains the fields of an event except their text.
type eventParser struct {
	*parser
	seen                     int
	id, pubkey, content, sig span
	createdAt, kind          int64
	known                    bool // whether the id is known
	tags                     int  // beginning of the tag values in the text
}

// collected is the text of an event. All strings are first collected here and become parts of one
// string when their number and length are known. So an event has the exact memory that it needs, in
// four allocations. A collected is passed and returned by value to keep it off the heap.
type collected struct {
	text   []byte
	ends   []int // end of each tag value in text
	counts []int // number of values of each tag
}

// eventMessage reads the elements of an EVENT.
func (p *parser) eventMessage(m *Message) error {
	// Enough for most events.
	var (
		text   [2048]byte
		ends   [64]int
		counts [24]int
	)
	c := collected{text[:0], ends[:0], counts[:0]}
	if rest := len(p.data) - p.pos; rest > len(text) {
		c.text = make([]byte, 0, min(rest, p.limits.Event+MaxSub))
	}
	var err error
	if c.text, err = p.subInto(c.text); err != nil {
		return err
	}
	sub := span{0, len(c.text)}
	if err := p.need(); err != nil {
		return err
	}
	e := eventParser{parser: p}
	if c, err = e.read(c); err != nil {
		return err
	}
	m.Known = e.known
	m.Sub, m.Event, err = e.build(c, sub)
	return err
}

// ParseEvent reads an event of a client as strictly as [Parse] reads an event of a relay. The error
// wraps [ErrMalformed] and names the invalid field.
func ParseEvent(data []byte) (graspsync.Event, error) {
	p := &parser{scanner: scanner{data: data}, limits: limits{}.withDefaults()}
	p.depth = p.limits.Depth
	e := eventParser{parser: p}
	c, err := e.read(collected{})
	if err == nil && p.pos != len(data) {
		err = malformed("bytes after the event")
	}
	if err != nil {
		return graspsync.Event{}, err
	}
	_, ev, err := e.build(c, span{})
	return ev, err
}

// read reads the event object.
func (e *eventParser) read(c collected) (collected, error) {
	start := e.pos
	if err := e.enter('{', 1); err != nil {
		return c, err
	}
	for done := e.accept('}'); !done; {
		var err error
		if c, err = e.member(c); err != nil {
			return c, err
		}
		if done, err = e.after('}'); err != nil {
			return c, err
		}
	}
	for i, name := range fieldNames {
		if e.seen&(1<<i) == 0 {
			return c, malformed("event lacks " + name)
		}
	}
	if e.pos-start > e.limits.Event {
		return c, malformed("event too large")
	}
	return c, nil
}

// member reads one key of the event and its value.
func (e *eventParser) member(c collected) (collected, error) {
	key, err := e.rawString()
	if err != nil {
		return c, err
	}
	field := eventField(key)
	if e.seen&field != 0 {
		// JSON parsers differ in which of two equal keys they use, so two programs could read two
		// different events.
		return c, malformed("event has " + string(key) + " twice")
	}
	e.seen |= field
	e.space()
	if !e.accept(':') {
		return c, malformed("no colon after a key")
	}
	e.space()
	c, err = e.value(field, c)
	if m, is := err.(malformed); is && field != 0 { //nolint:errorlint // nothing wraps it here
		err = malformed(key) + ": " + m
	}
	return c, err
}

// fieldNames contains the keys of an event in the order of their bits.
var fieldNames = [...]string{"id", "pubkey", "created_at", "kind", "tags", "content", "sig"}

// eventField returns the bit of a key, or 0 for an unknown key.
func eventField(key []byte) int {
	for i, name := range fieldNames {
		if string(key) == name {
			return 1 << i
		}
	}
	return 0
}

// value reads the value of a field.
func (e *eventParser) value(field int, c collected) (collected, error) {
	if e.known && field&fieldsOfNew != 0 {
		return c, e.skip(2)
	}
	var err error
	start := len(c.text)
	switch field {
	case fieldID:
		c.text, err = e.hexString(c.text, 64)
		e.id = span{start, len(c.text)}
		if err == nil && e.parser.known != nil {
			id, no := graspsync.ParseEventID(string(c.text[start:]))
			e.known = no == nil && e.parser.known(id)
		}
	case fieldPubKey:
		c.text, err = e.hexString(c.text, 64)
		e.pubkey = span{start, len(c.text)}
	case fieldCreatedAt:
		e.createdAt, err = e.integer(maxCreatedAt)
	case fieldKind:
		e.kind, err = e.integer(maxKind)
	case fieldTags:
		e.tags = start
		c, err = e.readTags(c)
	case fieldContent:
		c.text, err = e.str(c.text)
		e.content = span{start, len(c.text)}
	case fieldSig:
		c.text, err = e.hexString(c.text, 128)
		e.sig = span{start, len(c.text)}
	default:
		err = e.skip(2)
	}
	return c, err
}

// hexString appends a string of exactly n lower-case hex digits to dst. n is a multiple of 8.
func (e *eventParser) hexString(dst []byte, n int) ([]byte, error) {
	start := len(dst)
	dst, err := e.str(dst)
	if err == nil && (len(dst)-start != n || !isLowerHex(dst[start:])) {
		err = malformed("not lower-case hex of its length")
	}
	return dst, err
}

// isLowerHex tests eight bytes together, because a branch per digit would be mispredicted often and
// dominate the time.
func isLowerHex(b []byte) bool {
	const (
		ones  = 0x0101010101010101
		highs = 0x80 * ones
	)
	for ; len(b) >= 8; b = b[8:] {
		x := binary.LittleEndian.Uint64(b)
		// For bytes below 0x80, each sum sets the high bit of a byte that is not below a bound.
		digit := (x + (0x80-'0')*ones) &^ (x + (0x80-'9'-1)*ones)
		letter := (x + (0x80-'a')*ones) &^ (x + (0x80-'f'-1)*ones)
		if x&highs != 0 || (digit|letter)&highs != highs {
			return false
		}
	}
	return len(b) == 0
}

// readTags reads the array of tags. A tag may be empty.
func (e *eventParser) readTags(c collected) (collected, error) {
	if err := e.enter('[', 2); err != nil {
		return c, err
	}
	for done := e.accept(']'); !done; {
		if len(c.counts) == e.limits.Tags {
			return c, malformed("event has too many tags")
		}
		var err error
		if c, err = e.readTag(c); err != nil {
			return c, err
		}
		if done, err = e.after(']'); err != nil {
			return c, err
		}
	}
	return c, nil
}

func (e *eventParser) readTag(c collected) (collected, error) {
	before := len(c.ends)
	if err := e.enter('[', 3); err != nil {
		return c, err
	}
	for done := e.accept(']'); !done; {
		var err error
		if c.text, err = e.str(c.text); err != nil {
			return c, err
		}
		c.ends = append(c.ends, len(c.text))
		if done, err = e.after(']'); err != nil {
			return c, err
		}
	}
	c.counts = append(c.counts, len(c.ends)-before)
	return c, nil
}

// build makes the event and the subscription id from the collected text.
func (e *eventParser) build(c collected, sub span) (string, graspsync.Event, error) {
	if e.known {
		return e.buildKnown(c, sub)
	}
	s := string(c.text)
	values := make([]string, len(c.ends))
	start := e.tags
	for i, end := range c.ends {
		values[i] = s[start:end]
		start = end
	}
	tags := make(nostr.Tags, len(c.counts))
	for i, n := range c.counts {
		// The capacity ends with the tag, so that appending to a tag does not overwrite the next.
		tags[i], values = values[:n:n], values[n:]
	}
	return event(s[sub.start:sub.end], &nostr.Event{
		ID:        s[e.id.start:e.id.end],
		PubKey:    s[e.pubkey.start:e.pubkey.end],
		CreatedAt: nostr.Timestamp(e.createdAt),
		Kind:      int(e.kind),
		Tags:      tags,
		Content:   s[e.content.start:e.content.end],
		Sig:       s[e.sig.start:e.sig.end],
	})
}

// buildKnown makes the fields of an event whose id is known, and the subscription id.
func (e *eventParser) buildKnown(c collected, sub span) (string, graspsync.Event, error) {
	text := func(of span) string { return string(c.text[of.start:of.end]) }
	return event(text(sub), &nostr.Event{
		ID: text(e.id), PubKey: text(e.pubkey), CreatedAt: nostr.Timestamp(e.createdAt), Kind: int(e.kind),
	})
}

func event(sub string, read *nostr.Event) (string, graspsync.Event, error) {
	ev, err := graspsync.ParseEvent(read)
	if err != nil { // the zero id; all other hex is valid
		return "", graspsync.Event{}, malformed("id or pubkey is none that an event may have")
	}
	return sub, ev, nil
}
