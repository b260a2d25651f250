package sync

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync/filters"
)

// ErrIncomplete is wrapped by the error with which [Store.Stamps] and [Store.Events]
// end where a Store has yielded all that it could read, and may have more: a backend
// or a relay that gives so many events of one second and no others.
var ErrIncomplete = errors.New("not all that is stored could be read")

// Store is where our relay keeps its events. Package memstore is the smallest
// one, package adapter/eventstore wraps the backends of fiatjaf/eventstore, and
// package storetest is the suite that any Store must pass.
//
// All methods may be called concurrently, by us and by the relay that serves
// clients. Each returns an error when its context has ended. Filters never carry a limit or a search; their ids, authors and hex
// tag values are well-formed.
type Store interface {
	// Save stores events, each according to its kind: of replaceable and
	// addressable events only the newest is kept, at equal created_at the one with
	// the lowest id (NIP-01; otherwise reconciliation never converges). A kind 5
	// is kept and executed: what it names, by the same author and not newer for
	// addresses, is removed, and never stored again (NIP-09). A kind 62 that names
	// the service which the Store belongs to, or all relays, is kept for good, and
	// everything else by its author that is not newer is removed, deletions included,
	// and never stored again (NIP-62). Save returns one
	// Outcome for each event, in order; what is reported Stored or Duplicate is
	// durable. Save keeps no reference to the slice but may keep the events, which
	// nobody changes any more. An error that befell single events is in their
	// Outcome; an error of Save means that nothing is known about any of them, and
	// they may be saved again.
	Save(ctx context.Context, events []Incoming) ([]Outcome, error)
	// Has reports for each id, in order, whether an event with it is stored.
	Has(ctx context.Context, ids []filters.EventID) ([]bool, error)
	// Stamps yields id and time of every stored event that matches, each once, in
	// any order: all of them, or an error as the last pair.
	Stamps(ctx context.Context, filter nostr.Filter) iter.Seq2[Stamp, error]
	// Events yields every stored event that matches, under the same rules. What
	// it yields must not be changed.
	Events(ctx context.Context, filter nostr.Filter) iter.Seq2[*nostr.Event, error]
	// Deleted reports whether a deletion or a request to vanish that is stored covers
	// the event, whether or not the event was ever here. Of the event only kind, id,
	// author, time and d tag count.
	Deleted(ctx context.Context, event *nostr.Event) (bool, error)
}

// Remover is what a [Store] may be as well. Without it an announcement that was stored since it
// was listed stays when nobody lists it any more: who lists others in turn has any number stored.
type Remover interface {
	// Remove takes an event out of the Store, durably, without a deletion: it may come again.
	// One that is not there is no error. Whoever else has to know is told by the Store.
	Remove(ctx context.Context, event *nostr.Event) error
}

// Stamp is what reconciliation needs to know of an event.
type Stamp struct {
	CreatedAt nostr.Timestamp // seconds, Unix time
	ID        filters.EventID
}

// Incoming is an event on its way into a [Store], with where it came from.
type Incoming struct {
	Event  *nostr.Event
	Source Source
}

// Outcome says what became of an event in [Store.Save].
type Outcome struct {
	Result Result
	// Err says why, for Refused and Failed.
	Err error
}

// Result is the kind of an [Outcome].
type Result uint8

// What a Store can do with an event. The zero Result is not a valid answer.
const (
	// Stored: it is new here and now durable.
	Stored Result = iota + 1
	// Duplicate: it was here already.
	Duplicate
	// Superseded: a newer version of it is here. It was not stored.
	Superseded
	// Deleted: a deletion that is here covers it. It was not stored.
	Deleted
	// Refused: the store does not want this event, now or later.
	Refused
	// Failed: it could not be stored; the next attempt may succeed.
	Failed
)

// String returns the name of the result in lower case.
func (r Result) String() string {
	switch r {
	case Stored:
		return "stored"
	case Duplicate:
		return "duplicate"
	case Superseded:
		return "superseded"
	case Deleted:
		return "deleted"
	case Refused:
		return "refused"
	case Failed:
		return "failed"
	}
	return fmt.Sprintf("result(%d)", uint8(r))
}

// Source says where an event came from. The zero value is a direct submission.
type Source struct {
	Kind SourceKind
	// Relay that the event was read from; zero for a direct submission.
	Relay filters.RelayURL
}

// SourceKind is the way by which an event came.
type SourceKind uint8

// The ways by which events come.
const (
	// Direct: a client of our relay submitted it.
	Direct SourceKind = iota
	// Live: it came on a standing subscription.
	Live
	// CatchUp: it was fetched as history.
	CatchUp
	// Daily: it was fetched by the daily pass over history.
	Daily
)

// String returns the name of the kind as the metrics label "source" has it.
func (k SourceKind) String() string {
	switch k {
	case Direct:
		return "direct"
	case Live:
		return "live"
	case CatchUp:
		return "catchup"
	case Daily:
		return "daily"
	}
	return fmt.Sprintf("source(%d)", uint8(k))
}
