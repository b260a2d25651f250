package eventstoreadapter

import (
	"encoding/hex"
	"reflect"
	"strings"

	"github.com/fiatjaf/eventstore"
	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync/internal/traits"
)

// profile is what is known of a kind of backend.
type profile struct {
	page   int // most events that one query gives
	exempt int // the same for reconciliation queries; 0 if they are no exception
	values int // most values of all lists together
	// sorted: an answer that is full holds the newest matches, whatever the filter.
	// Without it that is only so for a filter with one value in each list.
	sorted bool
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
	// indexed reports whether a query for this tag finds all events that have it.
	indexed func(name, value string) bool
	// fits reports whether an event can be kept as it is, beyond what compact says; nil if any can.
	fits func(e *nostr.Event) bool
}

const modulePath = "github.com/fiatjaf/eventstore/"

// profileOf tells backends by the package of their type, so that no backend has to
// be linked in for it. A backend that an embedder wrapped in a type of its own is
// taken for the worst of all.
func profileOf(backend eventstore.Store) profile {
	if b, ok := backend.(traits.Teller); ok {
		t := b.Traits()
		return profile{
			page: t.Page, exempt: t.Exempt, values: t.Values, sorted: t.Sorted, trusted: t.Trusted, prefixes: t.Prefixes,
			exclusive: t.Exclusive, serialize: t.Serialize, compact: t.Compact, indexed: t.Indexed, fits: t.Fits,
		}
	}
	v := reflect.Indirect(reflect.ValueOf(backend))
	name, known := strings.CutPrefix(v.Type().PkgPath(), modulePath)
	p := profile{
		page: defaultPageSize, values: defaultMaxValues,
		prefixes: true, exclusive: true, indexed: indexedByBadger,
	}
	if !known || v.Kind() != reflect.Struct {
		return p
	}
	switch name {
	case "badger", "lmdb":
		p = profile{
			page: limit(v, "MaxLimit"), exempt: limit(v, "MaxLimitNegentropy"), values: 256,
			trusted: true, prefixes: true, compact: true, indexed: indexedByBadger,
		}
	case "slicestore":
		p = profile{
			page: limit(v, "MaxLimit"), values: 256, sorted: true, trusted: true,
			exclusive: true, serialize: true, indexed: func(string, string) bool { return true },
		}
	case "sqlite3", "postgresql", "mysql":
		p = profile{
			page: limit(v, "QueryLimit"), values: defaultMaxValues, sorted: true,
			cancel: true, indexed: indexedBySQL,
		}
	}
	if p.page <= 0 { // Init was not called
		p.page, p.trusted = defaultPageSize, false
	}
	return p
}

func limit(v reflect.Value, field string) int {
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

func indexedByBadger(name, value string) bool {
	return isLetter(name) && value != "" && len(value) <= longestIndexed
}

func isLetter(name string) bool {
	return len(name) == 1 && ('a' <= name[0]|0x20 && name[0]|0x20 <= 'z')
}

// indexedBySQL: these look for the value as text in the JSON of all tags, so that
// it must be written there as it is, and must not mean anything to LIKE.
func indexedBySQL(_, value string) bool {
	if value == "" {
		return false
	}
	for i := range len(value) {
		c := value[i]
		if c < ' ' || c > '~' || strings.IndexByte(`"\%<>&`, c) >= 0 {
			return false
		}
	}
	return true
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
