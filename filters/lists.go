package filters

import (
	"github.com/nbd-wtf/go-nostr"
)

// The names of the lists of a filter that are not tags, beside the one-letter names of
// those that are.
const (
	ListIDs     = "ids"
	ListAuthors = "authors"
	ListKinds   = "kinds"
)

// WithList returns tags with another list under one name. Nothing of tags is changed.
func WithList(tags nostr.TagMap, tag string, values []string) nostr.TagMap {
	out := make(nostr.TagMap, len(tags))
	for k, v := range tags {
		out[k] = v
	}
	out[tag] = values
	return out
}

// AtMost splits f until no list has more than n values; 0 is no bound.
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

// Longest names the list of f with the most values; of several the first by name.
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

// Part returns f with a part of one list only.
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
