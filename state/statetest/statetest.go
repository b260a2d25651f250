// Package statetest is the suite that every [state.Store] must pass:
//
//	func TestStore(t *testing.T) {
//		statetest.Run(t, func(t *testing.T) state.Store { return mystore.New(t.TempDir()) })
//	}
//
// It looks at what the interface promises and at nothing else. That a store keeps
// its values over a restart is for the implementation's own tests.
package statetest

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/graspsync/graspsync/state"
)

// Run runs the suite, each part as a subtest with a Store of its own. open returns
// an empty Store that holds at least 1,000 keys and 8 MiB, and closes it with
// t.Cleanup where it needs closing.
func Run(t *testing.T, open func(t *testing.T) state.Store) {
	for _, c := range checks {
		t.Run(c.name, func(t *testing.T) {
			if err := c.run(t.Context(), open(t)); err != nil {
				t.Error(err)
			}
		})
	}
}

// check is a part of the suite. It returns what is wrong, so that the suite itself
// can be tested on stores that are broken on purpose.
type check struct {
	name string
	run  func(ctx context.Context, s state.Store) error
}

var checks = []check{
	{"Absent", absent},
	{"CreateAndGet", createAndGet},
	{"EmptyValue", emptyValue},
	{"LargeValue", largeValue},
	{"Swap", swap},
	{"Conflict", conflict},
	{"Delete", remove},
	{"VersionsAreNeverReused", versions},
	{"KeysAreBytes", keysAreBytes},
	{"KeyLimits", keyLimits},
	{"ValueIsolation", isolation},
	{"Keys", keys},
	{"KeysStopsEarly", keysStops},
	{"KeysDuringChange", keysDuringChange},
	{"ContextDone", contextDone},
	{"ContextDoneDuringKeys", contextDoneDuringKeys},
	{"ConcurrentCreate", concurrentCreate},
	{"ConcurrentSwap", concurrentSwap},
	{"ConcurrentCounter", concurrentCounter},
	{"ConcurrentDelete", concurrentDelete},
	{"ConcurrentKeys", concurrentKeys},
	{"Model", model},
}

// put creates or replaces whatever the key has.
func put(ctx context.Context, s state.Store, key string, value []byte) (state.Version, error) {
	_, old, err := s.Get(ctx, key)
	if err != nil && !errors.Is(err, state.ErrNotFound) {
		return state.Absent, fmt.Errorf("get %q: %w", key, err)
	}
	v, err := s.CompareAndSwap(ctx, key, old, value)
	if err != nil {
		return state.Absent, fmt.Errorf("write %q: %w", key, err)
	}
	return v, nil
}

// want reads a key and compares it with what it should be.
func want(ctx context.Context, s state.Store, key, value string, version state.Version) error {
	got, v, err := s.Get(ctx, key)
	switch {
	case err != nil:
		return fmt.Errorf("get %q: %w", key, err)
	case string(got) != value:
		return fmt.Errorf("get %q: value %.100q, want %.100q", key, got, value)
	case v != version:
		return fmt.Errorf("get %q: version %d, want %d", key, v, version)
	}
	return nil
}

// wantAbsent checks that a key has no value.
func wantAbsent(ctx context.Context, s state.Store, key string) error {
	value, v, err := s.Get(ctx, key)
	switch {
	case !errors.Is(err, state.ErrNotFound):
		return fmt.Errorf("get %q, which has no value: error %v, want ErrNotFound", key, err)
	case v != state.Absent || len(value) != 0:
		return fmt.Errorf("get %q, which has no value: value %.100q, version %d", key, value, v)
	}
	return nil
}

// wantErr checks that an error wraps the sentinel.
func wantErr(what string, err, sentinel error) error {
	if !errors.Is(err, sentinel) {
		return fmt.Errorf("%s: error %v, want one that wraps %q", what, err, sentinel)
	}
	return nil
}

// list collects the keys of a prefix.
func list(ctx context.Context, s state.Store, prefix string) ([]string, error) {
	var out []string
	for key, err := range s.Keys(ctx, prefix) {
		if err != nil {
			return out, fmt.Errorf("keys of %q: %w", prefix, err)
		}
		out = append(out, key)
	}
	return out, nil
}
