package admin

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/graspsync/graspsync"
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

// aliases are the commands of methods of NIP-86. banevent also removes the event.
var aliases = map[string][]string{
	"banpubkey":          {"block", "author"},
	"allowpubkey":        {"allow", "author"},
	"banevent":           {"remove", "event"},
	"allowevent":         {"allow", "event"},
	"listbannedpubkeys":  {"rules"},
	"listallowedpubkeys": {"rules"},
	"listbannedevents":   {"rules"},
	"listallowedevents":  {"rules"},
}

func (h *Handler) call(ctx context.Context, owner graspsync.PubKey, body []byte) (any, error) {
	r, err := parseRequest(body)
	if err != nil {
		return nil, err
	}
	commands := h.operator.Commands()
	all := append([]string{"supportedmethods"}, commands...)
	for name, alias := range aliases {
		if slices.Contains(commands, alias[0]) {
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
	if !slices.Contains(all, r.Method) {
		return nil, fmt.Errorf("%w: %q", ErrUsage, graspsync.Clip(r.Method, 50))
	}
	alias := aliases[r.Method]
	if alias[0] == "rules" { // clients may send params
		result, err := h.operator.Do(ctx, by, alias[0])
		all, _ := result.([]rules.Rule)
		return filterRules(all, r.Method), err
	}
	_, err = h.operator.Do(ctx, by, alias[0], slices.Concat(alias[1:], r.Params)...)
	return nil, err // nil becomes true, as in NIP-86
}

// filterRules returns the rules of a method such as listbannedpubkeys.
func filterRules(all []rules.Rule, method string) []map[string]string {
	kind, key, action := rules.Event, "id", rules.Allow
	if strings.HasSuffix(method, "pubkeys") {
		kind, key = rules.Author, "pubkey"
	}
	if strings.Contains(method, "banned") {
		action = rules.Block
	}
	out := []map[string]string{}
	for _, r := range all {
		if r.Action != action || r.Subject.Kind != kind {
			continue
		}
		element := map[string]string{key: r.Subject.Name}
		if r.Reason != "" {
			element["reason"] = r.Reason
		}
		out = append(out, element)
	}
	return out
}
