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
	// filters of a REQ are its parts, read. Each is there once, since each is looked for by itself.
	filters []nostr.Filter
}

// maxEcho is how long a name may be that is repeated to who has sent it.
const maxEcho = 4096

// check says what is wrong with what comes after the name.
func (r *request) check(most int) (answer []byte) {
	switch r.label {
	case labelReq, labelCount:
		if len(r.parts) > most {
			return r.refusal("invalid: too many filters")
		}
		if len(r.parts) == 0 || r.label == labelCount && len(r.parts) > 1 {
			return r.refusal("invalid: not as many filters as there must be")
		}
		return r.checkFilters()
	case labelNegOpen:
		if len(r.parts) != 2 {
			return r.refusal("invalid: NEG-OPEN has a filter and a message")
		}
		_, text, reason := readFilter(r.parts[0])
		if reason != "" {
			return r.refusal(reason)
		}
		r.parts[0] = text
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
	maxNames    = 64 // of tags: there are 52 that are indexed (NIP-01)
	maxProducts = 10_000
)

func (r *request) checkFilters() (answer []byte) {
	var texts []json.RawMessage
	for _, part := range r.parts {
		f, text, reason := readFilter(part)
		if reason != "" {
			return r.refusal(reason)
		}
		if !slices.ContainsFunc(texts, func(o json.RawMessage) bool { return bytes.Equal(o, text) }) {
			texts, r.filters = append(texts, text), append(r.filters, f)
		}
	}
	r.parts = texts
	return nil
}

// readFilter reads a filter, or says what is wrong with it, and has it written as whoever reads it next reads it:
// of what can't be parsed a relay does not say whose it was.
func readFilter(part json.RawMessage) (f nostr.Filter, text json.RawMessage, reason string) {
	if !isObject(part) || json.Unmarshal(part, &f) != nil {
		return f, nil, "invalid: this is no filter of NIP-01"
	}
	values := 0
	for _, of := range f.Tags {
		values += len(of)
	}
	switch {
	case len(f.IDs) > maxValues:
		return f, nil, "invalid: too many ids"
	case values > maxValues:
		return f, nil, "invalid: too many tag values"
	case len(f.Tags) > maxNames:
		return f, nil, "invalid: too many tags"
	case max(len(f.Authors), 1)*max(len(f.Kinds), 1) > maxProducts || len(f.Authors) > maxValues:
		return f, nil, "invalid: too many authors"
	}
	text, err := written(f)
	if err != nil {
		return f, nil, "invalid: this is no filter of NIP-01"
	}
	return f, text, ""
}

// written is a filter as JSON. go-nostr leaves out lists with nothing in them, which nothing is in, and what is left is in everything.
func written(f nostr.Filter) (json.RawMessage, error) {
	text, err := json.Marshal(f)
	if err != nil {
		return nil, err
	}
	var empty []string
	for name, is := range map[string]bool{
		"ids": f.IDs != nil && len(f.IDs) == 0, "authors": f.Authors != nil && len(f.Authors) == 0, "kinds": f.Kinds != nil && len(f.Kinds) == 0,
	} {
		if is {
			empty = append(empty, name)
		}
	}
	for name, values := range f.Tags {
		if values != nil && len(values) == 0 {
			empty = append(empty, "#"+name)
		}
	}
	if len(empty) == 0 {
		return text, nil
	}
	var all map[string]json.RawMessage
	if err := json.Unmarshal(text, &all); err != nil {
		return nil, err
	}
	for _, name := range empty {
		all[name] = json.RawMessage("[]")
	}
	return json.Marshal(all)
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
