package wire

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"unicode/utf8"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync/filters"
)

// ErrRequest is wrapped by the errors of [Append]. It means that the request cannot be sent to any
// relay.
var ErrRequest = errors.New("invalid request")

// Append appends the JSON of r to dst, without white space, because some relays expect the label at
// a fixed position. An error wraps [ErrRequest] and leaves dst unchanged.
func Append(dst []byte, r Request) ([]byte, error) {
	if err := r.check(); err != nil {
		return dst, err
	}
	switch r.Type {
	case TypeReq:
		dst = appendHead(dst, "REQ", r.Sub)
		for _, f := range r.Filters {
			dst = append(append(dst, ','), f.String()...)
		}
	case TypeClose:
		dst = appendHead(dst, "CLOSE", r.Sub)
	case TypePublish:
		dst = append(append(dst, `["EVENT",`...), r.Event.String()...)
	case TypeAnswer:
		dst = append(append(dst, `["AUTH",`...), r.Event.String()...)
	case TypeNegOpen:
		dst = appendHead(dst, "NEG-OPEN", r.Sub)
		dst = append(append(dst, ','), r.Filters[0].String()...)
		dst = appendPayload(append(dst, ','), r.Payload)
	case TypeNegSend:
		dst = appendHead(dst, "NEG-MSG", r.Sub)
		dst = appendPayload(append(dst, ','), r.Payload)
	case TypeNegClose:
		dst = appendHead(dst, "NEG-CLOSE", r.Sub)
	}
	return append(dst, ']'), nil
}

func (r Request) check() error {
	wanted := 0
	switch r.Type {
	case TypePublish, TypeAnswer:
		if r.Event == nil {
			return fmt.Errorf("%w: no event", ErrRequest)
		}
		return nil
	case TypeReq:
		wanted = max(1, len(r.Filters))
	case TypeNegOpen:
		wanted = 1
	case TypeClose, TypeNegSend, TypeNegClose:
	default:
		return fmt.Errorf("%w: type %d", ErrRequest, r.Type)
	}
	if n := len(r.Sub); n == 0 || n > MaxSub || !utf8.ValidString(r.Sub) {
		return fmt.Errorf("%w: subscription id of %d bytes", ErrRequest, n)
	}
	if wanted == 0 {
		return nil
	}
	if len(r.Filters) != wanted {
		return fmt.Errorf("%w: %d filters", ErrRequest, len(r.Filters))
	}
	for _, f := range r.Filters {
		if err := checkFilter(f); err != nil {
			return err
		}
	}
	return nil
}

func checkFilter(f nostr.Filter) error {
	if filters.Empty(f) {
		return fmt.Errorf("%w: filter with an empty list", ErrRequest)
	}
	if f.Limit < 0 {
		return fmt.Errorf("%w: filter with limit %d", ErrRequest, f.Limit)
	}
	return nil
}

func appendHead(dst []byte, label, sub string) []byte {
	var head bytes.Buffer
	e := json.NewEncoder(&head)
	e.SetEscapeHTML(false)
	_ = e.Encode([]string{label, sub}) // never fails
	return append(dst, bytes.TrimSuffix(head.Bytes(), []byte("]\n"))...)
}

func appendPayload(dst, payload []byte) []byte {
	dst = append(dst, '"')
	dst = hex.AppendEncode(dst, payload)
	return append(dst, '"')
}
