package eventstoreadapter

import (
	"errors"
	"fmt"

	"github.com/fiatjaf/eventstore"

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
	// ErrDeleted is returned by the methods of [Store.Backend] for events that a
	// stored deletion covers.
	ErrDeleted = errors.New("blocked: this event has been deleted")
)

// Config says how a backend is used. The zero Config is right for the backends of
// the eventstore module, whose limits are read from their fields.
type Config struct {
	// Reader is what is queried in place of the backend: a view of the same data
	// with other limits. Defaults to the backend.
	Reader eventstore.Store
	// PageSize is the most events asked for in one query. With a value above what
	// the backend really answers to one query, answers would be cut short unseen. Defaults to the backend's own MaxLimit or
	// QueryLimit, 100 where it has neither.
	PageSize int
	// MaxValues is the most values of all lists of one query together. Backends on
	// SQL databases refuse more. Defaults to 256 for badger, lmdb and slicestore, to what their fields say of
	// each list for SQL databases, and to 10 for others.
	MaxValues int
	// Serialize has at most one call to the backend run at a time, for backends
	// that can't be used concurrently. Always on for slicestore.
	Serialize bool
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

	fixed constants
}

// constants are the numbers about which no two operators would differ. Only tests have others.
type constants struct {
	// BatchSize is the most events that a query larger than a page asks for, of
	// backends that allow it. They are all in memory at once. Defaults to 16,384.
	BatchSize int
}

const (
	defaultBatchSize = 16_384
	defaultPageSize  = 100
	defaultMaxValues = 10
)

func (c Config) validate() error {
	var errs []error
	for _, f := range []struct {
		name  string
		value int
	}{{"PageSize", c.PageSize}, {"BatchSize", c.fixed.BatchSize}, {"MaxValues", c.MaxValues}} {
		if f.value < 0 {
			errs = append(errs, fmt.Errorf("Config.%s is %d, less than 0", f.name, f.value))
		}
	}
	return errors.Join(errs...)
}

func (c Config) withDefaults(backend eventstore.Store) Config {
	if c.Reader == nil {
		c.Reader = backend
	}
	if c.fixed.BatchSize == 0 {
		c.fixed.BatchSize = defaultBatchSize
	}
	return c
}
