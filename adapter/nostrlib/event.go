package nostrlib

import (
	"encoding/hex"
	"fmt"
	"math"

	"fiatjaf.com/nostr"
	gonostr "github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
)

// FromEvent converts an event of nostrlib. Both share tag values and must not be changed later. Like
// [graspsync.ParseEvent], it checks neither id nor signature. The error wraps [graspsync.ErrEvent] if
// the event has no id.
func FromEvent(e nostr.Event) (graspsync.Event, error) {
	if e.ID == nostr.ZeroID {
		return graspsync.Event{}, fmt.Errorf("%w: id: zero", graspsync.ErrEvent)
	}
	var digits [idDigits + keyDigits + sigDigits]byte
	hex.Encode(digits[:], e.ID[:])
	hex.Encode(digits[idDigits:], e.PubKey[:])
	hex.Encode(digits[idDigits+keyDigits:], e.Sig[:])
	text := string(digits[:])
	out := &gonostr.Event{
		ID: text[:idDigits], PubKey: text[idDigits : idDigits+keyDigits], Sig: text[idDigits+keyDigits:],
		CreatedAt: gonostr.Timestamp(e.CreatedAt), Kind: int(e.Kind), Content: e.Content, Tags: tagsOf[gonostr.Tag](e.Tags),
	}
	return graspsync.Event{Event: out, ID: graspsync.EventID(e.ID), PubKey: graspsync.PubKey(e.PubKey)}, nil
}

// Numbers of hex digits.
const (
	idDigits  = 2 * len(nostr.ID{})
	keyDigits = 2 * len(nostr.PubKey{})
	sigDigits = 2 * len(nostr.Event{}.Sig)
)

// ToEvent converts an event to nostrlib. Both share tag values. The error wraps [graspsync.ErrEvent] for
// the zero Event, a kind above 65,535, or a signature that is not 128 hex digits.
func ToEvent(e graspsync.Event) (nostr.Event, error) {
	switch {
	case e.IsZero():
		return nostr.Event{}, fmt.Errorf("%w: none", graspsync.ErrEvent)
	case e.Kind < 0 || e.Kind > math.MaxUint16:
		return nostr.Event{}, fmt.Errorf("%w: kind %d", graspsync.ErrEvent, e.Kind)
	case len(e.Sig) != sigDigits:
		return nostr.Event{}, fmt.Errorf("%w: signature of %d digits", graspsync.ErrEvent, len(e.Sig))
	}
	out := nostr.Event{
		ID: nostr.ID(e.ID), PubKey: nostr.PubKey(e.PubKey),
		CreatedAt: nostr.Timestamp(e.CreatedAt), Kind: nostr.Kind(e.Kind), Content: e.Content, Tags: tagsOf[nostr.Tag](e.Tags),
	}
	var digits [sigDigits]byte
	copy(digits[:], e.Sig)
	if _, err := hex.Decode(out.Sig[:], digits[:]); err != nil {
		return nostr.Event{}, fmt.Errorf("%w: signature: %w", graspsync.ErrEvent, err)
	}
	return out, nil
}

func tagsOf[B, A ~[]string](tags []A) []B {
	return converted(tags, func(t A) (B, bool) { return B(t), true })
}
