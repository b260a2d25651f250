package relaytest

import (
	"crypto/sha256"
	"crypto/sha512"
	"encoding/hex"
	"fmt"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/nip34"
	relaysync "github.com/graspsync/graspsync/sync"
)

// Key is an author of events. Its methods always return the same event for the same arguments.
type Key struct {
	secret string // in hex
	public graspsync.PubKey
	hex    string
	cheap  bool
}

// NewKey returns the key of a seed. Its signatures are valid (BIP-340).
func NewKey(seed string) *Key {
	sum := sha256.Sum256([]byte("relaytest key " + seed))
	k := &Key{secret: hex.EncodeToString(sum[:])}
	k.hex, _ = nostr.GetPublicKey(k.secret) // every seed gives a valid secret
	k.public, _ = graspsync.ParsePubKey(k.hex)
	return k
}

// NewCheapKey returns a key with signatures that only [CheapVerifier] and relays of this package
// accept, but which are a hundred times faster.
func NewCheapKey(seed string) *Key {
	k := NewKey(seed)
	k.cheap = true
	return k
}

// Keys returns n keys with seeds made of seed and a number.
func Keys(seed string, n int) []*Key {
	keys := make([]*Key, n)
	for i := range keys {
		keys[i] = NewKey(fmt.Sprintf("%s %d", seed, i))
	}
	return keys
}

// Hex returns the public key in hex.
func (k *Key) Hex() string { return k.hex }

// PubKey returns the public key.
func (k *Key) PubKey() graspsync.PubKey { return k.public }

// Secret returns the secret key in hex.
func (k *Key) Secret() string { return k.secret }

// Npub returns the public key as npub (NIP-19).
func (k *Key) Npub() string { return nip34.NPub(k.public) }

// Ref returns the reference of a repository of the author.
func (k *Key) Ref(identifier string) graspsync.RepoRef {
	return graspsync.RepoRef{Owner: k.public, Identifier: identifier}
}

// Sign sets author, id and signature of an event.
func (k *Key) Sign(ev *nostr.Event) {
	if ev.Tags == nil {
		ev.Tags = nostr.Tags{}
	}
	if !k.cheap {
		_ = ev.Sign(k.secret) // cannot fail with a valid secret
		return
	}
	ev.PubKey = k.hex
	ev.ID = ev.GetID()
	ev.Sig = cheapSignature(ev)
}

func cheapSignature(ev *nostr.Event) string {
	sum := sha512.Sum512(append([]byte("cheap signature "), ev.Serialize()...))
	return hex.EncodeToString(sum[:])
}

// cheap reports whether ev has the signature of a cheap key. As in BIP-340, the id field is not
// part of it.
func cheap(ev *nostr.Event) bool { return ev.Sig == cheapSignature(ev) }

var _ relaysync.Verifier = CheapVerifier{}

// CheapVerifier is a [relaysync.Verifier] that accepts only signatures of cheap keys. It does not
// check the id.
type CheapVerifier struct{}

// Verify implements [relaysync.Verifier].
func (CheapVerifier) Verify(events []*nostr.Event) []error {
	verdicts := make([]error, len(events))
	for i, ev := range events {
		if !cheap(ev) {
			verdicts[i] = fmt.Errorf("event %.8s: %w", ev.ID, relaysync.ErrSignature)
		}
	}
	return verdicts
}
