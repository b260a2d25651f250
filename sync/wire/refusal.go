package wire

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/graspsync/graspsync"
)

// Refusal is what a relay means when it does not do what it was asked. Relays say
// so in words, and only here are these words read.
type Refusal uint8

// What relays mean.
const (
	// RefusalOther: nothing that is known. The request failed.
	RefusalOther Refusal = iota
	// RefusalRateLimited: later.
	RefusalRateLimited
	// RefusalAuthRequired: after NIP-42 authentication.
	RefusalAuthRequired
	// RefusalRestricted: never, for us.
	RefusalRestricted
	// RefusalNoNegentropy: the relay does not do NIP-77, or does not know the kind
	// of message at all. In a NOTICE that comes while no NEG-OPEN waits for its
	// answer, it is about what was sent last, and means no more than
	// RefusalBadRequest.
	RefusalNoNegentropy
	// RefusalTooLarge: the answer would be too large; a smaller part may be had.
	RefusalTooLarge
	// RefusalSessionLost: the relay no longer has the NEG session.
	RefusalSessionLost
	// RefusalTooManySubs: more subscriptions or NEG sessions are open than the
	// relay allows.
	RefusalTooManySubs
	// RefusalBadRequest: not in this form. Other filters may be taken.
	RefusalBadRequest
	// RefusalTooManyFilters: fewer filters in a REQ may be taken.
	RefusalTooManyFilters
	// RefusalTooManyValues: fewer values in a filter may be taken.
	RefusalTooManyValues
	// RefusalNeedsKinds: a filter that names kinds, or authors, may be taken.
	RefusalNeedsKinds
	// RefusalNoNotes: a filter that names authors, or kinds but not kind 1, may be taken.
	RefusalNoNotes
	// RefusalLimitZero: a filter without "limit": 0 may be taken.
	RefusalLimitZero
	// RefusalTooManyBytes: the requests that are open are too long together. Each of
	// them counts until it is closed.
	RefusalTooManyBytes
	// RefusalOverflow: the relay lost live events before it could send them, and ends
	// its live subscriptions. Nothing is wrong with these.
	RefusalOverflow
)

// String returns the name of the refusal in lower case.
func (r Refusal) String() string {
	switch r {
	case RefusalOther:
		return "other"
	case RefusalRateLimited:
		return "rate limited"
	case RefusalAuthRequired:
		return "auth required"
	case RefusalRestricted:
		return "restricted"
	case RefusalNoNegentropy:
		return "no negentropy"
	case RefusalTooLarge:
		return "too large"
	case RefusalSessionLost:
		return "session lost"
	case RefusalTooManySubs:
		return "too many subscriptions"
	case RefusalBadRequest:
		return "bad request"
	case RefusalTooManyFilters:
		return "too many filters"
	case RefusalTooManyValues:
		return "too many values"
	case RefusalNeedsKinds:
		return "needs kinds"
	case RefusalNoNotes:
		return "no notes"
	case RefusalLimitZero:
		return "limit 0"
	case RefusalTooManyBytes:
		return "too many bytes"
	case RefusalOverflow:
		return "overflow"
	}
	return fmt.Sprintf("refusal(%d)", uint8(r))
}

// ClassifyNotice says what a NOTICE means. It has no subscription id: the caller
// knows what may have caused it, if anything.
func ClassifyNotice(text string) Refusal { return classify(normal(text)) }

// ClassifyClosed says what the reason of a CLOSED means.
func ClassifyClosed(text string) Refusal { return classify(normal(text)) }

// ClassifyNegErr says what the reason of a NEG-ERR means; max is its fourth
// element, 0 if it has none. "blocked" alone is not taken for "too large": a relay
// that refuses us for good would be asked for ever smaller parts.
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

// SaidMost returns the number that a refusal names as the most that the relay takes: of
// filters, of bytes. 0 if it names none. A number that is about what we asked for is none.
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

// RefusesNegentropy says whether a NOTICE that comes while a NEG-OPEN waits for
// its first answer means that there will be none. Any complaint does, unless it is
// one that passes or has a remedy.
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

// classify reads the machine-readable prefix first, and words only where there is
// none: what follows a prefix may repeat our own filter, with any word in it.
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
		// An error within the protocol, but for one that shows an old version of it.
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

// badMessage reads what follows "bad msg:".
func badMessage(rest string) Refusal {
	if hasAny(rest, "negentropy", "neg-", "unknown cmd", "unknown command") {
		return RefusalNoNegentropy
	}
	return RefusalBadRequest
}

// badRequest reads what follows "bad req:". Only what is there word for word
// counts: it may repeat our own filter.
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

// limited reads what follows "rate-limited:". Relays built with rust-nostr write that
// before every limit of theirs, and most of these do not pass with time.
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

// wantsLimit reports whether a text says that a limit of 0 is none.
func wantsLimit(s string) bool {
	return hasAny(s, "limit") && hasAny(s, "must be a positive", "must be positive", "must be greater than 0",
		"must be greater than zero", "must be at least 1", "must be > 0", "must not be 0", "must not be zero")
}

// said returns a text up to where it begins to repeat what we asked.
func said(s string) string {
	if i := strings.IndexAny(s, "\"{["); i >= 0 {
		return s[:i]
	}
	return s
}

// words reads free text.
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
	// Of a filter without kinds they can't know that it is not after those.
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

// normal returns what is compared: lower case, bounded, without space around.
func normal(text string) string {
	return strings.ToLower(strings.TrimSpace(graspsync.Clip(text, graspsync.MaxText)))
}

// cut splits off a prefix as relays write it, "blocked: ...". Text without a colon
// is all prefix: "CLOSED", "PROTOCOL-ERROR".
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
