package wire

import (
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"unicode/utf8"

	"github.com/nbd-wtf/go-nostr"
)

// ErrRequest is wrapped by the errors of [Append]. It means that the request cannot be sent to any
// relay.
var ErrRequest = errors.New("invalid request")

// Append appends the JSON of r to dst. The JSON has no white space, because some relays expect the
// label at a fixed position. Tags of a filter are sorted by name, so that equal filters give equal
// bytes. A filter has the length of [nostr.Filter.String]. With an error, which wraps [ErrRequest],
// dst is returned unchanged.
func Append(dst []byte, r Request) ([]byte, error) {
	if err := r.check(); err != nil {
		return dst, err
	}
	switch r.Type {
	case TypeReq:
		dst = appendHead(dst, "REQ", r.Sub)
		for _, f := range r.Filters {
			dst = appendFilter(append(dst, ','), f)
		}
	case TypeClose:
		dst = appendHead(dst, "CLOSE", r.Sub)
	case TypePublish:
		dst = appendEvent(append(dst, `["EVENT",`...), r.Event)
	case TypeAnswer:
		dst = appendEvent(append(dst, `["AUTH",`...), r.Event)
	case TypeNegOpen:
		dst = appendHead(dst, "NEG-OPEN", r.Sub)
		dst = appendFilter(append(dst, ','), r.Filters[0])
		dst = appendPayload(append(dst, ','), r.Payload)
	case TypeNegSend:
		dst = appendHead(dst, "NEG-MSG", r.Sub)
		dst = appendPayload(append(dst, ','), r.Payload)
	case TypeNegClose:
		dst = appendHead(dst, "NEG-CLOSE", r.Sub)
	}
	return append(dst, ']'), nil
}

// check returns the reason why r cannot be sent.
func (r Request) check() error {
	filters := 0
	switch r.Type {
	case TypePublish, TypeAnswer:
		if r.Event == nil {
			return fmt.Errorf("%w: no event", ErrRequest)
		}
		return nil
	case TypeReq:
		filters = max(1, len(r.Filters))
	case TypeNegOpen:
		filters = 1
	case TypeClose, TypeNegSend, TypeNegClose:
	default:
		return fmt.Errorf("%w: type %d", ErrRequest, r.Type)
	}
	if n := len(r.Sub); n == 0 || n > MaxSub || !utf8.ValidString(r.Sub) {
		return fmt.Errorf("%w: subscription id of %d bytes", ErrRequest, n)
	}
	if filters == 0 {
		return nil
	}
	if len(r.Filters) != filters {
		return fmt.Errorf("%w: %d filters", ErrRequest, len(r.Filters))
	}
	for _, f := range r.Filters {
		if err := checkFilter(f); err != nil {
			return err
		}
	}
	return nil
}

// checkFilter rejects empty lists, because for some relays an empty list matches nothing and for
// others everything.
func checkFilter(f nostr.Filter) error {
	empty := f.IDs != nil && len(f.IDs) == 0 ||
		f.Kinds != nil && len(f.Kinds) == 0 ||
		f.Authors != nil && len(f.Authors) == 0
	for _, values := range f.Tags {
		empty = empty || len(values) == 0
	}
	if empty {
		return fmt.Errorf("%w: filter with an empty list", ErrRequest)
	}
	if f.Limit < 0 {
		return fmt.Errorf("%w: filter with limit %d", ErrRequest, f.Limit)
	}
	return nil
}

func appendHead(dst []byte, label, sub string) []byte {
	dst = append(dst, `["`...)
	dst = append(dst, label...)
	dst = append(dst, `",`...)
	return appendString(dst, sub)
}

func appendPayload(dst, payload []byte) []byte {
	dst = append(dst, '"')
	dst = hex.AppendEncode(dst, payload)
	return append(dst, '"')
}

func appendFilter(dst []byte, f nostr.Filter) []byte {
	dst = append(dst, '{')
	start := len(dst)
	dst = appendList(dst, "ids", f.IDs)
	dst = appendKinds(dst, f.Kinds)
	dst = appendList(dst, "authors", f.Authors)
	if f.Since != nil {
		dst = appendNumber(dst, "since", int64(*f.Since))
	}
	if f.Until != nil {
		dst = appendNumber(dst, "until", int64(*f.Until))
	}
	if f.Limit != 0 || f.LimitZero {
		dst = appendNumber(dst, "limit", int64(f.Limit))
	}
	if f.Search != "" {
		dst = append(appendString(appendKey(dst, "search"), f.Search), ',')
	}
	var room [4]string
	names := room[:0]
	for name := range f.Tags {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		dst = appendList(dst, "#"+name, f.Tags[name])
	}
	if len(dst) > start {
		dst = dst[:len(dst)-1] // the last comma
	}
	return append(dst, '}')
}

// The functions below append a member and a comma.

func appendKey(dst []byte, key string) []byte {
	return append(appendString(dst, key), ':')
}

func appendNumber(dst []byte, key string, n int64) []byte {
	return append(strconv.AppendInt(appendKey(dst, key), n, 10), ',')
}

func appendKinds(dst []byte, kinds []int) []byte {
	if len(kinds) == 0 {
		return dst
	}
	dst = append(appendKey(dst, "kinds"), '[')
	for i, k := range kinds {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = strconv.AppendInt(dst, int64(k), 10)
	}
	return append(dst, ']', ',')
}

func appendList(dst []byte, key string, values []string) []byte {
	if len(values) == 0 {
		return dst
	}
	return append(appendStrings(appendKey(dst, key), values), ',')
}

func appendStrings(dst []byte, values []string) []byte {
	dst = append(dst, '[')
	for i, v := range values {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = appendString(dst, v)
	}
	return append(dst, ']')
}

func appendEvent(dst []byte, ev *nostr.Event) []byte {
	dst = append(dst, '{')
	dst = append(appendString(appendKey(dst, "id"), ev.ID), ',')
	dst = append(appendString(appendKey(dst, "pubkey"), ev.PubKey), ',')
	dst = appendNumber(dst, "created_at", int64(ev.CreatedAt))
	dst = appendNumber(dst, "kind", int64(ev.Kind))
	dst = append(appendKey(dst, "tags"), '[')
	for i, tag := range ev.Tags {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = appendStrings(dst, tag)
	}
	dst = append(dst, ']', ',')
	dst = append(appendString(appendKey(dst, "content"), ev.Content), ',')
	dst = appendString(appendKey(dst, "sig"), ev.Sig)
	return append(dst, '}')
}

// appendString appends s in quotes. It escapes the line separators of Unicode, like go-nostr does,
// so that lengths agree.
func appendString(dst []byte, s string) []byte {
	const digits = "0123456789abcdef"
	dst = append(dst, '"')
	start := 0
	for i, r := range s {
		if r >= ' ' && r != '"' && r != '\\' && r != '\u2028' && r != '\u2029' && r != utf8.RuneError {
			continue
		}
		size := max(1, utf8.RuneLen(r))
		if r == utf8.RuneError {
			if _, size = utf8.DecodeRuneInString(s[i:]); size > 1 {
				continue // U+FFFD itself, not an invalid byte
			}
		}
		dst = append(dst, s[start:i]...)
		start = i + size
		switch r {
		case '"', '\\':
			dst = append(dst, '\\', byte(r))
		case '\n':
			dst = append(dst, `\n`...)
		case '\r':
			dst = append(dst, `\r`...)
		case '\t':
			dst = append(dst, `\t`...)
		default:
			dst = append(dst, '\\', 'u', digits[r>>12&15], digits[r>>8&15], digits[r>>4&15], digits[r&15])
		}
	}
	dst = append(dst, s[start:]...)
	return append(dst, '"')
}
