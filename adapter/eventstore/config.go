package eventstoreadapter

import (
	"errors"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/nip34"
	relaysync "github.com/graspsync/graspsync/sync"
)

// Errors that errors of a [Store] wrap.
var (
	// ErrIncomplete means that the backend returned only a part of the events of some second.
	ErrIncomplete = relaysync.ErrIncomplete
	// ErrBackend means that the backend failed, panicked, or contradicted itself.
	ErrBackend = errors.New("event store backend failed")
	// ErrFilter means that a filter has a limit or a search.
	ErrFilter = errors.New("filter not supported")
	// ErrTooMuch means that a client's question would read too many events.
	ErrTooMuch = errors.New("too many events match, use a narrower filter")
	// ErrUnstorable is the reason for refused events, which the backend would not store unchanged.
	ErrUnstorable = errors.New("event can't be stored")
	// ErrUnsupported means that the backend is not supported.
	ErrUnsupported = errors.New("event store backend not supported")
)

// Config is the settings of a [Store].
type Config struct {
	// Identity is the service that requests to vanish (NIP-62) name.
	Identity nip34.Identity
	// Removed follows each removal by Save or Execute. It must not call the Store.
	Removed func(event graspsync.Event)
	// Hides reports whether an event is not served to clients. Calls can be concurrent.
	Hides func(event graspsync.Event) bool
	// NoSync omits the backend's Sync. A power failure then loses the last events.
	NoSync bool
}
