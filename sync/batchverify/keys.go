package batchverify

import "sync"

// keyCache remembers public keys in decompressed form. It holds two generations of
// at most half its size: a key that is asked for moves to the young one, and when
// that is full, the old one is dropped. Strangers' keys can push others out, which
// costs a square root each, but never make it grow.
type keyCache struct {
	max int // set by New, read-only

	mu         sync.Mutex
	young, old map[[32]byte]affine // guarded by mu
}

// lift sets key to the point of the x-only public key author. It reports whether
// there is one. Only what is on the curve is remembered.
func (c *keyCache) lift(key *affine, author *[32]byte) bool {
	if c.find(key, author) {
		return true
	}
	if !key.lift(author) { // outside the lock: it takes microseconds
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.put(key, author)
	return true
}

// find looks the key up.
func (c *keyCache) find(key *affine, author *[32]byte) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if found, ok := c.young[*author]; ok {
		*key = found
		return true
	}
	found, ok := c.old[*author]
	if ok {
		*key = found
		c.put(key, author)
	}
	return ok
}

// put remembers a key. It needs mu.
func (c *keyCache) put(key *affine, author *[32]byte) {
	if c.max < 2 {
		return
	}
	if len(c.young) >= c.max/2 {
		c.old, c.young = c.young, nil
	}
	if c.young == nil {
		c.young = make(map[[32]byte]affine)
	}
	c.young[*author] = *key
}

// len counts what is held, twice what is in both generations.
func (c *keyCache) len() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.young) + len(c.old)
}
