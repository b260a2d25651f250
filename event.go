package graspsync

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/nbd-wtf/go-nostr"
)

// ErrEvent is wrapped by the errors of [ParseEvent], and by what is said of an Event that it did
// not make.
var ErrEvent = errors.New("malformed event")

// Event is a signed event whose id and author were read once, where it came in: by
// [ParseEvent]. That these are 64 hex digits each is all that is known of it: whether the id
// is that of what it says, and the signature one of its author's, is for others to verify, and
// they say so. Nobody changes it any more, nor what it points to, so it may be shared.
//
// ID and PubKey stand before the texts of the same names, which are Event.Event.ID and
// Event.Event.PubKey. The zero Event is none, and neither is one whose id nobody read.
type Event struct {
	*nostr.Event
	ID     EventID
	PubKey PubKey
}

// ParseEvent reads id and author of an event, which must not be changed any more. The error
// wraps [ErrEvent], and [ErrID] if one of them is no hex.
func ParseEvent(ev *nostr.Event) (Event, error) {
	if ev == nil {
		return Event{}, fmt.Errorf("%w: nil", ErrEvent)
	}
	id, err := ParseEventID(ev.ID)
	switch {
	case err != nil:
		return Event{}, fmt.Errorf("%w: id: %w", ErrEvent, err)
	case id == (EventID{}): // no event has it: it is the hash of none that anybody knows
		return Event{}, fmt.Errorf("%w: id: zero", ErrEvent)
	}
	author, err := ParsePubKey(ev.PubKey)
	if err != nil {
		return Event{}, fmt.Errorf("%w: author: %w", ErrEvent, err)
	}
	return Event{Event: ev, ID: id, PubKey: author}, nil
}

// IsZero reports whether e is no event: none at all, or one that was put in here without being
// parsed. It would be known by no id, and so pass for any other such.
func (e Event) IsZero() bool { return e.Event == nil || e.ID == (EventID{}) }

// Stamp returns what decides between e and other versions of it.
func (e Event) Stamp() Stamp { return Stamp{CreatedAt: e.CreatedAt, ID: e.ID} }

// Address returns the address that e is a version of; false for kinds that have none. The
// identifier is the value of the first d tag that has one, else empty: it is not checked, since
// a store compares what is written.
func (e Event) Address() (Address, bool) {
	switch {
	case nostr.IsAddressableKind(e.Kind):
		return Address{Kind: e.Kind, Author: e.PubKey, Identifier: e.Tags.GetD()}, true
	case nostr.IsReplaceableKind(e.Kind):
		return Address{Kind: e.Kind, Author: e.PubKey}, true
	}
	return Address{}, false
}

// String returns the event as JSON, nothing for the zero Event.
func (e Event) String() string {
	if e.Event == nil {
		return ""
	}
	return e.Event.String()
}

// MarshalJSON gives the event as NIP-01 has it, null for the zero Event.
func (e Event) MarshalJSON() ([]byte, error) {
	if e.Event == nil {
		return []byte("null"), nil
	}
	return e.Event.MarshalJSON()
}

// UnmarshalJSON reads what MarshalJSON gives, and parses it like [ParseEvent].
func (e *Event) UnmarshalJSON(b []byte) error {
	var ev *nostr.Event
	err := json.Unmarshal(b, &ev)
	if err != nil || ev == nil {
		*e = Event{}
		return err
	}
	*e, err = ParseEvent(ev)
	return err
}
