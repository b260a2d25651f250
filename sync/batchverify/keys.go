package batchverify

import (
	"sync"

	"github.com/consensys/gnark-crypto/ecc/secp256k1"
)

// keyCache remembers public keys in decompressed form. It holds two generations of
// at most half its size: a key that is asked for moves to the young one, and when
// that is full, the old one is dropped. Strangers' keys can push others out, which
// costs a square root each, but never make it grow.
type keyCache struct {
	max int // set by New, read-only

	mu         sync.Mutex
	young, old map[[32]byte]secp256k1.G1Affine // guarded by mu
}

// lift returns the point of the x-only public key author, and whether there is one. Only
// what is on the curve is remembered.
func (c *keyCache) lift(author *[32]byte) (secp256k1.G1Affine, bool) {
	if key, ok := c.find(author); ok {
		return key, true
	}
	key, ok := lift(author) // outside the lock: it takes microseconds
	if ok {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.put(key, author)
	}
	return key, ok
}

// find looks the key up.
func (c *keyCache) find(author *[32]byte) (secp256k1.G1Affine, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if key, ok := c.young[*author]; ok {
		return key, true
	}
	key, ok := c.old[*author]
	if ok {
		c.put(key, author)
	}
	return key, ok
}

// put remembers a key. It needs mu.
func (c *keyCache) put(key secp256k1.G1Affine, author *[32]byte) {
	if c.max < 2 {
		return
	}
	if len(c.young) >= c.max/2 {
		c.old, c.young = c.young, nil
	}
	if c.young == nil {
		c.young = make(map[[32]byte]secp256k1.G1Affine)
	}
	c.young[*author] = key
}

// len counts what is held, twice what is in both generations.
func (c *keyCache) len() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.young) + len(c.old)
}
