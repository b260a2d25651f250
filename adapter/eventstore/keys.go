package eventstoreadapter

import (
	"encoding/binary"
	"encoding/hex"
	"strconv"
	"strings"

	"github.com/nbd-wtf/go-nostr"
)

// looksLike reports whether an index key of an event starts with the key of a value of q.
func looksLike(e *nostr.Event, q nostr.Filter) bool {
	for _, values := range q.Tags {
		for _, v := range values {
			class, key := tagKey(v)
			for _, t := range e.Tags {
				if len(t) < 2 {
					continue
				}
				if c, k := tagKey(t[1]); c == class && len(k) > len(key) && strings.HasPrefix(k, key) {
					return true
				}
			}
		}
	}
	return false
}

// tagKey returns the index key of a tag value in badger and lmdb, and its class. The key has 8 bytes
// of an id, and of the author in an address.
func tagKey(value string) (class byte, key string) {
	if len(value) < 64 {
		return 't', value
	}
	if parts := strings.Split(value, ":"); len(parts) == 3 {
		author, _ := hex.DecodeString(parts[1]) // its length is checked
		kind, err := strconv.ParseUint(parts[0], 10, 16)
		if len(author) == 32 && err == nil {
			return 'a', string(binary.BigEndian.AppendUint16(nil, uint16(kind))) + string(author[:8]) + parts[2]
		}
	}
	if id, _ := hex.DecodeString(value); len(id) == 32 {
		return 'i', string(id[:8])
	}
	return 't', value
}
