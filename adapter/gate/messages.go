package gate

import (
	"bytes"
	"encoding/json"
	"slices"
	"strconv"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync/sync/wire"
)

// The labels of messages: NIP-01, NIP-42, NIP-45, NIP-77.
const (
	labelEvent    = "EVENT"
	labelReq      = "REQ"
	labelClose    = "CLOSE"
	labelAuth     = "AUTH"
	labelCount    = "COUNT"
	labelNegOpen  = "NEG-OPEN"
	labelNegMsg   = "NEG-MSG"
	labelNegClose = "NEG-CLOSE"

	labelOK     = "OK"
	labelEOSE   = "EOSE"
	labelClosed = "CLOSED"
	labelNotice = "NOTICE"
	labelNegErr = "NEG-ERR"
)

// request is a message of a client.
type request struct {
	label string
	name  string            // of a subscription, as the client has it
	parts []json.RawMessage // what comes after the label, and after the name where there is one
}

// maxEcho is how long a name may be that is repeated to who has sent it.
const maxEcho = 4096

// distinct leaves out filters that are there already: each is looked for by itself.
func distinct(filters []json.RawMessage) (out []json.RawMessage) {
	for _, f := range filters {
		if !slices.ContainsFunc(out, func(o json.RawMessage) bool { return bytes.Equal(o, f) }) {
			out = append(out, f)
		}
	}
	return out
}

// check says what is wrong with what comes after the name.
func (r request) check(most int) (answer []byte) {
	switch r.label {
	case labelReq, labelCount:
		if len(r.parts) > most {
			return r.refusal("invalid: too many filters")
		}
		if len(r.parts) == 0 || r.label == labelCount && len(r.parts) > 1 {
			return r.refusal("invalid: not as many filters as there must be")
		}
		for i := range r.parts {
			if reason := r.checkFilter(i); reason != "" {
				return r.refusal(reason)
			}
		}
	case labelNegOpen:
		if len(r.parts) != 2 {
			return r.refusal("invalid: NEG-OPEN has a filter and a message")
		}
		if reason := r.checkFilter(0); reason != "" {
			return r.refusal(reason)
		}
		return r.checkNeg(r.parts[1])
	case labelNegMsg:
		if len(r.parts) != 1 {
			return r.refusal("invalid: NEG-MSG has a message")
		}
		return r.checkNeg(r.parts[0])
	}
	return nil
}

// What a filter may name. A backend may look for each author with each kind by itself, and all at
// once: it is the product that costs.
const (
	maxValues   = 4000
	maxProducts = 10_000
)

// checkFilter says what is wrong with a filter, and has it written as whoever reads it next reads it:
// of what can't be parsed a relay does not say whose it was.
func (r request) checkFilter(i int) (reason string) {
	var f nostr.Filter
	if !isObject(r.parts[i]) || json.Unmarshal(r.parts[i], &f) != nil {
		return "invalid: this is no filter of NIP-01"
	}
	values := 0
	for _, of := range f.Tags {
		values += len(of)
	}
	switch {
	case len(f.IDs) > maxValues:
		return "invalid: too many ids"
	case values > maxValues:
		return "invalid: too many tag values"
	case max(len(f.Authors), 1)*max(len(f.Kinds), 1) > maxProducts || len(f.Authors) > maxValues:
		return "invalid: too many authors"
	}
	text, err := json.Marshal(f)
	if err != nil {
		return "invalid: this is no filter of NIP-01"
	}
	r.parts[i] = text
	return ""
}

func (r request) checkNeg(part json.RawMessage) (answer []byte) {
	var text string
	if json.Unmarshal(part, &text) != nil {
		return r.refusal("invalid: a negentropy message is in hex")
	}
	if err := wire.CheckNegMessage(text); err != nil {
		return r.refusal("error: invalid negentropy message")
	}
	return nil
}

// refusal answers a request that has a name.
func (r request) refusal(reason string) []byte {
	switch r.label {
	case labelNegOpen, labelNegMsg, labelNegClose:
		return write(labelNegErr, quoted(r.name), quoted(reason))
	}
	return write(labelClosed, quoted(r.name), quoted(reason))
}

// as is the message as the relay gets it, with a name of ours.
func (r request) as(number uint64) []byte {
	parts := r.parts
	switch r.label {
	case labelEvent, labelAuth:
	default:
		parts = append([]json.RawMessage{nameOf(number)}, parts...)
	}
	return write(r.label, parts...)
}

func nameOf(number uint64) json.RawMessage {
	return strconv.AppendQuote(nil, strconv.FormatUint(number, 10))
}

func isObject(part json.RawMessage) bool { return len(part) > 0 && part[0] == '{' }

func notice(text string) []byte { return write(labelNotice, quoted(text)) }

func quoted(s string) json.RawMessage {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(s) // a string can always be written
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}

// write writes a message.
func write(label string, parts ...json.RawMessage) []byte {
	n := len(label) + 4
	for _, p := range parts {
		n += len(p) + 1
	}
	b := append(append(append(make([]byte, 0, n), `["`...), label...), '"')
	for _, p := range parts {
		b = append(append(b, ','), p...)
	}
	return append(b, ']')
}

// answer is a message of the relay.
type answer struct {
	label  string
	number uint64 // zero: it is about no subscription
	rest   []byte // what comes after the name
}

// readAnswer reads as much of a message of the relay as has to be known. The relay is trusted:
// what it does not understand passes as it is.
func readAnswer(message []byte) (a answer) {
	rest, ok := bytes.CutPrefix(message, []byte(`["`))
	label, rest, found := bytes.Cut(rest, []byte(`"`))
	if !ok || !found {
		return a
	}
	if a.label = string(label); a.label == "NEG-ERROR" { // as go-nostr spells it
		a.label = labelNegErr
	}
	switch a.label {
	case labelEvent, labelEOSE, labelClosed, labelCount, labelNegMsg, labelNegErr:
	default:
		return a
	}
	rest = bytes.TrimLeft(rest, ", ")
	rest, ok = bytes.CutPrefix(rest, []byte(`"`))
	name, rest, found := bytes.Cut(rest, []byte(`"`))
	number, err := strconv.ParseUint(string(name), 10, 64)
	if !ok || !found || err != nil {
		return a
	}
	a.number, a.rest = number, rest
	return a
}

// as is the message as the client gets it, with the name that it has given.
func (a answer) as(name []byte) []byte {
	b := make([]byte, 0, len(a.label)+len(name)+len(a.rest)+4)
	b = append(append(append(b, `["`...), a.label...), `",`...)
	return append(append(b, name...), a.rest...)
}

// failedToParse is how khatru answers what it can't read.
var failedToParse = []byte(`["NOTICE","failed to parse`)
