package eventstoreadapter

import (
	"encoding/hex"
	"fmt"
	"math"
	"reflect"
	"strings"

	"github.com/fiatjaf/eventstore"
	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync/internal/traits"
)

// profile is what is known of a kind of backend. Backends other than slicestore keep events in a binary form with limits on
// sizes, and look up each combination of values by itself: only for one combination does a full answer hold the newest matches.
type profile struct {
	page   int // most events that one query gives
	exempt int // the same for reconciliation queries; 0 if they are no exception
	// memory: it is a slicestore. A full answer holds the newest matches, since is exclusive, and calls must not be concurrent.
	memory bool
	// prefixes: answers to a query for a tag value also hold events with values that
	// begin with it, neither in order of time, and since ends the search early.
	prefixes bool
	// folder is the folder of a database that lets several processes open it.
	folder string
	// uncounted: it is not to be asked to count. lmdb never comes to an end.
	uncounted bool
	// indexed reports whether a query for this tag finds all events that have it.
	indexed func(name, value string) bool
	// fits reports whether an event can be kept as it is, beyond the sizes of parts; nil if any can.
	fits func(e *nostr.Event) bool
}

// maxValues is the most values of all lists of one query.
const maxValues = 256

const module = "github.com/fiatjaf/eventstore"

// profileOf tells backends by the package of their type, so that no backend has to be linked in for it. A struct that embeds a
// backend is taken for that one.
func profileOf(backend eventstore.Store) (profile, error) {
	if b, ok := backend.(traits.Teller); ok {
		t := b.Traits()
		return profile{
			page: t.Page, exempt: t.Exempt, memory: t.Memory, prefixes: t.Prefixes, folder: t.Folder, indexed: t.Indexed, fits: t.Fits,
		}, nil
	}
	v, kind := traits.Find(reflect.ValueOf(backend), module, "badger", "lmdb", "slicestore")
	var p profile
	switch kind {
	default:
		return p, fmt.Errorf("%w: %T. Use badger, lmdb or slicestore of %s, or implement sync.Store and test that with package storetest",
			ErrUnsupported, backend, module)
	case "slicestore":
		p = profile{memory: true, indexed: func(string, string) bool { return true }}
	case "badger", "lmdb":
		p = profile{exempt: limitOf(v, "MaxLimitNegentropy"), prefixes: true, indexed: indexedCompactly}
		if kind == "lmdb" {
			p.uncounted, p.indexed, p.folder = true, indexedByLmdb, v.FieldByName("Path").String()
		}
	}
	if p.page = limitOf(v, "MaxLimit"); p.page <= 0 {
		return p, fmt.Errorf("%w: Init of %T was not called", ErrUnsupported, backend)
	}
	return p, nil
}

func limitOf(v reflect.Value, field string) int { return int(v.FieldByName(field).Int()) }

// longestIndexed is the longest tag value that badger and lmdb index.
const longestIndexed = 100

// indexedCompactly: badger and lmdb keep tags whose name is one byte, whichever.
func indexedCompactly(name, value string) bool {
	return len(name) == 1 && value != "" && len(value) <= longestIndexed
}

// indexedByLmdb: lmdb looks up p tags by kind, and not by time where there is none.
func indexedByLmdb(name, value string) bool { return name != "p" && indexedCompactly(name, value) }

// countsOnly reports whether what the backend counts for a filter is just what matches: and not all that has the same key.
func (p profile) countsOnly(f nostr.Filter) bool {
	if f.IDs != nil || p.memory {
		return f.IDs == nil
	}
	for _, values := range f.Tags {
		if values != nil {
			return false
		}
	}
	return f.Authors == nil
}

// latest is the last time that an event may have.
const latest = math.MaxUint32

// timely returns a filter without bounds that no event is beyond: badger and lmdb take what of a time fits
// 32 bits. It is false for one that no event is within.
func timely(f nostr.Filter) (nostr.Filter, bool) {
	if f.Until != nil && *f.Until >= latest {
		f.Until = nil
	}
	if f.Since != nil && *f.Since <= 0 {
		f.Since = nil
	}
	return f, (f.Until == nil || *f.Until >= 0) && (f.Since == nil || *f.Since < latest)
}

// excess has the lists of a filter that are to be shorter, because they are too long together.
func (p profile) excess(q nostr.Filter) nostr.Filter {
	if size(q) > maxValues {
		return p.lookedUp(q)
	}
	return nostr.Filter{}
}

// lookedUp is the part of a filter of which a backend looks up each combination of values by itself, at worst. What comes it
// holds against the rest. Those with compact events look up one tag, if there is one of which a value has few events.
func (p profile) lookedUp(q nostr.Filter) nostr.Filter {
	all := nostr.Filter{Kinds: q.Kinds, Authors: q.Authors, Tags: q.Tags}
	if p.memory {
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
	if p.memory {
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
