// Package traits is how a backend tells adapter/eventstore what is known of its kind, where
// that can't be seen from its type.
package traits

import "github.com/nbd-wtf/go-nostr"

// Teller is a backend that says what it is like.
type Teller interface{ Traits() Traits }

// Traits are what is known of a kind of backend. The zero Traits are of no use: nothing is indexed.
type Traits struct {
	// Page is how many events one query is asked for, more than 0, and Exempt for how many
	// it may be asked in a query that is marked as a reconciliation; 0 if for no more.
	Page, Exempt int
	// Values bounds the values of all lists of one query together.
	Values int
	// Sorted: an answer that is full holds the newest matches, whatever the filter. Without
	// it that is only so for a filter with one value in each list.
	Sorted bool
	// Trusted: an answer with fewer events than were asked for is all there is.
	Trusted bool
	// Compact: events are kept in a binary form with counts and sizes of 16 bits, and found by
	// a part of an id or a tag's value.
	Compact bool
	// Exclusive: since may be taken as exclusive.
	Exclusive bool
	// Prefixes: answers to a query for a tag value also hold events with values that
	// begin with it, neither in order of time, and since ends the search early.
	Prefixes bool
	// Folder is the folder of a database that lets several processes open it, "" for others.
	Folder string
	// Serialize: it can't be called concurrently.
	Serialize bool
	// Indexed reports whether a query for this tag finds all events that have it.
	Indexed func(name, value string) bool
	// Fits reports whether an event can be kept as it is.
	Fits func(e *nostr.Event) bool
}
