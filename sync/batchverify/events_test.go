package batchverify

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"

	"github.com/nbd-wtf/go-nostr"
)

// secretKey returns a valid secret key for n.
func secretKey(n int) string {
	var key [32]byte
	binary.BigEndian.PutUint64(key[24:], uint64(n)+1)
	key[3] = 7
	return hex.EncodeToString(key[:])
}

// signedEvents returns events of a number of authors in turn.
func signedEvents(n, authors int) []*nostr.Event {
	events := make([]*nostr.Event, n)
	for i := range events {
		ev := &nostr.Event{
			Kind:      1621,
			CreatedAt: nostr.Timestamp(1700000000 + i),
			Content:   fmt.Sprintf("issue %d", i),
			Tags:      nostr.Tags{{"subject", "one more"}},
		}
		if err := ev.Sign(secretKey(i % authors)); err != nil {
			panic(err)
		}
		events[i] = ev
	}
	return events
}
