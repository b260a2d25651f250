package wire

import (
	"strconv"
	"strings"

	"github.com/graspsync/graspsync"
)

// Refusal is the meaning of a relay's refusal, which is free text that only this file interprets.
type Refusal uint8

// The meanings of refusals.
const (
	// RefusalOther has no known meaning. The request failed.
	RefusalOther Refusal = iota
	// RefusalRateLimited means that the request may be sent later.
	RefusalRateLimited
	// RefusalAuthRequired means that authentication (NIP-42) is required.
	RefusalAuthRequired
	// RefusalRestricted means that the relay never accepts the request from this client.
	RefusalRestricted
	// RefusalNoNegentropy means that the relay does not support NIP-77 or does not know the
	// message. If no NEG-OPEN waits for an answer, it means RefusalBadRequest.
	RefusalNoNegentropy
	// RefusalTooLarge means that the answer would be too large. A smaller part may be accepted.
	RefusalTooLarge
	// RefusalSessionLost means that the relay does not have the NEG session anymore.
	RefusalSessionLost
	// RefusalTooManySubs means that too many subscriptions or NEG sessions are open.
	RefusalTooManySubs
	// RefusalBadRequest means that other filters may be accepted.
	RefusalBadRequest
	// RefusalTooManyFilters means that fewer filters in a REQ may be accepted.
	RefusalTooManyFilters
	// RefusalTooManyValues means that fewer values in a filter may be accepted.
	RefusalTooManyValues
	// RefusalNeedsKinds means that a filter with kinds or authors may be accepted.
	RefusalNeedsKinds
	// RefusalNoNotes means that a filter with authors, or with kinds other than 1, may be accepted.
	RefusalNoNotes
	// RefusalLimitZero means that a filter without "limit": 0 may be accepted.
	RefusalLimitZero
	// RefusalTooManyBytes means that the open requests have too many bytes together. Closing one
	// frees its bytes.
	RefusalTooManyBytes
	// RefusalOverflow means that the relay lost live events and ended a subscription. The same request
	// may be sent again.
	RefusalOverflow
)

var refusalNames = [...]string{
	"other", "rate limited", "auth required", "restricted", "no negentropy", "too large", "session lost",
	"too many subscriptions", "bad request", "too many filters", "too many values", "needs kinds", "no notes",
	"limit 0", "too many bytes", "overflow",
}

// String returns the name of the refusal in lower case.
func (r Refusal) String() string { return refusalNames[r] }

// Classify returns the meaning of a NOTICE, or of the reason of a CLOSED.
func Classify(text string) Refusal { return classify(normal(text)) }

// ClassifyNegErr returns the meaning of the reason of a NEG-ERR with its maximum. "blocked" alone
// is not RefusalTooLarge, because a relay that blocks us would be asked for ever smaller parts.
func ClassifyNegErr(text string, max int) Refusal {
	s := normal(text)
	prefix, _ := cut(s)
	switch {
	case prefix == "closed" || hasAny(s, "unknown subscription handle", "subscription not found"):
		return RefusalSessionLost
	case max > 0 && (prefix == "blocked" || hasAny(s, "too big", "too_big", "too many", "results")):
		return RefusalTooLarge
	case prefix == "unsupported" || hasAny(s, "disabled", "not supported", "unsupported"):
		return RefusalNoNegentropy
	}
	return classify(s)
}

// SaidMost returns the maximum of filters or bytes that a refusal names, or 0.
func SaidMost(text string) int {
	s := said(normal(text))
	for _, before := range []string{"max filter count ", "max size "} {
		_, after, ok := strings.Cut(s, before)
		if !ok {
			continue
		}
		if end := strings.IndexFunc(after, func(r rune) bool { return r < '0' || r > '9' }); end >= 0 {
			after = after[:end]
		}
		if n, err := strconv.ParseInt(after, 10, 32); err == nil && n > 0 {
			return int(n)
		}
	}
	return 0
}

// RefusesNegentropy reports whether a NOTICE while a NEG-OPEN waits means that no answer will come.
// Every complaint does, except one that is temporary or has a remedy.
func RefusesNegentropy(notice string) bool {
	s := normal(notice)
	switch classify(s) {
	case RefusalNoNegentropy, RefusalBadRequest, RefusalTooManyFilters, RefusalTooManyValues, RefusalNeedsKinds,
		RefusalNoNotes:
		return true
	case RefusalOther:
		return hasAny(s, "error", "invalid", "unrecognized", "bad msg", "bad message",
			"could not parse", "disabled", "unsupported", "unknown")
	}
	return false
}

// classify reads the machine-readable prefix. Text after a prefix may quote our own filter.
func classify(s string) Refusal {
	prefix, rest := cut(s)
	switch prefix {
	case "error", "notice", "rejected":
		if rest != "" {
			return classify(rest)
		}
	case "rate-limited", "rate limited", "ratelimited", "rate-limit", "rate limit":
		return limited(said(rest))
	case "auth-required":
		return RefusalAuthRequired
	case "restricted":
		return RefusalRestricted
	case "blocked":
		if r := words(rest); r != RefusalOther {
			return r
		}
		return RefusalRestricted
	case "bad msg", "bad message":
		if rest != "" {
			return badMessage(rest)
		}
	case "negentropy error":
		// Other messages with this prefix are errors of one session.
		if rest == "negentropy query missing elements" {
			return RefusalNoNegentropy
		}
		return RefusalBadRequest
	case "bad req", "bad request", "invalid", "unsupported", "protocol-error", "filter validation failed":
		return badRequest(rest)
	case "closed":
		return RefusalSessionLost
	case "pow", "mute", "duplicate":
		return RefusalOther
	}
	return words(s)
}

// badMessage reads the text after "bad msg:".
func badMessage(rest string) Refusal {
	if hasAny(rest, "negentropy", "neg-", "unknown cmd", "unknown command") {
		return RefusalNoNegentropy
	}
	return RefusalBadRequest
}

// badRequest reads the text after "bad req:". Only exact messages count.
func badRequest(rest string) Refusal {
	switch rest {
	case "too many filters":
		return RefusalTooManyFilters
	case "too many tag values", "too many kinds", "too many ids", "too many authors":
		return RefusalTooManyValues
	}
	switch first, _ := cut(rest); first {
	case "filter validation failed":
		return badRequest(strings.TrimSpace(strings.TrimPrefix(rest[len(first):], ":")))
	case "invalid number of filters":
		return RefusalTooManyFilters
	case "too many kinds in filter":
		return RefusalTooManyValues
	}
	if wantsLimit(said(rest)) {
		return RefusalLimitZero
	}
	return RefusalBadRequest
}

// limited reads the text after "rate-limited:", which relays on rust-nostr use for all limits.
func limited(rest string) Refusal {
	switch {
	case hasAny(rest, "too many negentropy items"):
		return RefusalTooLarge
	case hasAny(rest, "exceeds max filter count"):
		return RefusalTooManyFilters
	case hasAny(rest, "subscriptions exceed max size"):
		return RefusalTooManyBytes
	case hasAny(rest, "too many reqs", "too many negentropy subscriptions", "too many concurrent"):
		return RefusalTooManySubs
	}
	return RefusalRateLimited
}

// wantsLimit reports whether a text complains of limit 0.
func wantsLimit(s string) bool {
	return hasAny(s, "limit") && hasAny(s, "must be a positive", "must be positive", "must be greater than 0",
		"must be greater than zero", "must be at least 1", "must be > 0", "must not be 0", "must not be zero")
}

// said returns the text before the quotation of our request.
func said(s string) string {
	if i := strings.IndexAny(s, "\"{["); i >= 0 {
		return s[:i]
	}
	return s
}

func words(s string) Refusal {
	switch {
	case hasAny(s, "too many concurrent", "too many subscription", "too many open",
		"maximum concurrent", "subscription limit"):
		return RefusalTooManySubs
	case hasAny(s, "rate limit", "rate-limit", "ratelimit", "too many requests", "slow down", "noting too much",
		"throttl"):
		return RefusalRateLimited
	case hasAny(s, "auth-required", "authentication required", "requires authentication", "must be authenticated"):
		return RefusalAuthRequired
	case hasAny(s, "too many query results", "query is too big", "results_too_big", "results too big"):
		return RefusalTooLarge
	case hasAny(s, "too many filters", "invalid number of filters", "max filter count"):
		return RefusalTooManyFilters
	case hasAny(s, "live event buffer overflow"):
		return RefusalOverflow
	case hasAny(s, "too many tag", "too many kinds", "too many ids", "too many authors",
		"too many things to filter for"):
		return RefusalTooManyValues
	case hasAny(s, "author must be specified to get their kind:1"):
		return RefusalNoNotes
	case hasAny(s, "an author must be specified", "empty filter", "kinds must be specified", "must specify kinds"):
		return RefusalNeedsKinds
	case wantsLimit(said(s)):
		return RefusalLimitZero
	case hasAny(said(s), "not a member", "membership", "private relay", "request rejected"):
		return RefusalRestricted
	case hasAny(s, "search is not supported", "filter item too large", "unsupported filter", "invalid filters",
		"filter validation failed", "invalid client message", "invalid negentropy message",
		"filter must have exactly one", "kind not allowed"):
		return RefusalBadRequest
	// A filter without kinds may ask for these kinds too.
	case hasAny(s, "cannot request another user's gift wrap"):
		return RefusalNeedsKinds
	case hasAny(s, "negentropy", "neg-") && hasAny(s, "disabled", "unsupported", "not supported",
		"not enabled", "invalid", "unknown", "unrecognized"):
		return RefusalNoNegentropy
	case hasAny(s, "could not parse", "failed to parse envelope", "unrecognized", "unknown envelope",
		"unknown cmd", "unknown command", "unknown message", "bad message", "bad msg",
		"does not match any of the allowed types", "invalid enum value"):
		return RefusalNoNegentropy
	}
	return RefusalOther
}

// normal returns the text to compare, in lower case, cut, and without space around it.
func normal(text string) string {
	return strings.ToLower(strings.TrimSpace(graspsync.Clip(text, graspsync.MaxText)))
}

// cut splits off the prefix of a reason. Text without a colon is all prefix.
func cut(s string) (prefix, rest string) {
	prefix, rest, _ = strings.Cut(s, ":")
	return strings.TrimSpace(prefix), strings.TrimSpace(rest)
}

func hasAny(s string, parts ...string) bool {
	for _, part := range parts {
		if strings.Contains(s, part) {
			return true
		}
	}
	return false
}
