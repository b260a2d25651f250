package state

import (
	"context"
	"errors"
	"fmt"
	"iter"
)

// Sentinels that a [Store] wraps.
var (
	// ErrNotFound is returned by Get for a key without a value.
	ErrNotFound = errors.New("no value under this key")
	// ErrFull is returned by Put if the records do not fit into the bounds of the Store.
	// Nothing was changed; Delete makes room.
	ErrFull = errors.New("no room for this value")
	// ErrKey is returned by Get, Put and Delete for a key that is empty or longer than
	// [MaxKey]. Nothing was changed.
	ErrKey = errors.New("unusable key")
)

// MaxKey is the longest key, in bytes. The URL of a relay fits, with a prefix.
const MaxKey = 4096

// Record is a value and its key.
type Record struct {
	Key   string
	Value []byte
}

// Store stores values under keys.
//
// All methods may be called concurrently. If Put or Delete returns nil, the change is durable.
// An error that is no sentinel of this package leaves open whether the change was made; the
// Store does not retry.
//
// A value belongs to the caller before and after every call, because the Store copies it. An
// empty value is a value, and is returned as empty; nil is an empty value.
//
// With a context that is done, a method changes nothing and returns an error that wraps the
// error of the context. A Store has no Close: the program that opened it closes it, after all
// users have stopped. Calls after that return an error.
type Store interface {
	// Get returns the value of a key. The error wraps ErrNotFound if there is none.
	Get(ctx context.Context, key string) ([]byte, error)
	// Put stores records in place of those with the same keys: all of them or, with an
	// error, none. Of two records with one key the last one is stored.
	Put(ctx context.Context, records ...Record) error
	// Delete deletes the records of keys: all of them or, with an error, none. Keys without
	// a record are ignored.
	Delete(ctx context.Context, keys ...string) error
	// Each yields all records whose keys start with prefix, in ascending order of bytes; an
	// empty prefix yields all. A record that is neither created nor deleted during the
	// iteration is yielded once, others once or not at all. The body of the loop may call any method
	// of the Store. An error is the last pair. The sequence may be ranged over again.
	Each(ctx context.Context, prefix string) iter.Seq2[Record, error]
}

// CheckKey returns an error that wraps [ErrKey] unless key has 1 to [MaxKey] bytes.
func CheckKey(key string) error {
	if key == "" || len(key) > MaxKey {
		return fmt.Errorf("%w: %d bytes, want 1 to %d", ErrKey, len(key), MaxKey)
	}
	return nil
}

// check returns the first error of a context, keys, and the keys of records.
func check(ctx context.Context, keys []string, records []Record) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	for _, key := range keys {
		if err := CheckKey(key); err != nil {
			return err
		}
	}
	for _, r := range records {
		if err := CheckKey(r.Key); err != nil {
			return err
		}
	}
	return nil
}
