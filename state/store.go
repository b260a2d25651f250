package state

import (
	"context"
	"errors"
	"fmt"
	"iter"
)

// Sentinels that a [Store] wraps.
var (
	// ErrNotFound is returned by Get and Delete for a key that has no value.
	ErrNotFound = errors.New("no value under this key")
	// ErrConflict is returned by CompareAndSwap and Delete when the key has not
	// the version that was given. Nothing was changed.
	ErrConflict = errors.New("value was changed by somebody else")
	// ErrFull is returned by CompareAndSwap when the value does not fit into the
	// bounds of the Store. Nothing was changed; Delete makes room.
	ErrFull = errors.New("no room for this value")
	// ErrKey is returned by Get, CompareAndSwap and Delete for a key that is empty
	// or longer than [MaxKey].
	ErrKey = errors.New("unusable key")
)

// MaxKey is the longest key, in bytes. The URL of a relay fits, with a prefix.
const MaxKey = 4096

// Version tells one value of a key from all others that the key had or will have.
// A version is never used again in a Store, not even after a deletion and not by
// another key, so a reader that kept an old one can't be fooled. Versions say
// nothing of the order of writes.
type Version uint64

// Absent is the version of a key that has no value. No value has it.
const Absent Version = 0

// Store keeps values under keys.
//
// All methods may be called concurrently. For one key they are linearizable: of
// several CompareAndSwap calls with the same old version exactly one succeeds.
//
// When CompareAndSwap or Delete returns nil, the change is as durable as the
// implementation promises to make anything (a file-based one: on the disk); it has
// no later point at which it becomes so. An error that is none of the sentinels of
// this package leaves open whether the change was made: Get tells. The Store
// retries nothing.
//
// A value belongs to the caller before and after every call: the Store copies what
// it is given, and what it returns is a copy. An empty value is a value, and comes
// back empty; nil counts as empty.
//
// With a context that is done, a method returns an error that wraps the context's
// and changes nothing. A context that ends while a call is under way ends it as
// soon as that is possible without leaving half a change.
//
// A Store is closed by who opened it. Calls after that return an error.
type Store interface {
	// Get returns the value and its version, which is not Absent. It returns an
	// error that wraps ErrNotFound if there is none, with the version Absent.
	Get(ctx context.Context, key string) (value []byte, version Version, err error)
	// CompareAndSwap sets the value if the key has the version old, Absent meaning
	// that it must have none, and returns the new version. If it has another one,
	// or none, the error wraps ErrConflict.
	CompareAndSwap(ctx context.Context, key string, old Version, value []byte) (Version, error)
	// Delete removes the value if the key has the version old. If it has another
	// one, the error wraps ErrConflict; if it has none, ErrNotFound.
	Delete(ctx context.Context, key string, old Version) error
	// Keys yields every key that starts with prefix, in ascending order of bytes; an
	// empty prefix yields all. A key that has a value from beginning to end of the
	// iteration comes exactly once; one that is created or removed meanwhile comes
	// once or not at all. The body of the loop may call any method of the Store. An
	// error is the last pair, with an empty key. The sequence may be ranged over
	// again, and then starts anew.
	Keys(ctx context.Context, prefix string) iter.Seq2[string, error]
}

// CheckKey returns an error that wraps [ErrKey] unless key has 1 to [MaxKey] bytes.
// Implementations of [Store] call it first.
func CheckKey(key string) error {
	if key == "" || len(key) > MaxKey {
		return fmt.Errorf("%w: %d bytes, not 1 to %d", ErrKey, len(key), MaxKey)
	}
	return nil
}
