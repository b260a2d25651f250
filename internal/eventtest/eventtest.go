// Package eventtest converts signed events of tests to parsed events.
package eventtest

import (
	"cmp"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
)

// Of returns a parsed event, or the zero Event for nil. An empty id is computed, and an empty
// author becomes the zero key. It panics on other invalid events.
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
