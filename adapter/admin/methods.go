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

// request is what a body says (NIP-86).
type request struct {
	Method string   `json:"method"`
	Params []string `json:"params"`
}

// maxParams bounds the params of a request.
const maxParams = 16

// parseRequest reads a body.
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

// method is one of NIP-86 that some command is equivalent to.
type method struct {
	command string   // with
	before  []string // these arguments before its params
	params  int      // at most
	tells   bool     // what the command answers, and not just that it was done
	// lists says what of the rules is asked for; nil: it is a command.
	lists func(rules.Rule) (any, bool)
}

// What NIP-86 has lists of.
type (
	pubkeyReason struct {
		PubKey string `json:"pubkey"`
		Reason string `json:"reason,omitempty"`
	}
	idReason struct {
		ID     string `json:"id"`
		Reason string `json:"reason,omitempty"`
	}
)

func pubkeys(of rules.Action) func(rules.Rule) (any, bool) {
	return func(r rules.Rule) (any, bool) {
		return pubkeyReason{r.Subject.Name, r.Reason}, r.Action == of && r.Subject.Kind == rules.Author
	}
}

func events(of rules.Action) func(rules.Rule) (any, bool) {
	return func(r rules.Rule) (any, bool) {
		return idReason{r.Subject.Name, r.Reason}, r.Action == of && r.Subject.Kind == rules.Event
	}
}

// methods are those of NIP-86. That an event is banned removes it as well.
var methods = map[string]method{
	"banpubkey":              {command: "block", before: []string{"author"}, params: 2},
	"allowpubkey":            {command: "allow", before: []string{"author"}, params: 2},
	"banevent":               {command: "remove", before: []string{"event"}, params: 2, tells: true},
	"allowevent":             {command: "allow", before: []string{"event"}, params: 2},
	"listbannedpubkeys":      {command: "rules", lists: pubkeys(rules.Block)},
	"listallowedpubkeys":     {command: "rules", lists: pubkeys(rules.Allow)},
	"listbannedevents":       {command: "rules", lists: events(rules.Block)},
	"listallowedevents":      {command: "rules", lists: events(rules.Allow)},
	"changerelayname":        {command: "describe", before: []string{"name"}, params: 1},
	"changerelaydescription": {command: "describe", before: []string{"description"}, params: 1},
	"changerelayicon":        {command: "describe", before: []string{"icon"}, params: 1},
}

// call carries out what an owner's request says.
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
	// Clients send a reason that is empty, and params that nobody knows.
	result, err := h.operator.Do(ctx, by, m.command, append(slices.Clone(m.before), r.Params[:min(len(r.Params), m.params)]...)...)
	if !m.tells {
		result = nil // which is true, as NIP-86 has it
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
