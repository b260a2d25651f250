package batchverify

import (
	"sync"

	"github.com/consensys/gnark-crypto/ecc/secp256k1"
)

// keyCache stores decompressed public keys. It has two generations of at most half its size. A used
// key moves to the young generation. When the young one is full, the old one is dropped. Keys of
// strangers can evict others, which costs one square root per key, and never grow the cache.
type keyCache struct {
	max int // set by New, read-only

	mu         sync.Mutex
	young, old map[[32]byte]secp256k1.G1Affine // guarded by mu
}

// lift returns the point of a public key, or false if it is not on the curve. Only valid keys are
// stored.
func (c *keyCache) lift(author *[32]byte) (secp256k1.G1Affine, bool) {
	if key, ok := c.find(author); ok {
		return key, true
	}
	key, ok := lift(author) // outside the lock because it takes microseconds
	if ok {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.put(key, author)
	}
	return key, ok
}

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

// put stores a key. The caller holds mu.
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

// len returns the number of entries. A key in both generations counts twice.
func (c *keyCache) len() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.young) + len(c.old)
}
