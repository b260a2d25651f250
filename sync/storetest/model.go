package storetest

import (
	"fmt"
	"slices"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
)

// model is a naive Store. Its content and its results are the correct ones.
type model struct {
	here   string // relay URL of the service, or ""
	seen   []*nostr.Event
	stored []*nostr.Event
	gone   []*nostr.Event // events that a deletion covered when they were stored or arrived
}

// modelOf returns a model that saved events. Their order does not matter.
func modelOf(events []*nostr.Event) (m model) {
	for range 2 { // a deletion may have covered an event before its author vanished
		for _, e := range events {
			m.save(e)
		}
	}
	return m
}

func (m *model) save(e *nostr.Event) graspsync.Result {
	m.seen = append(m.seen, e)
	switch {
	case nostr.IsEphemeralKind(e.Kind):
		return graspsync.Refused
	case slices.ContainsFunc(m.stored, sameID(e)):
		return graspsync.Duplicate
	case m.deletes(e):
		m.gone = append(m.gone, e)
		m.sweep()
		return graspsync.Deleted
	case slices.ContainsFunc(m.stored, func(o *nostr.Event) bool { return replaces(o, e) }):
		return graspsync.Superseded
	}
	m.stored = append(slices.DeleteFunc(m.stored, func(o *nostr.Event) bool { return replaces(e, o) }), e)
	if e.Kind == nostr.KindDeletion || e.Kind == kindVanish {
		m.sweep()
	}
	return graspsync.Stored
}

// sweep removes the stored events that a stored event deletes.
func (m *model) sweep() {
	var kept []*nostr.Event
	for _, e := range m.stored {
		if m.deletes(e) {
			m.gone = append(m.gone, e)
		} else {
			kept = append(kept, e)
		}
	}
	m.stored = kept
}

func (m *model) remove(e *nostr.Event) { m.stored = slices.DeleteFunc(m.stored, sameID(e)) }

// deletes reports whether a stored event covers e, or a later version of the address of e.
func (m *model) deletes(e *nostr.Event) bool {
	return m.covers(e) || slices.ContainsFunc(m.gone, func(v *nostr.Event) bool { return replaces(v, e) && m.covers(v) })
}

func (m *model) covers(e *nostr.Event) bool {
	return slices.ContainsFunc(m.stored, func(d *nostr.Event) bool {
		if d.PubKey != e.PubKey || d.Kind != nostr.KindDeletion && d.Kind != kindVanish || e.Kind == kindVanish {
			return false
		}
		return slices.ContainsFunc(d.Tags, func(t nostr.Tag) bool {
			switch {
			case len(t) < 2:
				return false
			case d.Kind == kindVanish:
				return t[0] == "relay" && (t[1] == allRelays || t[1] == m.here) && e.CreatedAt <= d.CreatedAt
			case e.Kind == nostr.KindDeletion:
				return false
			}
			return t[0] == "e" && t[1] == e.ID || t[0] == "a" && t[1] == modelKey(e) && e.CreatedAt <= d.CreatedAt
		})
	})
}

// replaces reports whether a and b are versions of one address, and a is the later one.
func replaces(a, b *nostr.Event) bool {
	newer := a.CreatedAt > b.CreatedAt || a.CreatedAt == b.CreatedAt && a.ID < b.ID
	return newer && a.PubKey == b.PubKey && a.Kind == b.Kind && modelKey(a) == modelKey(b)
}

// modelKey returns the address of an event, else its id.
func modelKey(e *nostr.Event) string {
	switch {
	case nostr.IsAddressableKind(e.Kind):
		return address(e.Kind, e.PubKey, e.Tags.GetD())
	case nostr.IsReplaceableKind(e.Kind):
		return address(e.Kind, e.PubKey, "")
	}
	return e.ID
}

// history describes the saved events that can affect e, in order.
func (m *model) history(e *nostr.Event) (text string) {
	for _, o := range m.seen {
		if o.PubKey == e.PubKey && slices.Contains([]int{e.Kind, nostr.KindDeletion, kindVanish}, o.Kind) {
			text += fmt.Sprintf("\n\t%s %.300q", describe(o), fmt.Sprint(o.Tags))
		}
	}
	return text
}
