package sync

import (
	"context"
	"errors"
	"iter"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
)

// Sentinels that the errors of a [Store] wrap.
var (
	// ErrIncomplete is wrapped by the error with which [Store.Stamps] and [Store.Events]
	// end where a Store has yielded all that it could read, and may have more: a backend
	// or a relay that gives so many events of one second and no others.
	ErrIncomplete = errors.New("not all that is stored could be read")
	// ErrCannotRemove is wrapped by what [Store.Remove] of a Store returns that removes
	// no event whatever.
	ErrCannotRemove = errors.New("the store can't remove events")
)

// Store is where our relay keeps its events. Package memstore is the smallest
// one, package adapter/eventstore wraps the backends of fiatjaf/eventstore, and
// package storetest is the suite that any Store must pass.
//
// All methods may be called concurrently, by us and by the relay that serves
// clients, and by whoever reads from an iterator while it does: no lock is held while one yields. What
// is saved and removed meanwhile may be among what it yields or not, all else is. Each returns an
// error when its context has ended. Filters never carry a limit or a search; their ids, authors and hex
// tag values are well-formed.
//
// A relay that has subscribers sends them, from its Save, what becomes Stored: nobody else tells it of each event
// that sync brings ([Config].Observe may drop some).
//
// What is asked for, each of which is worth an index: ids; kinds; authors, with kinds and without, as all deletions
// of an author; values of the tags a, A, e, E and q, up to 100 at a time, with kinds and without; and values of
// the tag d with a kind, of one author or of all.
type Store interface {
	// Save stores events, each according to its kind: of replaceable and
	// addressable events only the newest is kept, at equal created_at the one with
	// the lowest id (NIP-01; otherwise reconciliation never converges). A kind 5
	// is kept and executed: what it names, by the same author and not newer for
	// addresses, is removed, and never stored again (NIP-09). Older versions of an address are
	// removed, and never stored, with a version that a deletion names by its id, whether the
	// deletion or the version was saved first. A kind 62 that names
	// the service which the Store belongs to, or all relays, is kept for good, and
	// everything else by its author that is not newer is removed, deletions included,
	// and never stored again (NIP-62). What is never stored again [nip34.Tombstones] tells. Save returns one
	// Outcome for each event, in order; what is reported Stored or Duplicate is
	// durable. Save keeps no reference to the slice but may keep the events, which
	// nobody changes any more. An Event that is none, or that nobody has parsed, is
	// Refused with an error that wraps [graspsync.ErrEvent]. An error that befell single events is in their
	// Outcome; an error of Save means that nothing is known about any of them, and
	// they may be saved again.
	Save(ctx context.Context, events []graspsync.Incoming) ([]graspsync.Outcome, error)
	// Has reports for each id, in order, whether an event with it is stored.
	Has(ctx context.Context, ids []graspsync.EventID) ([]bool, error)
	// Stamps yields id and time of every stored event that matches, each once, in
	// any order: all of them, or an error as the last pair.
	Stamps(ctx context.Context, filter nostr.Filter) iter.Seq2[graspsync.Stamp, error]
	// Events yields every stored event that matches, under the same rules. What
	// it yields must not be changed.
	Events(ctx context.Context, filter nostr.Filter) iter.Seq2[graspsync.Event, error]
	// Deleted reports whether a deletion or a request to vanish that is stored covers
	// the event, whether or not the event was ever here. Of the event only kind, id,
	// author, time and d tag count.
	Deleted(ctx context.Context, event graspsync.Event) (bool, error)
	// Remove takes an event out of the Store, durably, without a deletion: it may come again.
	// One that is not there is no error. Whoever else has to know is told by the Store. One
	// that can't remove, since others decide what is stored, returns an error that wraps
	// [ErrCannotRemove], and is not asked again: announcements that were stored since they
	// were listed then stay when nobody lists them any more, and who lists others in turn
	// has any number stored.
	Remove(ctx context.Context, event graspsync.Event) error
}
