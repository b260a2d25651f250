package sync

import (
	"context"
	"errors"
	"iter"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
)

// Errors that a [Store] wraps.
var (
	// ErrIncomplete is wrapped by the last error of [Store.Keys] and [Store.Events] if a Store
	// yielded everything that it could read and may contain more.
	ErrIncomplete = errors.New("reading the store ended early")
	// ErrCannotRemove is wrapped by the error of [Store.Remove] if the Store can never remove an
	// event.
	ErrCannotRemove = errors.New("the store can't remove events")
)

// A Store contains the events of a relay. Package memstore is the smallest implementation, package
// adapter/eventstore wraps the backends of fiatjaf/eventstore. Package storetest tests a Store.
//
// All methods may be called concurrently. A Store must not hold a lock while it yields, because the
// caller may call other methods. An event that is saved or removed during an iteration may or may
// not be yielded. Every method returns an error when its context has ended. Filters contain neither
// limit nor search.
//
// A relay with subscribers must send them each event that becomes [graspsync.Stored] from its Save.
//
// These queries are frequent and deserve an index: ids; kinds; authors, with or without kinds;
// values of the tags a, A, e, E and q, up to 100 in a filter, with or without kinds; values of the
// tag d with a kind, for one author or for all.
type Store interface {
	// Save stores events according to their kinds.
	//
	// Of replaceable and addressable events it keeps only the newest, and at equal created_at the
	// one with the lowest id (NIP-01). Otherwise reconciliation never converges.
	//
	// It stores and applies an event of kind 5 (NIP-09): it removes the events that the deletion
	// names, if they are by the same author and, for addresses, not newer. They are never stored
	// again. If a deletion names a version of an address by its id, older versions are removed too
	// and never stored again, in any order of arrival.
	//
	// It stores an event of kind 62 forever if it names this relay or all relays (NIP-62). It
	// removes all other events of the author that are not newer, deletions included, and never
	// stores them again. [nip34.Tombstones] computes the events that are never stored again.
	//
	// Save returns one Outcome for each event, in the same order. An event that is reported Stored
	// or Duplicate is durable. Save must not retain the slice, but may retain the events. The
	// Outcome of an Event that is zero or was not parsed is Refused, with an error that wraps
	// [graspsync.ErrEvent]. If Save itself returns an error, the caller may save the events again.
	Save(ctx context.Context, events []graspsync.Incoming) ([]graspsync.Outcome, error)
	// Has reports for each id, in the same order, whether the event is stored.
	Has(ctx context.Context, ids []graspsync.EventID) ([]bool, error)
	// Keys yields created_at and id of every stored event that matches, each once, in any order.
	// If it cannot yield all of them, the last pair has an error.
	Keys(ctx context.Context, filter nostr.Filter) iter.Seq2[graspsync.EventKey, error]
	// Events yields every stored event that matches, under the same rules. The caller must not
	// change the events.
	Events(ctx context.Context, filter nostr.Filter) iter.Seq2[graspsync.Event, error]
	// Deleted reports whether a stored deletion or request to vanish covers the event, even if it
	// was never stored. It depends only on kind, id, author, created_at and d tag.
	Deleted(ctx context.Context, event graspsync.Event) (bool, error)
	// Remove removes an event durably, without a deletion, so the event may be stored again.
	// Removing an event that is not stored is no error.
	//
	// A Store that cannot remove returns an error that wraps [ErrCannotRemove]. Remove is for
	// moderation. The manager does not call it.
	Remove(ctx context.Context, event graspsync.Event) error
}
