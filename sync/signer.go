package sync

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
)

// A Signer signs authentication events for relays that require NIP-42. Use a separate key, because
// relays receive its public key and can recognize connections by it. SignAuth may be called
// concurrently.
type Signer interface {
	// SignAuth sets the author, id and signature of an event of kind 22242 and changes nothing
	// else. It must return when ctx ends. After an error the connection continues without
	// authentication.
	SignAuth(ctx context.Context, event *nostr.Event) error
}

// signTimeout is the time limit for one signature. A remote signer may be slow.
const signTimeout = 15 * time.Second

var errSigned = errors.New("the Signer changed the event")

// signAuth creates the answer to a challenge of the relay that was dialed as u. The answer names
// only this URL, so that the relay cannot use it to authenticate at another relay.
func signAuth(ctx context.Context, r *telemetry, signer Signer, u graspsync.RelayURL, challenge string) (ev *nostr.Event, err error) {
	defer r.recovered(&err, "signer")
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
