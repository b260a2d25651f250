package eventstoreadapter

import (
	"encoding/hex"
	"fmt"
	"math"
	"reflect"

	"github.com/fiatjaf/eventstore"
	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync/internal/backendcaps"
)

const module = "github.com/fiatjaf/eventstore"

// traitsOf recognizes a backend by the package of its type, so that no backend is linked.
func traitsOf(backend eventstore.Store) (t backendcaps.Caps, err error) {
	if b, ok := backend.(backendcaps.Describer); ok {
		return b.Caps(), nil
	}
	v, kind := backendcaps.Find(reflect.ValueOf(backend), module, "badger", "lmdb", "slicestore")
	switch kind {
	default:
		return t, fmt.Errorf("%w: %T. Use badger, lmdb or slicestore of %s, or implement sync.Store and test that with package storetest",
			ErrUnsupported, backend, module)
	case "slicestore":
		t = backendcaps.Caps{Memory: true, Indexed: func(string, string) bool { return true }}
	case "badger":
		t = backendcaps.Caps{Prefixes: true, Indexed: indexedByMost}
	case "lmdb":
		t = backendcaps.Caps{Prefixes: true, Uncounted: true, Indexed: indexedByLmdb, Folder: v.FieldByName("Path").String()}
	}
	most := v.FieldByName("MaxLimit")
	if t.Page = int(most.Int()); t.Page <= 0 {
		return t, fmt.Errorf("%w: Init of %T was not called", ErrUnsupported, backend)
	}
	if kind != "slicestore" {
		most = v.FieldByName("MaxLimitNegentropy")
	}
	if most.CanSet() { // a second may have more events than an answer
		most.SetInt(max(most.Int(), maxSecond))
	}
	t.Exempt = int(most.Int())
	return t, nil
}

// longestIndexed is the maximum length of a tag value in the indexes of badger and lmdb.
const longestIndexed = 100

// indexedByMost reports whether a tag has a one-letter name and a value of 1 to 100 bytes.
func indexedByMost(name, value string) bool {
	return len(name) == 1 && value != "" && len(value) <= longestIndexed
}

// indexedByLmdb is indexedByMost without p tags, which lmdb sorts by kind.
func indexedByLmdb(name, value string) bool { return name != "p" && indexedByMost(name, value) }

const latest = math.MaxUint32

// timely removes bounds beyond 32 bits, which badger and lmdb truncate. false: no event matches.
func timely(f nostr.Filter) (nostr.Filter, bool) {
	if f.Until != nil && *f.Until >= latest {
		f.Until = nil
	}
	if f.Since != nil && *f.Since <= 0 {
		f.Since = nil
	}
	return f, (f.Until == nil || *f.Until >= 0) && (f.Since == nil || *f.Since < latest)
}

// fixed reports whether all tag values have index keys of one length.
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
