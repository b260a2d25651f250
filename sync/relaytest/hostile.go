package relaytest

import (
	"fmt"
	"slices"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/eventtest"
	"github.com/graspsync/graspsync/sync/wire"
)

func (r *Relay) serve(sub string, ev graspsync.Event) []frame {
	b := &r.behavior
	genuine := frame{msg: wire.Message{Type: wire.TypeEvent, Sub: sub, Event: ev}}
	if b.Forge == ForgeNone {
		return []frame{genuine}
	}
	forged := frame{msg: eventMessage(sub, forge(ev.Event, b.Forge))}
	if b.ForgeFirst {
		return []frame{forged, genuine}
	}
	return []frame{forged}
}

func eventMessage(sub string, ev *nostr.Event) wire.Message {
	return wire.Message{Type: wire.TypeEvent, Sub: sub, Event: eventtest.Of(ev)}
}

func forge(genuine *nostr.Event, how Forgery) *nostr.Event {
	ev := clone(genuine)
	switch how {
	case ForgeSignature:
		// A well-formed signature that is invalid.
		sig := []byte(ev.Sig)
		slices.Reverse(sig)
		ev.Sig = string(sig)
	case ForgeContent:
		ev.Content += " (forged)"
	case ForgeID:
		key := NewKey("forger")
		key.cheap = cheap(genuine)
		ev.Content += " (forged)"
		key.Sign(ev)
		ev.ID = genuine.ID
	}
	return ev
}

func (r *Relay) madeUp(s *subscription, n int) frame {
	f := s.filters[0]
	var ev *nostr.Event
	if r.behavior.Endless != nil {
		ev = r.behavior.Endless(n, f)
	} else {
		at, kind := nostr.Timestamp(1_700_000_000-n), 1
		if f.Until != nil {
			at = *f.Until - nostr.Timestamp(n)
		}
		if f.Since != nil {
			at = max(at, *f.Since)
		}
		if len(f.Kinds) > 0 {
			kind = f.Kinds[0]
		}
		tags := nostr.Tags{{"d", fmt.Sprintf("endless-%d", n)}}
		for _, name := range sortedKeys(f.Tags) {
			if values := f.Tags[name]; len(values) > 0 {
				tags = append(tags, nostr.Tag{name, values[0]})
			}
		}
		if r.made == nil {
			r.made = NewKey("made up by " + r.url.String())
		}
		ev = r.made.Event(at, kind, fmt.Sprintf("made up, %d", n), tags...)
	}
	return frame{msg: eventMessage(s.id, ev)}
}
