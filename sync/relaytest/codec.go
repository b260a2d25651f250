package relaytest

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync/sync/wire"
)

func quote(s string) string {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(s); err != nil { // cannot fail for a string
		return `""`
	}
	return string(bytes.TrimSuffix(b.Bytes(), []byte("\n")))
}

func encode(f frame) []byte {
	m := &f.msg
	label := map[wire.Type]string{
		wire.TypeEvent: "EVENT", wire.TypeEOSE: "EOSE", wire.TypeClosed: "CLOSED", wire.TypeNotice: "NOTICE", wire.TypeOK: "OK",
		wire.TypeAuth: "AUTH", wire.TypeNegMsg: "NEG-MSG", wire.TypeNegErr: "NEG-ERR",
	}[m.Type]
	if f.negError {
		label = strings.Replace(label, "NEG-ERR", "NEG-ERROR", 1)
	}
	parts := []string{quote(label)}
	switch m.Type {
	case wire.TypeEvent:
		parts = append(parts, quote(m.Sub), m.Event.String())
	case wire.TypeEOSE:
		parts = append(parts, quote(m.Sub))
		if hint := map[wire.Hint]string{wire.HintFinish: `["finish"]`, wire.HintMore: `["more"]`}[m.Hint]; hint != "" {
			parts = append(parts, hint)
		}
	case wire.TypeClosed, wire.TypeNegErr:
		if parts = append(parts, quote(m.Sub), quote(m.Text)); m.Max > 0 {
			parts = append(parts, fmt.Sprint(m.Max))
		}
	case wire.TypeNotice, wire.TypeAuth:
		parts = append(parts, quote(m.Text))
	case wire.TypeOK:
		parts = append(parts, quote(m.ID.String()), fmt.Sprint(m.Accepted), quote(m.Text))
	case wire.TypeNegMsg:
		parts = append(parts, quote(m.Sub), quote(hex.EncodeToString(m.Payload)))
	}
	return []byte("[" + strings.Join(parts, ",") + "]")
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
