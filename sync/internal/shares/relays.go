package shares

import "github.com/graspsync/graspsync"

// MaxRelays is how many relays are told apart.
const MaxRelays = 1<<16 - 1

// Relays gives relays small numbers, by which they own things. 0 is no relay, and any that is
// one too many. The zero Relays knows none. It is not safe for concurrent use.
type Relays struct {
	urls    []graspsync.RelayURL
	numbers map[graspsync.RelayURL]Owner
	free    []Owner // numbers of relays that were let go of
}

// Number returns the number of a relay, a new one if it has none.
func (t *Relays) Number(u graspsync.RelayURL) Owner {
	if u.IsZero() {
		return 0
	}
	if n, ok := t.numbers[u]; ok {
		return n
	}
	if t.numbers == nil {
		t.numbers = make(map[graspsync.RelayURL]Owner)
	}
	if last := len(t.free) - 1; last >= 0 {
		n := t.free[last]
		t.free = t.free[:last]
		t.urls[n-1] = u
		t.numbers[u] = n
		return n
	}
	if len(t.urls) >= MaxRelays {
		return 0
	}
	t.urls = append(t.urls, u)
	n := Owner(len(t.urls)) //nolint:gosec // bounded
	t.numbers[u] = n
	return n
}

// Release lets go of a number of which nothing is remembered any more.
func (t *Relays) Release(n Owner) {
	if u := t.URL(n); !u.IsZero() {
		delete(t.numbers, u)
		t.urls[n-1] = graspsync.RelayURL{}
		t.free = append(t.free, n)
	}
}

// URL returns the relay that has a number, the zero one if none does.
func (t *Relays) URL(n Owner) graspsync.RelayURL {
	if n == 0 || int(n) > len(t.urls) {
		return graspsync.RelayURL{}
	}
	return t.urls[n-1]
}

// URLs returns the relays in the order of their numbers from 1, zero ones where a number is
// free. It must not be changed.
func (t *Relays) URLs() []graspsync.RelayURL { return t.urls }
