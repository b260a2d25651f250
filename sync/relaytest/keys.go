package relaytest

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	"github.com/btcsuite/btcd/btcec/v2"
	"github.com/btcsuite/btcd/btcec/v2/schnorr"
	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/nip34"
	relaysync "github.com/graspsync/graspsync/sync"
)

// Key is an author of events. Its methods always return the same event for the same arguments.
type Key struct {
	secret *btcec.PrivateKey
	public graspsync.PubKey
	hex    string
	cheap  bool
}

// NewKey returns the key of a seed. Its signatures are valid (BIP-340).
func NewKey(seed string) *Key {
	sum := sha256.Sum256([]byte("relaytest key " + seed))
	secret, public := btcec.PrivKeyFromBytes(sum[:])
	k := &Key{secret: secret}
	copy(k.public[:], schnorr.SerializePubKey(public))
	k.hex = k.public.String()
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
func (k *Key) Secret() string { return hex.EncodeToString(k.secret.Serialize()) }

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
	ev.PubKey = k.hex
	sum := sha256.Sum256(ev.Serialize())
	ev.ID = hex.EncodeToString(sum[:])
	if k.cheap {
		ev.Sig = cheapSignature(sum)
		return
	}
	sig, err := schnorr.Sign(k.secret, sum[:], schnorr.FastSign())
	if err != nil { // cannot happen with a valid secret
		ev.Sig = ""
		return
	}
	ev.Sig = hex.EncodeToString(sig.Serialize())
}

func cheapSignature(id [32]byte) string {
	a := sha256.Sum256(append([]byte("cheap signature "), id[:]...))
	b := sha256.Sum256(a[:])
	return hex.EncodeToString(a[:]) + hex.EncodeToString(b[:])
}

// cheap reports whether ev has the signature of a cheap key. As in BIP-340, the id field is not
// part of it.
func cheap(ev *nostr.Event) bool {
	return len(ev.Sig) == 128 && ev.Sig == cheapSignature(sha256.Sum256(ev.Serialize()))
}

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
