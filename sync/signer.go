package sync

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
)

// Signer signs for us where a relay wants to know who we are (NIP-42). The key
// should be one that is used for nothing else: relays learn it, and so whoever runs
// them can tell our connections from others'. SignAuth may be called concurrently.
type Signer interface {
	// SignAuth sets the author, id and signature of an event of kind 22242, and
	// changes nothing else of it. It returns when ctx ends at the latest. An error
	// means that the relay is not told who we are, and goes on without us.
	SignAuth(ctx context.Context, event *nostr.Event) error
}

// signTimeout bounds the signing of one event; a key may be kept elsewhere.
const signTimeout = 15 * time.Second

var errSigned = errors.New("the Signer did not sign what it was given")

// signAuth makes the answer to the challenge of the relay that was dialed as u. It
// names that URL and no other, so that no relay can pass it on to another one.
func signAuth(ctx context.Context, k *counters, signer Signer, u graspsync.RelayURL, challenge string) (ev *nostr.Event, err error) {
	defer k.recovered(&err, "signer")
	ctx, cancel := context.WithTimeout(ctx, signTimeout)
	defer cancel()
	given := nostr.Event{
		Kind: nostr.KindClientAuthentication, CreatedAt: nostr.Now(),
		Tags: nostr.Tags{{"relay", u.String()}, {"challenge", challenge}},
	}
	signed := given
	signed.Tags = nostr.Tags{{"relay", u.String()}, {"challenge", challenge}}
	if err := signer.SignAuth(ctx, &signed); err != nil {
		return nil, fmt.Errorf("signing: %w", err)
	}
	given.PubKey = signed.PubKey
	if signed.ID != given.GetID() || !signed.CheckID() {
		return nil, fmt.Errorf("%w: its id is wrong", errSigned)
	}
	if ok, err := signed.CheckSignature(); err != nil || !ok {
		return nil, fmt.Errorf("%w: its signature is wrong", errSigned)
	}
	return &signed, nil
}
