package admin

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/nearest"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/rules"
)

type request struct {
	Method string   `json:"method"`
	Params []string `json:"params"`
}

const maxParams = 16

func parseRequest(body []byte) (request, error) {
	var r request
	if err := json.Unmarshal(body, &r); err != nil {
		return request{}, fmt.Errorf("%w: want {\"method\": text, \"params\": [text, ...]}", ErrUsage)
	}
	if r.Method == "" || len(r.Params) > maxParams {
		return request{}, fmt.Errorf("%w: no method, or more than %d params", ErrUsage, maxParams)
	}
	return r, nil
}

type method struct {
	command string   // name of the command
	before  []string // its first arguments
	params  int      // maximum number of params
	tells   bool     // the result is returned instead of true
	// lists selects rules; nil for other methods.
	lists func(rules.Rule) (any, bool)
}

func listed(kind rules.Kind, key string, of rules.Action) func(rules.Rule) (any, bool) {
	return func(r rules.Rule) (any, bool) {
		element := map[string]string{key: r.Subject.Name}
		if r.Reason != "" {
			element["reason"] = r.Reason
		}
		return element, r.Action == of && r.Subject.Kind == kind
	}
}

// methods are the methods of NIP-86. banevent also removes the event.
var methods = map[string]method{
	"banpubkey":              {command: "block", before: []string{"author"}, params: 2},
	"allowpubkey":            {command: "allow", before: []string{"author"}, params: 2},
	"banevent":               {command: "remove", before: []string{"event"}, params: 2, tells: true},
	"allowevent":             {command: "allow", before: []string{"event"}, params: 2},
	"listbannedpubkeys":      {command: "rules", lists: listed(rules.Author, "pubkey", rules.Block)},
	"listallowedpubkeys":     {command: "rules", lists: listed(rules.Author, "pubkey", rules.Allow)},
	"listbannedevents":       {command: "rules", lists: listed(rules.Event, "id", rules.Block)},
	"listallowedevents":      {command: "rules", lists: listed(rules.Event, "id", rules.Allow)},
	"changerelayname":        {command: "describe", before: []string{"name"}, params: 1},
	"changerelaydescription": {command: "describe", before: []string{"description"}, params: 1},
	"changerelayicon":        {command: "describe", before: []string{"icon"}, params: 1},
}

func (h *Handler) call(ctx context.Context, owner graspsync.PubKey, body []byte) (any, error) {
	r, err := parseRequest(body)
	if err != nil {
		return nil, err
	}
	commands := h.operator.Commands()
	all := append([]string{"supportedmethods"}, commands...)
	for name, m := range methods {
		if slices.Contains(commands, m.command) {
			all = append(all, name)
		}
	}
	slices.Sort(all)
	if r.Method == "supportedmethods" {
		return all, nil
	}
	by := nip34.NPub(owner)
	if slices.Contains(commands, r.Method) {
		return h.operator.Do(ctx, by, r.Method, r.Params...)
	}
	m := methods[r.Method]
	if !slices.Contains(all, r.Method) {
		name := graspsync.Clip(r.Method, 50)
		return nil, fmt.Errorf("%w: %q, the nearest is %q", ErrUsage, name, nearest.Of(name, all))
	}
	if m.lists != nil {
		return h.list(ctx, by, m)
	}
	// Clients send an empty reason and unknown params.
	result, err := h.operator.Do(ctx, by, m.command, append(slices.Clone(m.before), r.Params[:min(len(r.Params), m.params)]...)...)
	if !m.tells {
		result = nil // becomes true, as in NIP-86
	}
	return result, err
}

func (h *Handler) list(ctx context.Context, by string, m method) (any, error) {
	result, err := h.operator.Do(ctx, by, m.command)
	if err != nil {
		return nil, err
	}
	all, _ := result.([]rules.Rule)
	out := []any{}
	for _, r := range all {
		if item, is := m.lists(r); is {
			out = append(out, item)
		}
	}
	return out, nil
}
