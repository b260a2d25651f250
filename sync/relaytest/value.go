package relaytest

import (
	"maps"
	"slices"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync/sync/wire"
)

func sortedKeys[V any](m map[string]V) []string {
	return slices.Sorted(maps.Keys(m))
}

func clone(ev *nostr.Event) *nostr.Event {
	c := *ev
	n := 0
	for _, tag := range ev.Tags {
		n += len(tag)
	}
	values := make([]string, 0, n)
	c.Tags = make(nostr.Tags, len(ev.Tags))
	for i, tag := range ev.Tags {
		first := len(values)
		values = append(values, tag...)
		c.Tags[i] = values[first:len(values):len(values)]
	}
	return &c
}

// copyRequest returns a deep copy, because a client may change a request after Send.
func copyRequest(req wire.Request) wire.Request {
	req.Filters = slices.Clone(req.Filters)
	for i, f := range req.Filters {
		req.Filters[i] = f.Clone()
	}
	if req.Event != nil {
		req.Event = clone(req.Event)
	}
	req.Payload = slices.Clone(req.Payload)
	return req
}

func (f *frame) size() int {
	if f.raw != nil {
		return len(f.raw)
	}
	m := &f.msg
	if m.Type == wire.TypeEvent {
		return len(`["EVENT",,]`) + len(toJSON(m.Sub)) + len(m.Event.String())
	}
	return len(encode(*f))
}

// requestSize returns the bytes of a request as a client sends it.
func requestSize(req wire.Request) int {
	text, _ := wire.Append(nil, req) // no request of a client is invalid
	return len(text)
}
