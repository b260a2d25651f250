// Package traits is how a backend tells adapter/eventstore what is known of its kind, where
// that can't be seen from its type.
package traits

import (
	"reflect"
	"slices"
	"strings"

	"github.com/nbd-wtf/go-nostr"
)

// Teller is a backend that says what it is like.
type Teller interface{ Traits() Traits }

// Traits are what is known of a kind of backend. The zero Traits are of no use: nothing is indexed.
type Traits struct {
	// Page is how many events one query is asked for, more than 0, and Exempt for how many
	// it may be asked in a query that is marked as a reconciliation; 0 if for no more.
	Page, Exempt int
	// Memory: it is a slicestore. A full answer holds the newest matches, whatever the filter, since is
	// exclusive, and calls must not be concurrent. Other backends keep events in a binary form with
	// counts and sizes of 16 bits, and look up each combination of values by itself.
	Memory bool
	// Prefixes: answers to a query for a tag value also hold events with values that
	// begin with it, neither in order of time, and since ends the search early.
	Prefixes bool
	// Uncounted: it is not to be asked to count. lmdb never comes to an end.
	Uncounted bool
	// Folder is the folder of a database that lets several processes open it, "" for others.
	Folder string
	// Indexed reports whether a query for this tag finds all events that have it.
	Indexed func(name, value string) bool
	// Fits reports whether an event can be kept as it is.
	Fits func(e *nostr.Event) bool
}

// Find returns the backend of a package of a module that a value is, points to or embeds, and the name of the package. It
// returns the zero Value unless the package is one of kinds.
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
