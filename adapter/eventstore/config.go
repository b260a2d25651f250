package eventstoreadapter

import (
	"errors"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/nip34"
	relaysync "github.com/graspsync/graspsync/sync"
)

// Sentinels that errors of a [Store] wrap.
var (
	// ErrIncomplete says that the backend could not be brought to answer a filter
	// provably completely. What was yielded before is right, and all but some of
	// seconds that hold more events than the backend gives.
	ErrIncomplete = relaysync.ErrIncomplete
	// ErrBackend says that the backend failed, panicked, or contradicted itself.
	ErrBackend = errors.New("event store backend failed")
	// ErrFilter says that a filter has a limit or a search.
	ErrFilter = errors.New("filter not supported")
	// ErrTooMuch says that a client's question would have more read than one may: more narrow ones have answers.
	ErrTooMuch = errors.New("too much would have to be read: ask for less")
	// ErrUnstorable is the reason for events that are refused: of an ephemeral kind,
	// malformed, or beyond what the backend can hold without changing them.
	ErrUnstorable = errors.New("event can't be stored")
	// ErrUnsupported is wrapped by the error of [New] for a backend that is not supported.
	ErrUnsupported = errors.New("event store backend not supported")
	// ErrDeleted is returned by the methods of [Store.Backend] for events that a
	// stored deletion covers.
	ErrDeleted = errors.New("blocked: this event has been deleted")
)

// Config says how a backend is used. Limits of backends are read from their fields.
type Config struct {
	// Identity is the service whose events these are. Requests to vanish (NIP-62)
	// are executed if they name it; with none, only those that name all relays are.
	Identity nip34.Identity
	// Removed, if set, is told each event that a deletion, a request to vanish or a newer
	// version has taken out of the backend, in Save, Execute and the methods of Backend.
	// It is called under locks: it must not call the Store and should only take note.
	Removed func(event graspsync.Event)
	// NoSync leaves out the call of the backend's Sync after each Save. What was
	// saved last is then lost with the machine's power.
	NoSync bool
}
