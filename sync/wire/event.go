package wire

import (
	"slices"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
)

// Ranges of the numbers of an event. Programs that store times as floating-point numbers read times
// beyond 2^53 differently.
const (
	maxKind      = 65535
	maxCreatedAt = 1 << 53
)

// The fields of an event, as indexes of fieldNames.
const (
	fieldID = iota
	fieldPubKey
	fieldCreatedAt
	fieldKind
	fieldTags
	fieldContent
	fieldSig
	fields
)

var fieldNames = [fields]string{"id", "pubkey", "created_at", "kind", "tags", "content", "sig"}

// eventParser collects the fields of an event. Strings are collected in buf, and become parts of
// one string when their length is known.
type eventParser struct {
	buf             []byte
	ends            []int // end of each tag value in buf
	counts          []int // number of values of each tag
	seen            [fields]bool
	start, end      [fields]int // parts of buf
	createdAt, kind int64
	isKnown         bool
}

// ParseEvent reads an event of a client like [Parse]. The error wraps [ErrMalformed] and names the
// invalid field.
func ParseEvent(data []byte) (graspsync.Event, error) {
	p := &parser{scanner: scanner{data: data}}
	ev, err := p.event()
	if err == nil && p.pos != len(data) {
		return graspsync.Event{}, malformed("bytes after the event")
	}
	return ev, err
}

func (p *parser) event() (graspsync.Event, error) {
	start := p.pos
	p.buf = make([]byte, 0, min(len(p.data)-start, maxEvent)) // no text is longer
	if err := p.object(1, p.field); err != nil {
		return graspsync.Event{}, err
	}
	for i, name := range fieldNames {
		if !p.seen[i] {
			return graspsync.Event{}, malformed("event lacks " + name)
		}
	}
	if p.pos-start > maxEvent {
		return graspsync.Event{}, malformed("event too large")
	}
	return p.build()
}

func (p *parser) field() error {
	field := slices.Index(fieldNames[:], string(p.key))
	switch {
	case field < 0:
		return p.skip(2)
	case p.seen[field]:
		// JSON parsers differ in which of two equal keys they use.
		return malformed("event has " + fieldNames[field] + " twice")
	}
	p.seen[field] = true
	p.start[field] = len(p.buf)
	err := p.value(field)
	p.end[field] = len(p.buf)
	if m, is := err.(malformed); is { //nolint:errorlint // nothing wraps it here
		return malformed(fieldNames[field]) + ": " + m
	}
	return err
}

func (p *parser) value(field int) (err error) {
	switch {
	case field == fieldCreatedAt:
		p.createdAt, err = p.integer(maxCreatedAt)
	case field == fieldKind:
		p.kind, err = p.integer(maxKind)
	case p.isKnown && field >= fieldTags:
		return p.skip(2)
	case field == fieldTags:
		return p.array(2, p.tag)
	default:
		p.buf, err = p.str(p.buf)
	}
	if field == fieldID && p.known != nil && err == nil {
		id, no := graspsync.ParseEventID(string(p.buf[p.start[fieldID]:]))
		p.isKnown = no == nil && p.known(id)
	}
	return err
}

func (p *parser) tag() error {
	if len(p.counts) == MaxTags {
		return malformed("event has too many tags")
	}
	before := len(p.ends)
	err := p.array(3, p.tagValue)
	p.counts = append(p.counts, len(p.ends)-before)
	return err
}

func (p *parser) tagValue() (err error) {
	p.buf, err = p.str(p.buf)
	p.ends = append(p.ends, len(p.buf))
	return err
}

func (p *parser) build() (graspsync.Event, error) {
	s := string(p.buf)
	part := func(field int) string { return s[p.start[field]:p.end[field]] }
	var tags nostr.Tags
	if !p.isKnown {
		sig := part(fieldSig)
		_, first := graspsync.ParseEventID(sig[:len(sig)/2])
		_, second := graspsync.ParseEventID(sig[len(sig)/2:])
		if first != nil || second != nil {
			return graspsync.Event{}, malformed("sig: not 128 lower-case hex digits")
		}
		tags = p.buildTags(s)
	}
	ev, err := graspsync.ParseEvent(&nostr.Event{
		ID: part(fieldID), PubKey: part(fieldPubKey), Sig: part(fieldSig), Content: part(fieldContent),
		CreatedAt: nostr.Timestamp(p.createdAt), Kind: int(p.kind), Tags: tags,
	})
	if err != nil {
		return graspsync.Event{}, malformed("id or pubkey: not 64 lower-case hex digits, or zero")
	}
	return ev, nil
}

func (p *parser) buildTags(s string) nostr.Tags {
	values := make([]string, len(p.ends))
	start := p.start[fieldTags]
	for i, end := range p.ends {
		values[i] = s[start:end]
		start = end
	}
	tags := make(nostr.Tags, len(p.counts))
	for i, n := range p.counts {
		// The capacity ends with the tag, so that appending to a tag does not overwrite the next.
		tags[i], values = values[:n:n], values[n:]
	}
	return tags
}
