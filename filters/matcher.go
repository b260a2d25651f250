package filters

import (
	"slices"

	"github.com/nbd-wtf/go-nostr"
)

// Matcher reports whether an event matches at least one of a set of filters (NIP-01). Only the
// first value of a tag counts. Limit and search are ignored. A Matcher is immutable and may be used
// concurrently.
type Matcher struct{ filters []nostr.Filter }

// Compile returns a Matcher of the filters. It shares sorted lists with them, such as those of
// builders, to save memory, so the filters must not be changed later.
func Compile(fs []nostr.Filter) *Matcher {
	m := &Matcher{filters: make([]nostr.Filter, 0, len(fs))}
	for _, f := range fs {
		if Empty(f) {
			continue
		}
		f.IDs, f.Authors, f.Kinds = inOrder(f.IDs), inOrder(f.Authors), inOrder(f.Kinds)
		for name, values := range f.Tags {
			if !slices.IsSorted(values) {
				f.Tags = WithList(f.Tags, name, inOrder(values))
			}
		}
		m.filters = append(m.filters, f)
	}
	return m
}

// Match reports whether ev matches one of the filters. It returns false for nil.
func (m *Matcher) Match(ev *nostr.Event) bool {
	return ev != nil && slices.ContainsFunc(m.filters, func(f nostr.Filter) bool {
		return (f.Since == nil || ev.CreatedAt >= *f.Since) && (f.Until == nil || ev.CreatedAt <= *f.Until) &&
			allows(f.Kinds, ev.Kind) && allows(f.IDs, ev.ID) && allows(f.Authors, ev.PubKey) && matchesTags(f.Tags, ev.Tags)
	})
}

func matchesTags(conditions nostr.TagMap, tags nostr.Tags) bool {
	for name, values := range conditions {
		if !slices.ContainsFunc(tags, func(tag nostr.Tag) bool {
			return len(tag) >= 2 && tag[0] == name && allows(values, tag[1])
		}) {
			return false
		}
	}
	return true
}

func inOrder[T int | string](list []T) []T {
	if slices.IsSorted(list) {
		return list
	}
	return slices.Sorted(slices.Values(list))
}

func allows[T int | string](list []T, v T) bool {
	if list == nil {
		return true
	}
	_, ok := slices.BinarySearch(list, v)
	return ok
}
