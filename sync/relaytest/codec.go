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
	array := func(label string, parts ...string) []byte {
		b := append([]byte(`["`), label...)
		b = append(b, '"')
		for _, p := range parts {
			b = append(append(b, ','), p...)
		}
		return append(b, ']')
	}
	switch m.Type {
	case wire.TypeEvent:
		return array("EVENT", quote(m.Sub), m.Event.String())
	case wire.TypeEOSE:
		switch m.Hint {
		case wire.HintFinish:
			return array("EOSE", quote(m.Sub), `["finish"]`)
		case wire.HintMore:
			return array("EOSE", quote(m.Sub), `["more"]`)
		}
		return array("EOSE", quote(m.Sub))
	case wire.TypeClosed:
		return array("CLOSED", quote(m.Sub), quote(m.Text))
	case wire.TypeNotice:
		return array("NOTICE", quote(m.Text))
	case wire.TypeOK:
		return array("OK", quote(m.ID.String()), fmt.Sprint(m.Accepted), quote(m.Text))
	case wire.TypeAuth:
		return array("AUTH", quote(m.Text))
	case wire.TypeNegMsg:
		return array("NEG-MSG", quote(m.Sub), quote(hex.EncodeToString(m.Payload)))
	case wire.TypeNegErr:
		label := "NEG-ERR"
		if f.negError {
			label = "NEG-ERROR"
		}
		if m.Max > 0 {
			return array(label, quote(m.Sub), quote(m.Text), fmt.Sprint(m.Max))
		}
		return array(label, quote(m.Sub), quote(m.Text))
	}
	return array("UNKNOWN")
}

var errMalformed = errors.New("malformed")

func decode(text []byte) (req wire.Request, err error) {
	var parts []json.RawMessage
	if err := json.Unmarshal(text, &parts); err != nil || len(parts) < 2 {
		return req, fmt.Errorf("%w: not an array with two elements", errMalformed)
	}
	var label string
	if err := json.Unmarshal(parts[0], &label); err != nil {
		return req, fmt.Errorf("%w: label", errMalformed)
	}
	switch label {
	case "EVENT", "AUTH":
		req.Type, req.Event = wire.TypePublish, &nostr.Event{}
		if label == "AUTH" {
			req.Type = wire.TypeAnswer
		}
		if err := json.Unmarshal(parts[1], req.Event); err != nil {
			return req, fmt.Errorf("%w: event", errMalformed)
		}
		return req, nil
	}
	if err := json.Unmarshal(parts[1], &req.Sub); err != nil {
		return req, fmt.Errorf("%w: subscription id", errMalformed)
	}
	return req, decodeRest(&req, label, parts[2:])
}

func decodeRest(req *wire.Request, label string, rest []json.RawMessage) error {
	switch label {
	case "CLOSE":
		req.Type = wire.TypeClose
		return nil
	case "NEG-CLOSE":
		req.Type = wire.TypeNegClose
		return nil
	case "REQ":
		req.Type = wire.TypeReq
		return decodeFilters(req, rest)
	case "NEG-OPEN":
		req.Type = wire.TypeNegOpen
		if len(rest) != 2 {
			return fmt.Errorf("%w: NEG-OPEN has %d elements", errMalformed, 2+len(rest))
		}
		if err := decodeFilters(req, rest[:1]); err != nil {
			return err
		}
		return decodePayload(req, rest[1])
	case "NEG-MSG":
		req.Type = wire.TypeNegSend
		if len(rest) != 1 {
			return fmt.Errorf("%w: NEG-MSG has %d elements", errMalformed, 2+len(rest))
		}
		return decodePayload(req, rest[0])
	}
	return fmt.Errorf("%w: unknown label", errMalformed)
}

func decodeFilters(req *wire.Request, parts []json.RawMessage) error {
	for _, p := range parts {
		var f nostr.Filter
		if err := json.Unmarshal(p, &f); err != nil {
			return fmt.Errorf("%w: filter", errMalformed)
		}
		req.Filters = append(req.Filters, f)
	}
	return nil
}

func decodePayload(req *wire.Request, part json.RawMessage) (err error) {
	var s string
	if err := json.Unmarshal(part, &s); err != nil {
		return fmt.Errorf("%w: payload", errMalformed)
	}
	if req.Payload, err = hex.DecodeString(s); err != nil {
		return fmt.Errorf("%w: payload", errMalformed)
	}
	return nil
}
