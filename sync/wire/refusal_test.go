package wire_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/graspsync/graspsync/sync/wire"
)

// What strfry, khatru, go-nostr, rust-nostr's relays and others really say.
func TestClassifyNotice(t *testing.T) {
	tests := []struct {
		text string
		want wire.Refusal
		// noNegentropy is what it means while a NEG-OPEN waits for its answer.
		noNegentropy bool
	}{
		{"ERROR: too many concurrent REQs", wire.RefusalTooManySubs, false},
		{"ERROR: too many concurrent NEG requests", wire.RefusalTooManySubs, false},
		{"Maximum concurrent subscription count reached", wire.RefusalTooManySubs, false},
		{"ERROR: bad msg: negentropy disabled", wire.RefusalNoNegentropy, true},
		{"ERROR: bad msg: invalid message", wire.RefusalBadRequest, true},
		{"ERROR: bad msg: unknown cmd", wire.RefusalNoNegentropy, true},
		{"ERROR: bad msg: invalid message: [\"NEG-OPEN\",\"x\"]", wire.RefusalNoNegentropy, true},
		{"ERROR: bad msg: unparseable message", wire.RefusalBadRequest, true},
		{"ERROR: bad req: uneven size input to from_hex", wire.RefusalBadRequest, true},
		{"ERROR: negentropy error: negentropy query missing elements", wire.RefusalNoNegentropy, true},
		{"ERROR: negentropy error: parse error", wire.RefusalBadRequest, true},
		{"could not parse command", wire.RefusalNoNegentropy, true},
		{"Invalid enum value. Expected 'EVENT' | 'REQ' | 'CLOSE', received 'NEG-OPEN'", wire.RefusalNoNegentropy, true},
		{"error: bad message", wire.RefusalNoNegentropy, true},
		{"bad message type", wire.RefusalNoNegentropy, true},
		{"bad msg: NEG-OPEN", wire.RefusalNoNegentropy, true},
		{`"value" does not match any of the allowed types`, wire.RefusalNoNegentropy, true},
		{"Command unrecognized", wire.RefusalNoNegentropy, true},
		{"failed to parse envelope: unknown envelope label", wire.RefusalNoNegentropy, true},
		{"negentropy is not supported here", wire.RefusalNoNegentropy, true},
		{"error", wire.RefusalOther, true},
		{"invalid: no", wire.RefusalBadRequest, true},
		{"this relay is unsupported software", wire.RefusalOther, true},
		{"disabled", wire.RefusalOther, true},
		{"unknown", wire.RefusalOther, true},
		// SQL backends of khatru: NOTICE and EOSE, instead of an answer.
		{"too many tag values", wire.RefusalTooManyValues, true},
		{"too many kinds", wire.RefusalTooManyValues, true},
		{"rate-limited: slow down, please", wire.RefusalRateLimited, false},
		{"Rate limit exceeded", wire.RefusalRateLimited, false},
		{"you are noting too much", wire.RefusalRateLimited, false},
		{"ERROR: rate limited: 5 REQs a second", wire.RefusalRateLimited, false},
		{"auth-required: all requests must be authenticated", wire.RefusalAuthRequired, false},
		{"restricted: not for you", wire.RefusalRestricted, false},
		{"invalid client message", wire.RefusalBadRequest, true},
		{"your requests are throttled", wire.RefusalRateLimited, false},
		{"ERROR: bad req: filter validation failed: invalid number of filters: 8", wire.RefusalTooManyFilters, true},
		{"", wire.RefusalOther, false},
		{"welcome to my relay", wire.RefusalOther, false},
		{":", wire.RefusalOther, false},
	}
	for _, tt := range tests {
		assert.Equal(t, tt.want.String(), wire.ClassifyNotice(tt.text).String(), tt.text)
		assert.Equal(t, tt.noNegentropy, wire.RefusesNegentropy(tt.text), tt.text)
	}
}

func TestClassifyClosed(t *testing.T) {
	tests := []struct {
		text string
		want wire.Refusal
	}{
		{"rate-limited: there is a bug in the client, no one should be making so many requests", wire.RefusalRateLimited},
		{"rate-limited:", wire.RefusalRateLimited},
		{"error: rate limit reached", wire.RefusalRateLimited},
		{"auth-required: we only serve registered users", wire.RefusalAuthRequired},
		{"AUTH-REQUIRED: shouting", wire.RefusalAuthRequired},
		{"restricted: this relay does not serve kind-4 to unauthenticated users, does your client implement NIP-42?", wire.RefusalRestricted},
		{"blocked: you are banned from posting here", wire.RefusalRestricted},
		{"blocked: too many query results", wire.RefusalTooLarge},
		// What khatru's ready-made policies refuse is the form of the filter.
		{"blocked: too many things to filter for", wire.RefusalTooManyValues},
		{"blocked: can't handle empty filters", wire.RefusalNeedsKinds},
		{"blocked: an author must be specified to get their kind:1 notes", wire.RefusalNoNotes},
		{"blocked: an author must be specified", wire.RefusalNeedsKinds},
		{"blocked: search is not supported", wire.RefusalBadRequest},
		{"bad req: uneven size input to from_hex", wire.RefusalBadRequest},
		{"ERROR: bad req: too many filters", wire.RefusalTooManyFilters},
		{"bad req: too many tag values", wire.RefusalTooManyValues},
		{"bad req: filter item too large", wire.RefusalBadRequest},
		{"invalid: filter", wire.RefusalBadRequest},
		{"unsupported: filter contains unknown elements", wire.RefusalBadRequest},
		{"error: too many concurrent REQs", wire.RefusalTooManySubs},
		{"error: too many subscriptions", wire.RefusalTooManySubs},
		{"error: could not connect to the database", wire.RefusalOther},
		{"error: shutting down idle subscription", wire.RefusalOther},
		{"duplicate: already have this subscription", wire.RefusalOther},
		{"pow: difficulty 26 is less than 30", wire.RefusalOther},
		{"mute: no one was listening", wire.RefusalOther},
		// rust-nostr writes one prefix before all of its limits.
		{"rate-limited: too many queries", wire.RefusalRateLimited},
		{"rate-limited: too many REQs", wire.RefusalTooManySubs},
		{"rate-limited: too many concurrent REQs", wire.RefusalTooManySubs},
		{"rate-limited: too many requests", wire.RefusalRateLimited},
		{"rate-limited: REQ exceeds max filter count 20", wire.RefusalTooManyFilters},
		{"rate-limited: active subscriptions exceed max size 1048576 bytes", wire.RefusalTooManyBytes},
		{"error: live event buffer overflow; resubscribe to recover stored events", wire.RefusalOverflow},
		{"error: you cannot request another user's gift wrap", wire.RefusalNeedsKinds},
		{"auth-required: you must auth", wire.RefusalAuthRequired},
		// strfry with filter validation
		{"bad req: invalid number of filters: 8", wire.RefusalTooManyFilters},
		{"ERROR: filter validation failed: invalid number of filters: 8", wire.RefusalTooManyFilters},
		{"bad req: too many kinds in filter: 24", wire.RefusalTooManyValues},
		{"bad req: kind not allowed: 30618", wire.RefusalBadRequest},
		{"bad req: filter must have exactly one author, p tag, or e tag", wire.RefusalBadRequest},
		{"ERROR: bad req: error parsing #a: filter item too large", wire.RefusalBadRequest},
		{"error: filter item too large", wire.RefusalBadRequest},
		{"unsupported: invalid filters", wire.RefusalBadRequest},
		{"blocked: unsupported filter", wire.RefusalBadRequest},
		{"invalid: Filter 'limit' must be a positive integer, got 0", wire.RefusalLimitZero},
		{"error: limit must be greater than 0", wire.RefusalLimitZero},
		{"bad req: limit 700 must be below 500", wire.RefusalBadRequest},
		{"restricted: you are not a member of this relay", wire.RefusalRestricted},
		{"error: membership required", wire.RefusalRestricted},
		{"blocked: this is a private relay", wire.RefusalRestricted},
		{"blocked: Request rejected", wire.RefusalRestricted},
		{"request rejected", wire.RefusalRestricted},
		{"blocked: too many subscriptions", wire.RefusalTooManySubs},
		{"", wire.RefusalOther},
	}
	for _, tt := range tests {
		assert.Equal(t, tt.want.String(), wire.ClassifyClosed(tt.text).String(), tt.text)
	}
}

func TestClassifyNegErr(t *testing.T) {
	tests := []struct {
		text string
		max  int
		want wire.Refusal
	}{
		{"blocked: too many query results", 1_000_000, wire.RefusalTooLarge},
		{"blocked: this query is too big", 0, wire.RefusalTooLarge},
		{"blocked: this query is too big", 500, wire.RefusalTooLarge},
		{"blocked: in other words", 500, wire.RefusalTooLarge},
		{"RESULTS_TOO_BIG", 500, wire.RefusalTooLarge},
		{"RESULTS_TOO_BIG", 0, wire.RefusalTooLarge},
		// Another client split its window 2^31 times over this one.
		{"blocked: pubkey not allowed", 0, wire.RefusalRestricted},
		{"PROTOCOL-ERROR", 0, wire.RefusalBadRequest},
		{"closed: unknown subscription handle", 0, wire.RefusalSessionLost},
		{"closed", 0, wire.RefusalSessionLost},
		{"CLOSED", 0, wire.RefusalSessionLost},
		{"error: unknown subscription handle", 0, wire.RefusalSessionLost},
		{"auth-required: who are you?", 0, wire.RefusalAuthRequired},
		{"restricted: no", 0, wire.RefusalRestricted},
		{"rate-limited: slow down", 0, wire.RefusalRateLimited},
		{"error: negentropy disabled", 0, wire.RefusalNoNegentropy},
		{"unsupported: no NIP-77 here", 0, wire.RefusalNoNegentropy},
		{"blocked: an author must be specified to get their kind:1 notes", 0, wire.RefusalNoNotes},
		{"error: subscription not found", 0, wire.RefusalSessionLost},
		{"error: invalid negentropy message", 0, wire.RefusalBadRequest},
		{"rate-limited: too many queries", 0, wire.RefusalRateLimited},
		{"rate-limited: too many negentropy subscriptions", 0, wire.RefusalTooManySubs},
		{"rate-limited: too many negentropy items", 0, wire.RefusalTooLarge},
		{"error: something", 0, wire.RefusalOther},
		{"", 0, wire.RefusalOther},
		{"", 7, wire.RefusalOther},
	}
	for _, tt := range tests {
		assert.Equal(t, tt.want.String(), wire.ClassifyNegErr(tt.text, tt.max).String(), "%s %d", tt.text, tt.max)
	}
}

// A client that switches negentropy off for good because a NOTICE mentions it
// never reconciles with that relay again.
func TestTrapH4_MentionIsNoRefusal(t *testing.T) {
	for _, text := range []string{"negentropy sync finished", "we speak negentropy, use it", "NEG-OPEN welcome"} {
		assert.Equal(t, wire.RefusalOther, wire.ClassifyNotice(text), text)
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
		assert.Equal(t, wire.RefusalBadRequest, wire.ClassifyClosed(text), text)
		assert.Equal(t, wire.RefusalBadRequest, wire.ClassifyNotice(text), text)
	}
	for _, text := range []string{
		`rate-limited: ["too many reqs"]`, `rate-limited: filter {"#a":["subscriptions exceed max size 1"]}`,
	} {
		assert.Equal(t, wire.RefusalRateLimited, wire.ClassifyClosed(text), text)
	}
	assert.Equal(t, wire.RefusalRateLimited, wire.ClassifyClosed(`rate-limited: filter {"#a":["auth-required: negentropy disabled"]}`))
}
