package eventstoreadapter

import (
	"encoding/hex"
	"math"
	"reflect"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/fiatjaf/eventstore"
	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync/internal/traits"
)

// profile is what is known of a kind of backend.
type profile struct {
	page   int // most events that one query gives
	exempt int // the same for reconciliation queries; 0 if they are no exception
	values int // most values of all lists together
	lists  lists
	// sorted: an answer that is full holds the newest matches, whatever the filter.
	// Without it that is only so for what is one look-up.
	sorted bool
	// ordered: of one second those with the lowest ids come first.
	ordered bool
	// alike: what is found for a tag may have the value elsewhere, or as a part of another.
	alike bool
	// signed: times have 31 bits.
	signed bool
	// trusted: an answer with fewer events than were asked for is all there is.
	trusted bool
	// prefixes: answers to a query for a tag value also hold events with values that
	// begin with it, neither in order of time, and since ends the search early.
	prefixes bool
	// exclusive: since may be taken as exclusive.
	exclusive bool
	serialize bool
	// cancel: the backend closes the channel when its context ends.
	cancel bool
	// compact: events are kept in the binary form of badger and lmdb, with its
	// limits on the sizes of things.
	compact bool
	// content is the length of the longest content that is kept, in bytes; 0: any.
	content int
	// folder is the folder of a database that lets several processes open it.
	folder string
	// uncounted: it is not to be asked to count. lmdb never comes to an end.
	uncounted bool
	// indexed reports whether a query for this tag finds all events that have it.
	indexed func(name, value string) bool
	// pattern is what a tag value is asked for by; nil: by itself.
	pattern func(value string) string
	// fits reports whether an event can be kept as it is, beyond what compact says; nil if any can.
	fits func(e *nostr.Event) bool
}

// lists are the most values of single lists of one query: authors, kinds, one tag, and all tags together. 0: any.
type lists struct{ authors, kinds, tag, tags int }

const modulePath = "github.com/fiatjaf/eventstore/"

// profileOf tells backends by the package of their type, so that no backend has to
// be linked in for it. A backend that an embedder wrapped in a type of its own is
// taken for the worst of all.
func profileOf(backend eventstore.Store) profile {
	if b, ok := backend.(traits.Teller); ok {
		t := b.Traits()
		p := profile{
			page: t.Page, exempt: t.Exempt, values: t.Values, sorted: t.Sorted, trusted: t.Trusted, prefixes: t.Prefixes,
			exclusive: t.Exclusive, serialize: t.Serialize, folder: t.Folder, compact: t.Compact, indexed: t.Indexed, fits: t.Fits,
		}
		if p.compact {
			p.content = longestText
		}
		return p
	}
	v := reflect.Indirect(reflect.ValueOf(backend))
	name, known := strings.CutPrefix(v.Type().PkgPath(), modulePath)
	p := profile{
		page: defaultPageSize, values: defaultMaxValues,
		prefixes: true, exclusive: true, indexed: indexedAnywhere,
	}
	if !known || v.Kind() != reflect.Struct {
		return p
	}
	switch name {
	case "badger", "lmdb":
		p = profile{
			page: limitOf(v, "MaxLimit"), exempt: limitOf(v, "MaxLimitNegentropy"), values: 256,
			trusted: true, prefixes: true, compact: true, indexed: indexedCompactly, content: longestText,
		}
		if name == "lmdb" {
			p.uncounted, p.indexed, p.folder = true, indexedByLmdb, v.FieldByName("Path").String()
		}
	case "slicestore":
		p = profile{
			page: limitOf(v, "MaxLimit"), values: 256, sorted: true, trusted: true,
			exclusive: true, serialize: true, indexed: func(string, string) bool { return true },
		}
	case "sqlite3", "postgresql", "mysql":
		p = ofSQL(name, v)
	}
	if p.page <= 0 { // Init was not called
		p.page, p.trusted = defaultPageSize, false
	}
	return p
}

// mostKinds is how many kinds sqlite3 takes, whatever its QueryKindsLimit is.
const mostKinds = 10

// ofSQL is what is known of a SQL database.
func ofSQL(name string, v reflect.Value) profile {
	p := profile{
		page: limitOf(v, "QueryLimit"), values: math.MaxInt, sorted: true, ordered: true, alike: true, cancel: true,
		lists: lists{authors: limitOf(v, "QueryAuthorsLimit"), kinds: limitOf(v, "QueryKindsLimit"), tags: limitOf(v, "QueryTagsLimit")},
	}
	if p.lists.authors <= 0 || p.lists.kinds <= 0 || p.lists.tags <= 0 { // Init was not called
		p.values = defaultMaxValues
	}
	p.fits = fitsSQL(name)
	switch name {
	case "sqlite3":
		p.lists.kinds = min(p.lists.kinds, mostKinds)
		p.looksFor(oddInJSON)
	case "mysql":
		p.looksFor(oddInJSON + escapedForHTML)                  // MariaDB keeps JSON as it is written, MySQL makes it anew
		p.signed, p.lists.tag, p.content = true, 1, longestText // it has one condition for all values of a tag, and fails where there are more
	case "postgresql":
		p.signed, p.indexed, p.pattern = true, indexedByPostgres, textForPostgres
	}
	return p
}

// longestText is the longest content that badger, lmdb and mysql keep, in bytes; mysql may cut a longer one.
const longestText = math.MaxUint16

// fitsSQL reports whether a SQL database gives an event back as it was. All keep tags as JSON, where
// bytes that are no UTF-8 are replaced. postgresql and mysql check the content as well, and
// postgresql has no U+0000.
func fitsSQL(name string) func(e *nostr.Event) bool {
	fits := func(s string) bool {
		return utf8.ValidString(s) && (name != "postgresql" || !strings.Contains(s, "\x00"))
	}
	return func(e *nostr.Event) bool {
		return !slices.ContainsFunc(slices.Concat(e.Tags...), func(s string) bool { return !fits(s) }) &&
			(name == "sqlite3" || fits(e.Content))
	}
}

func limitOf(v reflect.Value, field string) int {
	f := v.FieldByName(field)
	if !f.IsValid() || !f.CanInt() {
		return 0
	}
	return int(f.Int())
}

func (p profile) with(c Config) profile {
	if c.PageSize > 0 {
		p.page = c.PageSize
	}
	if c.MaxValues > 0 {
		p.values = c.MaxValues
	}
	p.serialize = p.serialize || c.Serialize
	return p
}

// longestIndexed is the longest tag value that badger and lmdb index.
const longestIndexed = 100

// indexedCompactly: badger and lmdb keep tags whose name is one byte, whichever.
func indexedCompactly(name, value string) bool {
	return len(name) == 1 && value != "" && len(value) <= longestIndexed
}

// indexedByLmdb: lmdb looks up p tags by kind, and not by time where there is none.
func indexedByLmdb(name, value string) bool { return name != "p" && indexedCompactly(name, value) }

// indexedAnywhere is what any backend may be expected to find.
func indexedAnywhere(name, value string) bool {
	return isLetter(name) && indexedCompactly(name, value)
}

func isLetter(name string) bool {
	return len(name) == 1 && ('a' <= name[0]|0x20 && name[0]|0x20 <= 'z')
}

// looksFor: it looks for a value as text in the JSON of all tags. Odd is what may have been written in several ways.
func (p *profile) looksFor(odd string) {
	p.indexed = func(_, value string) bool { return inJSON(value, odd) != `"` }
	p.pattern = func(value string) string { return inJSON(value, odd) }
}

const (
	// oddInJSON is what encoding/json has not always written alike.
	oddInJSON = "\b\f"
	// escapedForHTML is what it writes as \u and four digits for the sake of HTML.
	escapedForHTML = "<>&\u2028\u2029"
	// longestPattern is how long a pattern may be: what is longer only takes longer to compare, and is cut.
	longestPattern = 256
)

// inJSON returns a pattern of LIKE for a value as encoding/json writes it, with the quotes around it, or for the
// longest part of it without what is odd: _ is any character, which an escaped one is not everywhere.
func inJSON(value, odd string) (longest string) {
	var b strings.Builder
	next := func() {
		if b.Len() > len(longest) {
			longest = b.String()
		}
		b.Reset()
	}
	b.WriteByte('"')
	for _, r := range value {
		if b.Len() > longestPattern {
			return b.String()
		}
		switch {
		case strings.ContainsRune(odd, r):
			next()
		case strings.ContainsRune("\"\\\n\r\t", r):
			b.WriteString("__")
		case r < ' ' || strings.ContainsRune(escapedForHTML, r):
			b.WriteString("______")
		default: // nothing has what is no text: utf8.RuneError is as good as any
			b.WriteRune(r)
		}
	}
	b.WriteByte('"')
	next()
	return longest
}

// indexedByPostgres: it keeps the values of tags with a name of one letter by themselves, and no other ones.
func indexedByPostgres(name, _ string) bool { return len(name) == 1 }

// textForPostgres replaces what is no text to it, which nothing has that it keeps, and over which it fails.
func textForPostgres(value string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(value, "\ufffd"), "\x00", "\ufffd")
}

// known reports whether anything is known of a kind of backend. One of which nothing is is taken for the worst, and would be read much for
// a client's question: it is asked just that.
func (p profile) known() bool { return p.compact || p.sorted }

// countsOnly reports whether what the backend counts for a filter is just what matches: and not all that has the same key, or looks alike.
func (p profile) countsOnly(f nostr.Filter) bool {
	tagged := false
	for _, values := range f.Tags {
		tagged = tagged || values != nil
	}
	if p.compact {
		return !tagged && f.Authors == nil && f.IDs == nil
	}
	return f.IDs == nil && !(tagged && p.alike)
}

// asked is a filter as the backend is asked it.
func (p profile) asked(f nostr.Filter) nostr.Filter {
	if p.pattern == nil || len(f.Tags) == 0 {
		return f
	}
	tags := make(nostr.TagMap, len(f.Tags))
	for name, values := range f.Tags {
		tags[name] = make([]string, len(values))
		for i, v := range values {
			tags[name][i] = p.pattern(v)
		}
	}
	f.Tags = tags
	return f
}

// latest is the last time that an event may have.
func (p profile) latest() nostr.Timestamp {
	if p.signed {
		return math.MaxInt32
	}
	return math.MaxUint32
}

// timely returns a filter without bounds that no event is beyond: badger and lmdb take what of a time fits
// 32 bits, and postgres fails over more than it has. It is false for one that no event is within.
func (p profile) timely(f nostr.Filter) (nostr.Filter, bool) {
	if f.Until != nil && *f.Until >= p.latest() {
		f.Until = nil
	}
	if f.Since != nil && *f.Since <= 0 {
		f.Since = nil
	}
	return f, (f.Until == nil || *f.Until >= 0) && (f.Since == nil || *f.Since < p.latest())
}

// excess has the lists of a filter that are to be shorter. Of those that are too long together all are in it.
func (p profile) excess(q nostr.Filter) (over nostr.Filter) {
	if size(q) > p.values {
		return p.lookedUp(q)
	}
	if p.lists.authors > 0 && len(q.Authors) > p.lists.authors {
		over.Authors = q.Authors
	}
	if p.lists.kinds > 0 && len(q.Kinds) > p.lists.kinds {
		over.Kinds = q.Kinds
	}
	if p.lists.tags > 0 && size(nostr.Filter{Tags: q.Tags}) > p.lists.tags {
		over.Tags = q.Tags
		return over
	}
	for name, values := range q.Tags {
		if p.lists.tag > 0 && len(values) > p.lists.tag {
			over.Tags = withTag(over.Tags, name, values)
		}
	}
	return over
}

// lookedUp is the part of a filter of which a backend looks up each combination of values by itself, at worst. What comes it
// holds against the rest. Those with compact events look up one tag, if there is one of which a value has few events.
func (p profile) lookedUp(q nostr.Filter) nostr.Filter {
	all := nostr.Filter{Kinds: q.Kinds, Authors: q.Authors, Tags: q.Tags}
	if !p.compact {
		return all
	}
	narrow := make(nostr.TagMap, len(q.Tags))
	for name, values := range q.Tags {
		if isNarrow(name) {
			narrow[name] = values
		}
	}
	if len(narrow) == 0 {
		return all
	}
	return nostr.Filter{Tags: narrow}
}

// narrowTags are the names of tags that badger and lmdb look up rather than authors and kinds.
const narrowTags = "eEqaAiIgrdhtlkK"

func isNarrow(name string) bool { return len(name) == 1 && strings.Contains(narrowTags, name) }

// lookUps is how many combinations of values a backend looks up for a filter, at worst.
func (p profile) lookUps(q nostr.Filter) int {
	if p.sorted {
		return 1
	}
	q = p.lookedUp(q)
	n := 1
	for _, values := range q.Tags {
		n = max(n, len(values))
	}
	return n * max(1, len(q.Authors)) * max(1, len(q.Kinds))
}

// fixed reports whether all tag values of a filter have index keys of one length,
// so that no other value can begin like them.
func fixed(f nostr.Filter) bool {
	for _, values := range f.Tags {
		for _, v := range values {
			if _, err := hex.DecodeString(v); err != nil || len(v) != 64 {
				return false
			}
		}
	}
	return true
}
