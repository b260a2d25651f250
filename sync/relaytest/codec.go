package relaytest

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync/sync/wire"
)

func encode(f frame) []byte {
	m := &f.msg
	var parts []any
	switch m.Type {
	case wire.TypeEvent:
		return fmt.Appendf(nil, `["EVENT",%s,%s]`, toJSON(m.Sub), m.Event.String())
	case wire.TypeEOSE:
		parts = []any{"EOSE", m.Sub}
		if hint := map[wire.Hint]string{wire.HintFinish: "finish", wire.HintMore: "more"}[m.Hint]; hint != "" {
			parts = append(parts, []string{hint})
		}
	case wire.TypeClosed:
		parts = []any{"CLOSED", m.Sub, m.Text}
	case wire.TypeNegErr:
		parts = []any{"NEG-ERR", m.Sub, m.Text}
		if f.negError {
			parts[0] = "NEG-ERROR"
		}
		if m.Max > 0 {
			parts = append(parts, m.Max)
		}
	case wire.TypeNotice:
		parts = []any{"NOTICE", m.Text}
	case wire.TypeAuth:
		parts = []any{"AUTH", m.Text}
	case wire.TypeOK:
		parts = []any{"OK", m.ID.String(), m.Accepted, m.Text}
	case wire.TypeNegMsg:
		return fmt.Appendf(nil, `["NEG-MSG",%s,"%x"]`, toJSON(m.Sub), m.Payload)
	}
	return toJSON(parts)
}

func toJSON(v any) []byte {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(v) // cannot fail for these values
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}

var errMalformed = errors.New("malformed")

// requestTypes are the types of requests by label.
var requestTypes = map[string]wire.RequestType{
	"EVENT": wire.TypePublish, "AUTH": wire.TypeAnswer, "REQ": wire.TypeReq, "CLOSE": wire.TypeClose,
	"NEG-OPEN": wire.TypeNegOpen, "NEG-MSG": wire.TypeNegSend, "NEG-CLOSE": wire.TypeNegClose,
}

func decode(text []byte) (req wire.Request, err error) {
	var parts []json.RawMessage
	if err := json.Unmarshal(text, &parts); err != nil || len(parts) < 2 {
		return req, fmt.Errorf("%w: not an array with two elements", errMalformed)
	}
	var label, payload string
	read := func(what string, part json.RawMessage, into any) {
		if err == nil && json.Unmarshal(part, into) != nil {
			err = fmt.Errorf("%w: %s", errMalformed, what)
		}
	}
	read("label", parts[0], &label)
	req.Type = requestTypes[label]
	switch n := len(parts); {
	case req.Type == wire.TypePublish || req.Type == wire.TypeAnswer:
		req.Event = &nostr.Event{}
		read("event", parts[1], req.Event)
		return req, err
	case req.Type == wire.TypeNegOpen && n != 4 || req.Type == wire.TypeNegSend && n != 3 || req.Type == 0:
		return req, fmt.Errorf("%w: %s with %d elements", errMalformed, label, n)
	}
	read("subscription id", parts[1], &req.Sub)
	rest := parts[2:]
	if req.Type == wire.TypeNegOpen || req.Type == wire.TypeNegSend {
		read("payload", rest[len(rest)-1], &payload)
		rest = rest[:len(rest)-1]
		if req.Payload, _ = hex.DecodeString(payload); err == nil && len(req.Payload)*2 != len(payload) {
			err = fmt.Errorf("%w: payload", errMalformed)
		}
	}
	if req.Type == wire.TypeReq || req.Type == wire.TypeNegOpen {
		req.Filters = make([]nostr.Filter, len(rest))
		for i, part := range rest {
			read("filter", part, &req.Filters[i])
		}
	}
	return req, err
}
