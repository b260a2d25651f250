package nostrlib

import (
	"encoding/hex"
	"math"

	"fiatjaf.com/nostr"
	gonostr "github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
)

// FromFilter converts a filter of nostrlib. Both share the lists of tag values.
func FromFilter(f nostr.Filter) gonostr.Filter {
	return gonostr.Filter{
		Tags: gonostr.TagMap(f.Tags), Limit: f.Limit, LimitZero: f.LimitZero, Search: f.Search,
		Since: bound(f.Since), Until: bound(f.Until),
		IDs:     converted(f.IDs, func(id nostr.ID) (string, bool) { return hex.EncodeToString(id[:]), true }),
		Authors: converted(f.Authors, func(key nostr.PubKey) (string, bool) { return hex.EncodeToString(key[:]), true }),
		Kinds:   converted(f.Kinds, func(k nostr.Kind) (int, bool) { return int(k), true }),
	}
}

func bound(at nostr.Timestamp) *gonostr.Timestamp {
	if at == 0 {
		return nil
	}
	t := gonostr.Timestamp(at)
	return &t
}

// ToFilter converts a filter of go-nostr, without values that no event can have. Both share the lists of
// tag values. ok is false if nothing can match.
func ToFilter(f gonostr.Filter) (out nostr.Filter, ok bool) {
	out = nostr.Filter{
		Tags: nostr.TagMap(f.Tags), Limit: f.Limit, LimitZero: f.LimitZero, Search: f.Search,
		IDs: converted(f.IDs, func(s string) (nostr.ID, bool) {
			id, err := graspsync.ParseEventID(s)
			return nostr.ID(id), err == nil
		}),
		Authors: converted(f.Authors, func(s string) (nostr.PubKey, bool) {
			key, err := graspsync.ParsePubKey(s)
			return nostr.PubKey(key), err == nil
		}),
		Kinds: converted(f.Kinds, func(k int) (nostr.Kind, bool) { return nostr.Kind(k), 0 <= k && k <= math.MaxUint16 }),
	}
	for _, values := range f.Tags {
		if values != nil && len(values) == 0 {
			return out, false
		}
	}
	if f.Since != nil {
		out.Since = nostr.Timestamp(max(*f.Since, 0))
	}
	if f.Until != nil {
		out.Until = nostr.Timestamp(*f.Until)
	}
	return out, (f.IDs == nil || len(out.IDs) > 0) && (f.Authors == nil || len(out.Authors) > 0) &&
		(f.Kinds == nil || len(out.Kinds) > 0) && (f.Until == nil || *f.Until > 0)
}

// converted returns nil for nil, because an empty list matches nothing.
func converted[A, B any](values []A, as func(A) (B, bool)) (out []B) {
	if values != nil {
		out = make([]B, 0, len(values))
	}
	for _, v := range values {
		if c, ok := as(v); ok {
			out = append(out, c)
		}
	}
	return out
}
