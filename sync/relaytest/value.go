package relaytest

import (
	"maps"
	"slices"
	"sync/atomic"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync/sync/wire"
)

// guard detects concurrent calls.
type guard struct{ n atomic.Int32 }

func (g *guard) enter() bool { return g.n.Add(1) == 1 }
func (g *guard) leave()      { g.n.Add(-1) }

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
		req.Filters[i] = copyFilter(f)
	}
	if req.Event != nil {
		req.Event = clone(req.Event)
	}
	req.Payload = slices.Clone(req.Payload)
	return req
}

// copyFilter returns a deep copy. It distinguishes nil from empty lists.
func copyFilter(f nostr.Filter) nostr.Filter {
	f.IDs = slices.Clone(f.IDs)
	f.Kinds = slices.Clone(f.Kinds)
	f.Authors = slices.Clone(f.Authors)
	if f.Tags != nil {
		tags := make(nostr.TagMap, len(f.Tags))
		for name, values := range f.Tags {
			tags[name] = slices.Clone(values)
		}
		f.Tags = tags
	}
	f.Since = copyTime(f.Since)
	f.Until = copyTime(f.Until)
	return f
}

func copyTime(t *nostr.Timestamp) *nostr.Timestamp {
	if t == nil {
		return nil
	}
	c := *t
	return &c
}

func (f *frame) size() int {
	if f.raw != nil {
		return len(f.raw)
	}
	m := &f.msg
	if m.Type == wire.TypeEvent {
		n := f.eventSize
		if n == 0 {
			n = len(m.Event.String())
		}
		return len(`["EVENT",,]`) + len(quote(m.Sub)) + n
	}
	return len(encode(*f))
}

func requestSize(req wire.Request) int {
	n := len(`[""]`)
	switch req.Type {
	case wire.TypeReq, wire.TypeNegOpen:
		n += len("REQ") + quoted(req.Sub)
		if req.Type == wire.TypeNegOpen {
			n += len("NEG-OPEN") - len("REQ") + 3 + 2*len(req.Payload)
		}
		for _, f := range req.Filters {
			n += 1 + len(f.String())
		}
	case wire.TypeNegSend:
		n += len("NEG-MSG") + quoted(req.Sub) + 3 + 2*len(req.Payload)
	case wire.TypeClose:
		n += len("CLOSE") + quoted(req.Sub)
	case wire.TypeNegClose:
		n += len("NEG-CLOSE") + quoted(req.Sub)
	case wire.TypePublish:
		n += len("EVENT,") + len(req.Event.String())
	case wire.TypeAnswer:
		n += len("AUTH,") + len(req.Event.String())
	}
	return n
}

func quoted(s string) int { return 1 + len(quote(s)) }
