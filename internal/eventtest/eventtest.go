// Package eventtest makes the parsed events that tests pass around out of the signed ones that
// they have. It panics where there is none to be made: a test of that parses by itself.
package eventtest

import (
	"cmp"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
)

// Of returns an event with its id and author parsed, none for nil. Where one of them is empty,
// since the test does not care, the id is what NIP-01 says and the author zero.
func Of(ev *nostr.Event) graspsync.Event {
	if ev == nil {
		return graspsync.Event{}
	}
	known := *ev
	known.ID = cmp.Or(ev.ID, ev.GetID())
	known.PubKey = cmp.Or(ev.PubKey, graspsync.PubKey{}.String())
	parsed, err := graspsync.ParseEvent(&known)
	if err != nil {
		panic(err)
	}
	parsed.Event = ev
	return parsed
}

// All returns some events as Of does.
func All(events ...*nostr.Event) []graspsync.Event {
	out := make([]graspsync.Event, len(events))
	for i, ev := range events {
		out[i] = Of(ev)
	}
	return out
}

// Raw returns what some events were parsed from.
func Raw(events ...graspsync.Event) []*nostr.Event {
	out := make([]*nostr.Event, len(events))
	for i, ev := range events {
		out[i] = ev.Event
	}
	return out
}
