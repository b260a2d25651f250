// Package backendcaps describes properties of storage backends that adapter/eventstore cannot see
// from their types.
package backendcaps

import (
	"reflect"
	"slices"
	"strings"

	"github.com/nbd-wtf/go-nostr"
)

// Describer is a backend that describes itself.
type Describer interface{ Caps() Caps }

// Caps are the properties of a kind of backend. The zero value is invalid.
type Caps struct {
	// Page is the maximum number of events per query, at least 1. Exempt, unless 0, is that of a
	// query that is marked as a reconciliation.
	Page, Exempt int
	// Memory reports that the backend is a slicestore: a full answer contains the newest matches
	// for any filter, since is exclusive, and calls must not be concurrent.
	Memory bool
	// Prefixes reports that answers for a tag value also contain events with values that begin with
	// it, out of order of time, and that since ends the search early.
	Prefixes bool
	// Uncounted reports that the backend must not count, because counting in lmdb never ends.
	Uncounted bool
	// Folder is the folder of a database that several processes can open, or "".
	Folder string
	// Indexed reports whether a query for a tag finds all events with the tag.
	Indexed func(name, value string) bool
	// Fits reports whether the backend can store an event unchanged.
	Fits func(e *nostr.Event) bool
}

// Find returns the backend that a value is, points to or embeds, and its package name, which must
// be in module and in kinds.
func Find(backend reflect.Value, module string, kinds ...string) (reflect.Value, string) {
	for backend.Kind() == reflect.Pointer || backend.Kind() == reflect.Interface {
		backend = backend.Elem()
	}
	if backend.Kind() != reflect.Struct {
		return reflect.Value{}, ""
	}
	if kind, ok := strings.CutPrefix(backend.Type().PkgPath(), module+"/"); ok && slices.Contains(kinds, kind) {
		return backend, kind
	}
	for i := range backend.NumField() {
		if !backend.Type().Field(i).Anonymous {
			continue
		}
		if v, kind := Find(backend.Field(i), module, kinds...); kind != "" {
			return v, kind
		}
	}
	return reflect.Value{}, ""
}
