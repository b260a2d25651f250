package eventstoreadapter

import (
	"cmp"
	"math"
	"slices"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
)

// plan returns the lists that a backend is asked for: at least what the filter
// matches, within what the backend can look up. It is false for a filter that
// nothing matches. Bounds of time are left out; ids are left alone, since backends
// that look up ids ignore the rest.
func plan(f nostr.Filter, p profile) (nostr.Filter, bool) {
	var q nostr.Filter
	switch {
	case f.IDs != nil:
		q.IDs = clean(f.IDs, isID)
		return q, len(q.IDs) > 0
	case f.Since != nil && f.Until != nil && *f.Since > *f.Until,
		f.Until != nil && *f.Until < 0,
		f.Since != nil && *f.Since > latest:
		return q, false
	}
	if f.Kinds != nil {
		q.Kinds = clean(f.Kinds, func(k int) bool { return 0 <= k && k <= math.MaxUint16 })
		if len(q.Kinds) == 0 {
			return q, false
		}
	}
	if f.Authors != nil {
		q.Authors = clean(f.Authors, isID)
		if len(q.Authors) == 0 {
			return q, false
		}
	}
	for name, values := range f.Tags {
		if values == nil {
			continue
		}
		if len(values) == 0 || name == "" { // badger and lmdb crash over tags without a name
			return q, false
		}
		// one value that is not indexed is reason enough not to use the index
		if all := clean(values, func(v string) bool { return p.indexed(name, v) }); len(all) == len(clean(values, nil)) {
			if q.Tags == nil {
				q.Tags = make(nostr.TagMap, len(f.Tags))
			}
			q.Tags[name] = all
		}
	}
	if !p.memory {
		q.Tags = oneLookedUp(q.Tags)
	}
	return q, true
}

// oneLookedUp leaves out tags of which badger and lmdb would look up one by chance, and another one when they count: all but that of
// which a value has fewest events. Of those beside one that they rather look up they look up none.
func oneLookedUp(tags nostr.TagMap) nostr.TagMap {
	if len(tags) < 2 {
		return tags
	}
	best := bestOf(tags)
	left := make(nostr.TagMap, len(tags))
	for name, values := range tags {
		if name == best || isNarrow(best) && !isNarrow(name) {
			left[name] = values
		}
	}
	return left
}

// bestOf is the name of the tag that is best looked up, empty if there is none.
func bestOf(tags nostr.TagMap) (best string) {
	for name := range tags {
		if best == "" || cmp.Or(isNarrower(name, best), cmp.Compare(best, name)) > 0 {
			best = name
		}
	}
	return best
}

// indexed returns what of lists badger and lmdb look up in one index. What they hold against the rest of a filter they read, however much
// that is, and say nothing until something matches: a client asks for that in parts, each of which comes to an end.
func indexed(q nostr.Filter) nostr.Filter {
	best := bestOf(q.Tags)
	switch {
	case best == "",
		len(q.Authors) > 0 && (best == "d" || selectivity(best) < 2), // of an author there is less than of those who have something of a name
		len(q.Kinds) > 0 && (best == "K" || best == "k"):             // nearly all that has a kind has that
		return nostr.Filter{Authors: q.Authors, Kinds: q.Kinds}
	}
	return nostr.Filter{Tags: nostr.TagMap{best: q.Tags[best]}}
}

// isNarrower is positive for a tag name rather looked up than another.
func isNarrower(name, than string) int {
	return cmp.Or(boolToInt(isNarrow(name))-boolToInt(isNarrow(than)), cmp.Compare(selectivity(name), selectivity(than)))
}

func boolToInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

// clean returns a sorted copy without duplicates and without what is not ok.
func clean[T int | string](list []T, ok func(T) bool) []T {
	c := slices.Clone(list)
	slices.Sort(c)
	c = slices.Compact(c)
	if ok == nil {
		return c
	}
	return slices.DeleteFunc(c, func(v T) bool { return !ok(v) })
}

func isID(s string) bool {
	_, err := graspsync.ParseEventID(s)
	return err == nil
}

// single reports whether each list has at most one value.
func single(q nostr.Filter) bool {
	if len(q.Kinds) > 1 || len(q.Authors) > 1 {
		return false
	}
	for _, values := range q.Tags {
		if len(values) > 1 {
			return false
		}
	}
	return true
}

// size is the number of values of all lists.
func size(q nostr.Filter) int {
	n := len(q.Kinds) + len(q.Authors)
	for _, values := range q.Tags {
		n += len(values)
	}
	return n
}

// slim drops lists of a filter with too many values, but one, so that there are not
// as many queries as combinations: what is matched too much is sorted out later.
// The list that is kept is the one likely to have the fewest events.
func slim(q nostr.Filter, values int) nostr.Filter {
	if size(q) <= values {
		return q
	}
	kept := ""
	for name := range q.Tags {
		if kept == "" || selectivity(name) > selectivity(kept) ||
			selectivity(name) == selectivity(kept) && name < kept {
			kept = name
		}
	}
	small := max(1, values/4)
	tags := make(nostr.TagMap, len(q.Tags))
	for name, v := range q.Tags {
		if name == kept || len(v) <= small && len(q.Tags) <= values {
			tags[name] = v
		}
	}
	if kept != "" {
		q.Tags = tags
	}
	if len(q.Authors) > small && kept != "" {
		q.Authors = nil
	}
	if len(q.Kinds) > small && (kept != "" || q.Authors != nil) {
		q.Kinds = nil
	}
	return q
}

// selectivity orders tag names by how few events a value of theirs has.
func selectivity(name string) int {
	switch name {
	case "e", "E", "q":
		return 3
	case "a", "A", "d":
		return 2
	case "t", "p", "P":
		return 0
	}
	return 1
}

// halve splits the longest list of those that by has, of which one must have several values.
func halve(q, by nostr.Filter) (a, b nostr.Filter) {
	a, b = q, q
	longest, name := len(by.Kinds), ""
	for n, values := range by.Tags {
		if len(values) > longest || len(values) == longest && name != "" && n < name {
			longest, name = len(values), n
		}
	}
	switch {
	case len(by.Authors) > longest:
		n := len(q.Authors) / 2
		a.Authors, b.Authors = q.Authors[:n], q.Authors[n:]
	case name != "":
		n := longest / 2
		a.Tags, b.Tags = withTag(q.Tags, name, q.Tags[name][:n]), withTag(q.Tags, name, q.Tags[name][n:])
	default:
		n := longest / 2
		a.Kinds, b.Kinds = q.Kinds[:n], q.Kinds[n:]
	}
	return a, b
}

func withTag(tags nostr.TagMap, name string, values []string) nostr.TagMap {
	c := make(nostr.TagMap, len(tags)+1)
	for n, v := range tags {
		c[n] = v
	}
	c[name] = values
	return c
}

// matcher is a filter with its tag values as sets, so that an event costs as much
// as it has tags.
type matcher struct {
	filter  nostr.Filter // without tags
	tags    map[string]map[string]struct{}
	records bool // records of versions match as well
}

func compile(f nostr.Filter) matcher {
	m := matcher{filter: f, tags: make(map[string]map[string]struct{}, len(f.Tags))}
	m.filter.Tags = nil
	for name, values := range f.Tags {
		if values == nil {
			continue
		}
		m.tags[name] = make(map[string]struct{}, len(values))
		for _, v := range values {
			m.tags[name][v] = struct{}{}
		}
	}
	return m
}

func (m matcher) match(e *nostr.Event) bool {
	if e.Kind == kindVersion && !m.records || !m.filter.Matches(e) {
		return false
	}
	for name, values := range m.tags {
		if !slices.ContainsFunc(e.Tags, func(t nostr.Tag) bool {
			if len(t) < 2 || t[0] != name {
				return false
			}
			_, ok := values[t[1]]
			return ok
		}) {
			return false
		}
	}
	return true
}
