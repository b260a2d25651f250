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
	c.Tags = make(nostr.Tags, len(ev.Tags))
	for i, tag := range ev.Tags {
		c.Tags[i] = slices.Clone(tag)
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

// requestSize returns the bytes of a request as a client sends it.
func requestSize(req wire.Request) int {
	text, _ := wire.Append(nil, req) // no request of a client is invalid
	return len(text)
}
