package wire

import (
	"bytes"
	"cmp"
	"regexp"
	"slices"
	"strings"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
)

const (
	// maxEvent is the maximum size of an event with the end of its message, in bytes of JSON. A ref
	// of a state takes about 75 bytes.
	maxEvent = 512<<10 + 1
	maxKind  = 65535
	// maxCreatedAt is a time beyond which programs differ that store times as floating-point
	// numbers.
	maxCreatedAt = 1 << 53
)

var fieldNames = [...]string{"id", "pubkey", "created_at", "kind", "tags", "content", "sig"}

// paired matches JSON whose escaped surrogates are all pairs.
var paired = regexp.MustCompile(`^(?:[^\\]|\\[^u]|\\u(?:[^dD]|[dD][0-7])|\\u[dD][89abAB]..\\u[dD][c-fC-F])*$`)

func (p *parser) event() {
	p.l.IsDelim('{') // moves past white space
	raw := p.l.Data[max(p.l.GetPos()-1, 0):]
	if len(raw) > maxEvent {
		p.fail("event too large")
	}
	var ev nostr.Event
	missing := fieldNames
	for p.l.Delim('{'); !p.l.IsDelim('}'); p.l.WantComma() {
		key := p.l.UnsafeString()
		p.l.WantColon()
		i := slices.Index(fieldNames[:], key)
		switch {
		case i < 0:
			p.l.SkipRecursive()
			continue
		case missing[i] == "":
			p.fail("event has " + key + " twice")
		}
		missing[i], p.field = "", fieldNames[i]
		if p.value(&ev); p.l.Ok() {
			p.field = ""
		}
	}
	p.l.Delim('}')
	if !p.l.Ok() {
		return
	}
	if (bytes.Contains(raw, []byte(`\ud`)) || bytes.Contains(raw, []byte(`\uD`))) && !paired.Match(raw) {
		p.fail("tags or content: lone surrogate")
	}
	if lacks := cmp.Or(missing[:]...); lacks != "" {
		p.fail("event lacks " + lacks)
	}
	if !p.m.Known && (len(ev.Sig) != 128 || strings.Trim(ev.Sig, "0123456789abcdef") != "") {
		p.fail("sig: not 128 lower-case hex digits")
	}
	var err error
	if p.m.Event, err = graspsync.ParseEvent(&ev); err != nil {
		p.fail("id or pubkey: not 64 lower-case hex digits, or zero")
	}
}

func (p *parser) value(ev *nostr.Event) {
	switch p.field {
	case "id":
		ev.ID = p.str()
		if id, err := graspsync.ParseEventID(ev.ID); err == nil && p.known != nil {
			p.m.Known = p.known(id)
		}
		return
	case "pubkey":
		ev.PubKey = p.str()
		return
	case "created_at":
		ev.CreatedAt = nostr.Timestamp(p.integer(maxCreatedAt))
		return
	case "kind":
		ev.Kind = int(p.integer(maxKind))
		return
	}
	switch {
	case p.m.Known:
		p.l.SkipRecursive()
	case p.field == "content":
		ev.Content = p.str()
	case p.field == "sig":
		ev.Sig = p.str()
	default:
		ev.Tags = p.tags()
	}
}

// integer reads a whole number from 0 to most, without fraction or exponent.
func (p *parser) integer(most int64) int64 {
	n := p.l.Int64()
	if n < 0 || n > most {
		p.fail("number out of range")
	}
	return n
}

func (p *parser) tags() nostr.Tags {
	tags := nostr.Tags{}
	var values nostr.Tag // of one tag, in room that is used again
	p.list(func() {
		if len(tags) == MaxTags {
			p.fail("too many tags")
		}
		values = values[:0]
		p.list(func() { values = append(values, p.str()) })
		tags = append(tags, append(make(nostr.Tag, 0, len(values)), values...))
	})
	return tags
}
