package filters

import (
	"github.com/nbd-wtf/go-nostr"
)

// Names of the lists of a filter that are not tags.
const (
	ListIDs     = "ids"
	ListAuthors = "authors"
	ListKinds   = "kinds"
)

// WithList returns a copy of tags in which one list is replaced.
func WithList(tags nostr.TagMap, tag string, values []string) nostr.TagMap {
	out := make(nostr.TagMap, len(tags))
	for k, v := range tags {
		out[k] = v
	}
	out[tag] = values
	return out
}

// AtMost splits f until no list has more than n values. If n is 0, f is not split.
func AtMost(f nostr.Filter, n int) []nostr.Filter {
	list, size := Longest(f, true)
	if n < 1 || size <= n {
		return []nostr.Filter{f}
	}
	var out []nostr.Filter
	for from := 0; from < size; from += n {
		part := Part(f, list, from, min(from+n, size))
		out = append(out, AtMost(part, n)...)
	}
	return out
}

// Longest returns the list of f with the most values, and of equally long lists the first name in
// order.
func Longest(f nostr.Filter, kinds bool) (list string, size int) {
	consider := func(name string, n int) {
		if n > size || n == size && n > 0 && name < list {
			list, size = name, n
		}
	}
	consider(ListIDs, len(f.IDs))
	consider(ListAuthors, len(f.Authors))
	if kinds {
		consider(ListKinds, len(f.Kinds))
	}
	for tag, values := range f.Tags {
		consider(tag, len(values))
	}
	return list, size
}

// Part returns f with only a part of one list.
func Part(f nostr.Filter, list string, from, to int) nostr.Filter {
	switch list {
	case ListIDs:
		f.IDs = f.IDs[from:to:to]
	case ListAuthors:
		f.Authors = f.Authors[from:to:to]
	case ListKinds:
		f.Kinds = f.Kinds[from:to:to]
	default:
		f.Tags = WithList(f.Tags, list, f.Tags[list][from:to:to])
	}
	return f
}
