package wire_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/graspsync/graspsync/sync/wire"
)

// A client that switches negentropy off for good because a NOTICE mentions it
// never reconciles with that relay again.
func TestTrapH4_MentionIsNoRefusal(t *testing.T) {
	for _, text := range []string{"negentropy sync finished", "we speak negentropy, use it", "NEG-OPEN welcome"} {
		assert.Equal(t, wire.RefusalOther, wire.Classify(text), text)
		assert.False(t, wire.RefusesNegentropy(text), text)
	}
}

// Errors classified by words that also occur in what we asked for: a repository
// named "rate-limit" made its relay look rate limited.
func TestTrapG12_EchoedValuesAreNotRead(t *testing.T) {
	for _, text := range []string{
		`bad req: invalid value in #a: 30617:ab:rate-limit`, `invalid: "too many concurrent REQs"`, `ERROR: bad req: "auth-required"`,
		`bad req: invalid value "limit must be positive"`,
	} {
		assert.Equal(t, wire.RefusalBadRequest, wire.Classify(text), text)
		assert.Equal(t, wire.RefusalBadRequest, wire.Classify(text), text)
	}
	for _, text := range []string{
		`rate-limited: ["too many reqs"]`, `rate-limited: filter {"#a":["subscriptions exceed max size 1"]}`,
	} {
		assert.Equal(t, wire.RefusalRateLimited, wire.Classify(text), text)
	}
	assert.Equal(t, wire.RefusalRateLimited, wire.Classify(`rate-limited: filter {"#a":["auth-required: negentropy disabled"]}`))
}
