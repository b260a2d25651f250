package state

import (
	"context"
	"errors"
	"fmt"
	"iter"
)

// Errors of a [Store].
var (
	// ErrFull is returned by Put if the records exceed the limits of the Store. Nothing was
	// changed.
	ErrFull = errors.New("the store is full")
	// ErrKey is returned for a key that is empty or longer than [MaxKey]. Nothing was changed.
	ErrKey = errors.New("unusable key")
)

// MaxKey is the maximum length of a key, in bytes. It suffices for the URL of a relay.
const MaxKey = 4096

// Record is a key with its value.
type Record struct {
	Key   string
	Value []byte
}

// Store is a key-value store.
//
// All methods may be called concurrently. Changes are durable when Put or Delete returns nil. After
// an error that is not one of this package, the change may have been made. The Store copies values.
// Empty and nil values are equal, and are stored.
//
// If the context has ended, a method changes nothing and wraps its error. The program that opened a
// Store closes it. Later calls return an error.
type Store interface {
	// Put stores or replaces records, all or none. If two have the same key, the last is stored.
	Put(ctx context.Context, records ...Record) error
	// Delete deletes the records of keys, all or none. Keys without a record are ignored.
	Delete(ctx context.Context, keys ...string) error
	// Each yields all records whose keys start with prefix, in byte order. Records that are created
	// or deleted during the loop are yielded once or not at all. The loop may call any method of
	// the Store. After an error nothing follows. The sequence can be used again.
	Each(ctx context.Context, prefix string) iter.Seq2[Record, error]
}

// CheckKey returns an error that wraps [ErrKey] unless key has 1 to [MaxKey] bytes.
func CheckKey(key string) error {
	if key == "" || len(key) > MaxKey {
		return fmt.Errorf("%w: %d bytes, want 1 to %d", ErrKey, len(key), MaxKey)
	}
	return nil
}

func checkArgs(ctx context.Context, keys []string, records []Record) error {
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
