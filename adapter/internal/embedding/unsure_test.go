package embedding

import (
	"testing"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/assert"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/eventtest"
)

func TestUnsureIsBounded(t *testing.T) {
	var u unsure
	id := func(n int) graspsync.EventID { return graspsync.EventID{byte(n >> 8), byte(n), 1} }
	tried := func(n int) graspsync.Incoming {
		return graspsync.Incoming{Event: eventtest.Of(&nostr.Event{ID: id(n).String()})}
	}
	for i := range maxUnsure + 10 {
		u.add(tried(i), tried(i))
	}
	assert.Equal(t, maxUnsure, u.ids.Len())
	assert.False(t, u.take(id(9)), "the oldest go")
	assert.True(t, u.take(id(10)))
	assert.False(t, u.take(id(10)))
	u.add(tried(10)) // replaces the oldest of the same source
	assert.True(t, u.take(id(10)))
	assert.True(t, u.take(id(maxUnsure+9)))
}
