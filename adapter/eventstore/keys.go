package eventstoreadapter

import (
	"encoding/binary"
	"encoding/hex"
	"strconv"
	"strings"

	"github.com/nbd-wtf/go-nostr"
)

// looksLike reports whether an event has a tag's value whose key goes on where that of one of q ends.
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

// tagKey is what badger and lmdb keep of a tag's value, after a byte that says which of three kinds it is: of an address the
// number of its kind, 8 bytes of its author and all of its identifier; of an id 8 bytes; and others as they are.
func tagKey(value string) (class byte, key string) {
	if len(value) < 64 {
		return 't', value
	}
	if parts := strings.Split(value, ":"); len(parts) == 3 {
		author, _ := hex.DecodeString(parts[1]) // its length tells
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
