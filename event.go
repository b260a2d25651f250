package graspsync

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/nbd-wtf/go-nostr"
)

// ErrEvent is wrapped by errors about an [Event] that is not valid.
var ErrEvent = errors.New("malformed event")

// Event is a signed event whose id and author [ParseEvent] has parsed. They hide the texts of
// nostr.Event. Id and signature are not verified. It is immutable.
type Event struct {
	*nostr.Event
	ID     EventID
	PubKey PubKey
}

// ParseEvent reads the id and the author of an event. The error wraps [ErrEvent], and also [ErrID]
// if one of them is not 64 hex digits.
func ParseEvent(ev *nostr.Event) (Event, error) {
	if ev == nil {
		return Event{}, fmt.Errorf("%w: nil", ErrEvent)
	}
	id, err := ParseEventID(ev.ID)
	switch {
	case err != nil:
		return Event{}, fmt.Errorf("%w: id: %w", ErrEvent, err)
	case id == (EventID{}): // the zero id marks the zero Event
		return Event{}, fmt.Errorf("%w: id: zero", ErrEvent)
	}
	author, err := ParsePubKey(ev.PubKey)
	if err != nil {
		return Event{}, fmt.Errorf("%w: author: %w", ErrEvent, err)
	}
	return Event{Event: ev, ID: id, PubKey: author}, nil
}

// IsZero reports whether e is not a parsed event.
func (e Event) IsZero() bool { return e.Event == nil || e.ID == (EventID{}) }

// Key returns the creation time and id of e, which order its versions.
func (e Event) Key() EventKey { return EventKey{CreatedAt: e.CreatedAt, ID: e.ID} }

// Address returns the address of e, or false if the kind is neither replaceable nor addressable.
// The identifier is not checked, because a store compares identifiers as they are written.
func (e Event) Address() (Address, bool) {
	switch {
	case nostr.IsAddressableKind(e.Kind):
		return Address{Kind: e.Kind, Author: e.PubKey, Identifier: e.Tags.GetD()}, true
	case nostr.IsReplaceableKind(e.Kind):
		return Address{Kind: e.Kind, Author: e.PubKey}, true
	}
	return Address{}, false
}

func (e Event) String() string {
	if e.Event == nil {
		return ""
	}
	return e.Event.String()
}

// MarshalJSON returns the event in the form of NIP-01, and null for the zero Event.
func (e Event) MarshalJSON() ([]byte, error) {
	if e.Event == nil {
		return []byte("null"), nil
	}
	return e.Event.MarshalJSON()
}

// UnmarshalJSON reads the output of MarshalJSON with [ParseEvent].
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
