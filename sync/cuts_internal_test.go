package sync

import (
	"fmt"
	"testing"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/assert"

	"github.com/graspsync/graspsync/sync/wire"
)

// The size that a request is taken to have is that which it has, but for its envelope and
// what must be escaped.
func TestSizeOfARequest(t *testing.T) {
	ids := make([]string, 500)
	for i := range ids {
		ids[i] = fmt.Sprintf("%064d", i)
	}
	for _, n := range []int{1, 10, 500} {
		f := nostr.Filter{IDs: ids[:n], Kinds: []int{1}, Tags: nostr.TagMap{"e": ids[:n]}}
		for _, r := range []wire.Request{
			{Type: wire.TypeReq, Sub: "sub", Filters: []nostr.Filter{f}},
			{Type: wire.TypeReq, Sub: "sub", Filters: []nostr.Filter{f, f, f}},
			{Type: wire.TypeNegOpen, Sub: "sub", Filters: []nostr.Filter{f}, Payload: make([]byte, 100*n)},
		} {
			sent, err := wire.Append(nil, r)
			assert.NoError(t, err)
			assert.InDelta(t, len(sent), sizeOf(r), 150+float64(len(sent))/20, "%v of %d", r.Type, n)
		}
	}
}
