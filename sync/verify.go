package sync

import (
	"errors"
	"fmt"

	"github.com/nbd-wtf/go-nostr"
)

// ErrSignature is what a [Verifier] says of an event whose signature is not its
// author's.
var ErrSignature = errors.New("invalid signature")

// Verifier checks signatures (BIP-340), a batch at a time. Verify returns one
// verdict for each event, in order: nil, or an error that wraps [ErrSignature].
// The ids of the events were found right before. It is called concurrently, with
// 1 to a few hundred events, and must not keep or change them.
type Verifier interface {
	Verify(events []*nostr.Event) []error
}

// serialVerifier checks signatures one by one.
type serialVerifier struct{}

func (serialVerifier) Verify(events []*nostr.Event) []error {
	verdicts := make([]error, len(events))
	for i, ev := range events {
		if ok, err := ev.CheckSignature(); err != nil {
			verdicts[i] = fmt.Errorf("%w: %w", ErrSignature, err)
		} else if !ok {
			verdicts[i] = ErrSignature
		}
	}
	return verdicts
}
