package sync

import (
	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync/sync/batchverify"
)

// ErrSignature is what a [Verifier] says of an event whose signature is not its
// author's.
var ErrSignature = batchverify.ErrSignature

// Verifier checks signatures (BIP-340), a batch at a time. Verify returns one
// verdict for each event, in order: nil, or an error that wraps [ErrSignature].
// The ids of the events were found right before. It is called concurrently, with
// 1 to a few hundred events, and must not keep or change them.
type Verifier interface {
	Verify(events []*nostr.Event) []error
}

var _ Verifier = (*batchverify.Verifier)(nil)
