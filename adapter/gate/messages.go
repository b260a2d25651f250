package gate

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/sync/wire"
)

// Labels of messages: NIP-01, NIP-42, NIP-45, NIP-77.
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

type request struct {
	label string
	name  json.RawMessage   // subscription id of the client
	event *nostr.Event      // of EVENT and AUTH
	parts []json.RawMessage // the values after the label and the name
	// filters is the distinct filters of a REQ, because the relay queries each separately.
	filters []nostr.Filter
}

// Maximum length of names and ids that are repeated to the client, in bytes.
const (
	maxEcho = 4096
	maxID   = 64
)

// parse returns the answer to an invalid message.
func (g *Gate) parse(message []byte) (r request, answer []byte) {
	var parts []json.RawMessage
	var name string
	if err := json.Unmarshal(message, &parts); err != nil {
		answer = r.unreadable(message, "invalid: not JSON: "+err.Error())
		return r, answer
	}
	if len(parts) < 2 {
		return r, noticeMessage("invalid: this is no message of NIP-01")
	}
	if json.Unmarshal(parts[0], &r.label) != nil {
		return r, noticeMessage("invalid: a message begins with its label")
	}
	parts = parts[1:]
	switch r.label {
	case labelEvent, labelAuth:
		answer = r.readEvent(message, parts[0], g.maxContent())
		return r, answer
	case labelReq, labelClose, labelCount, labelNegOpen, labelNegMsg, labelNegClose:
	default:
		return r, noticeMessage("invalid: unknown label of a message")
	}
	if json.Unmarshal(parts[0], &name) != nil || name == "" || len(name) > maxEcho {
		return r, noticeMessage("invalid: a subscription has a name, and no long one")
	}
	if r.name, r.parts = quoted(name), parts[1:]; len(name) > maxName {
		return r, r.refusal("invalid: the subscription id is too long")
	}
	if reason := r.fault(); reason != "" {
		return r, r.refusal(reason)
	}
	return r, nil
}

// fault returns why the parts are invalid, or "". It encodes filters again.
func (r *request) fault() (reason string) {
	switch r.label {
	case labelReq, labelCount:
		if len(r.parts) > maxFilters {
			return "invalid: too many filters"
		}
		if len(r.parts) == 0 || r.label == labelCount && len(r.parts) > 1 {
			return "invalid: not as many filters as there must be"
		}
		var texts []json.RawMessage
		for _, part := range r.parts {
			f, text, reason := readFilter(part)
			if reason != "" {
				return reason
			}
			if !slices.ContainsFunc(texts, func(o json.RawMessage) bool { return bytes.Equal(o, text) }) {
				texts, r.filters = append(texts, text), append(r.filters, f)
			}
		}
		r.parts = texts
	case labelNegOpen:
		if len(r.parts) < 2 {
			return "invalid: NEG-OPEN has a filter and a message"
		}
		if _, r.parts[0], reason = readFilter(r.parts[0]); reason != "" {
			return reason
		}
		r.parts = r.parts[:2]
		return negFault(r.parts[1])
	case labelNegMsg:
		if len(r.parts) == 0 {
			return "invalid: NEG-MSG has a message"
		}
		r.parts = r.parts[:1]
		return negFault(r.parts[0])
	}
	return ""
}

// Limits of a filter. A backend may query each author with each kind separately.
const (
	maxValues   = 4000
	maxNames    = 64 // tag names; NIP-01 indexes 52
	maxProducts = 10_000
)

// readFilter parses a filter and encodes it again as text. The gate does it because a relay would not
// say which subscription has the unreadable filter.
func readFilter(part json.RawMessage) (f nostr.Filter, text json.RawMessage, reason string) {
	members := json.NewDecoder(bytes.NewReader(part))
	if start, err := members.Token(); err != nil || start != json.Delim('{') || !utf8.Valid(part) {
		return f, nil, "invalid: a filter is an object, in UTF-8"
	}
	known, values := make(map[string]any), 0
	for members.More() {
		var raw json.RawMessage
		token, _ := members.Token() // part is valid JSON
		_ = members.Decode(&raw)
		name := fmt.Sprint(token)
		into := map[string]any{
			"ids": &f.IDs, "authors": &f.Authors, "kinds": &f.Kinds, "since": &f.Since, "until": &f.Until, "limit": &f.Limit, "search": &f.Search,
		}[name]
		if strings.HasPrefix(name, "#") {
			into = new([]string)
		}
		if into == nil {
			continue
		}
		fault := readMember(raw, into)
		if known[name] != nil {
			fault = "there twice"
		}
		if fault != "" {
			return f, nil, "invalid: " + graspsync.Clip(name, wire.MaxSub) + " is " + fault
		}
		known[name] = into
		if list, is := into.(*[]string); is && name[0] == '#' {
			if f.Tags == nil {
				f.Tags = make(nostr.TagMap)
			}
			f.Tags[name[1:]] = *list
			values += len(*list)
		}
	}
	f.LimitZero = known["limit"] != nil && f.Limit == 0
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
	return f, toJSON(known), ""
}

// readMember decodes a value, or returns its fault. null is a fault, because a filter without the
// value would match more.
func readMember(raw json.RawMessage, into any) (fault string) {
	fault = "not a non-negative integer"
	ok := !bytes.ContainsAny(raw, "-n") // neither a sign nor null
	switch into.(type) {
	case *[]string:
		var list []*string
		fault, ok = "not a list of strings", json.Unmarshal(raw, &list) == nil && list != nil && !slices.Contains(list, nil)
	case *string:
		fault, ok = "not a string", raw[0] == '"'
	case *[]int:
		fault = "not a list of non-negative integers"
	}
	if ok && json.Unmarshal(raw, into) == nil {
		return ""
	}
	return fault
}

// readEvent encodes an event again, with the members of NIP-01 only. It answers an invalid event with
// OK if it has an id.
func (r *request) readEvent(message []byte, part json.RawMessage, maxContent int) (answer []byte) {
	ev, err := wire.ParseEvent(part)
	if err == nil && utf8.RuneCountInString(ev.Content) > maxContent {
		err = fmt.Errorf("content: more than %d characters", maxContent)
	}
	if err == nil {
		r.event, r.parts = ev.Event, []json.RawMessage{[]byte(ev.String())}
		return nil
	}
	var members map[string]json.RawMessage
	_ = json.Unmarshal(part, &members) // fails for an event that is no object
	reason, id := "invalid: "+strings.TrimPrefix(err.Error(), wire.ErrMalformed.Error()+": "), ""
	if json.Unmarshal(members["id"], &id) != nil || id == "" || len(id) > maxID {
		return r.unreadable(message, reason)
	}
	return okMessage(id, false, reason)
}

var messageStart = regexp.MustCompile(`^\s*\[\s*"([A-Z-]+)"\s*,\s*("(?:[^"\\]|\\.)*")?`)

// unreadable answers an invalid message as the request that it begins as.
func (r *request) unreadable(message []byte, reason string) (answer []byte) {
	if begins := messageStart.FindSubmatch(message[:min(len(message), 2*maxEcho)]); begins != nil { // bounded, because the regexp is slow
		r.label = string(begins[1])
		switch r.label {
		case labelEvent, labelAuth:
			if id := findID(message); id != "" {
				return okMessage(id, false, reason)
			}
		case labelReq, labelCount, labelNegOpen, labelNegMsg:
			var name string
			if json.Unmarshal(begins[2], &name) == nil && len(name) <= maxEcho {
				r.name = quoted(name)
				return r.refusal(reason)
			}
		}
	}
	return noticeMessage(reason)
}

func findID(message []byte) string {
	for found := true; found; {
		var value []byte
		_, message, found = bytes.Cut(message, []byte(`"id"`))
		value, _ = bytes.CutPrefix(bytes.TrimSpace(message[:min(len(message), 2*maxID)]), []byte(":"))
		if value = bytes.TrimSpace(value); len(value) > maxID+1 && value[0] == '"' && value[maxID+1] == '"' {
			if id, err := graspsync.ParseEventID(string(value[1 : maxID+1])); err == nil {
				return id.String()
			}
		}
	}
	return ""
}

func okMessage(id string, accepted bool, reason string) []byte {
	return encodeMessage(labelOK, quoted(id), strconv.AppendBool(nil, accepted), quoted(reason))
}

func negFault(part json.RawMessage) string {
	var text string
	if json.Unmarshal(part, &text) != nil {
		return "invalid: a negentropy message is in hex"
	}
	if wire.CheckNegMessage(text) != nil {
		return "error: invalid negentropy message"
	}
	return ""
}

func (r request) refusal(reason string) []byte {
	switch r.label {
	case labelNegOpen, labelNegMsg, labelNegClose:
		return encodeMessage(labelNegErr, r.name, quoted(reason))
	}
	return encodeMessage(labelClosed, r.name, quoted(reason))
}

// as returns the message for the relay, with the Gate's number as name.
func (r request) as(number uint64) []byte {
	parts := r.parts
	switch r.label {
	case labelEvent, labelAuth:
	default:
		parts = append([]json.RawMessage{nameOf(number)}, parts...)
	}
	return encodeMessage(r.label, parts...)
}

func nameOf(number uint64) json.RawMessage {
	return strconv.AppendQuote(nil, strconv.FormatUint(number, 10))
}

func noticeMessage(text string) []byte { return encodeMessage(labelNotice, quoted(text)) }

func quoted(s string) json.RawMessage { return toJSON(s) }

func toJSON(v any) json.RawMessage {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(v) // cannot fail for these types
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}

func encodeMessage(label string, parts ...json.RawMessage) []byte {
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

type answer struct {
	label  string
	number uint64 // zero: no subscription
	rest   []byte // the bytes after the name
}

// readAnswer reads the label and name of a message. Unknown messages pass unchanged.
func readAnswer(message []byte) (a answer) {
	rest, ok := bytes.CutPrefix(message, []byte(`["`))
	label, rest, found := bytes.Cut(rest, []byte(`"`))
	if !ok || !found {
		return a
	}
	if a.label = string(label); a.label == "NEG-ERROR" { // spelling of go-nostr
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

func (a answer) as(name []byte) []byte {
	b := make([]byte, 0, len(a.label)+len(name)+len(a.rest)+4)
	b = append(append(append(b, `["`...), a.label...), `",`...)
	return append(append(b, name...), a.rest...)
}
