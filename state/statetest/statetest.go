// Package statetest is the test suite for every [state.Store]:
//
//	func TestStore(t *testing.T) {
//		statetest.Run(t, func(t *testing.T) state.Store { return mystore.New(t.TempDir()) })
//	}
//
// It does not test that records survive a restart.
package statetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/graspsync/graspsync/state"
)

// Run tests a Store. Each part is a subtest with its own Store. open returns an empty Store with
// room for at least 1,000 records and 8 MiB, and closes it with t.Cleanup.
func Run(t *testing.T, open func(t *testing.T) state.Store) {
	for _, c := range checks {
		t.Run(c.name, func(t *testing.T) {
			if err := c.run(t.Context(), open(t)); err != nil {
				t.Error(err)
			}
		})
	}
}

// check is a part of the suite. It returns the first failure, so that tests can run the suite on
// broken stores.
type check struct {
	name string
	run  func(ctx context.Context, s state.Store) error
}

var checks = []check{
	{"Model", model},
	{"ValueIsolation", isolation},
	{"Each", each},
	{"EachDuringChange", eachDuringChange},
	{"ContextDone", contextDone},
	{"Concurrent", concurrent},
}

// get returns the value of a key, or nil.
func get(ctx context.Context, s state.Store, key string) ([]byte, error) {
	for r, err := range s.Each(ctx, key) {
		if err != nil || r.Key == key {
			return r.Value, err
		}
	}
	return nil, nil
}

// want compares the records with a prefix.
func want(ctx context.Context, s state.Store, prefix string, pairs map[string]string) error {
	got := make(map[string]string)
	last := ""
	for r, err := range s.Each(ctx, prefix) {
		if err != nil {
			return fmt.Errorf("each of %.50q: %w", prefix, err)
		}
		if r.Key <= last && len(got) > 0 {
			return fmt.Errorf("each of %.50q: %.50q after %.50q", prefix, r.Key, last)
		}
		got[r.Key], last = string(r.Value), r.Key
	}
	if !maps.Equal(got, pairs) {
		return fmt.Errorf("each of %.50q: %d records, want %d: %.1000q instead of %.1000q", prefix, len(got), len(pairs), got, pairs)
	}
	return nil
}

// oddKeys are keys that break a store that uses them in paths, lines or patterns.
var oddKeys = []string{
	"/", "//", "a/b", "a/b/", "../a", ".", "..", " ", "a b", "a\nb", "a\tb", "a\x00b", "\x00", "a\x00",
	"\xff\xfe", "\xff", "A", "a", "é", "e\u0301", "%2e", "*", "a*", "?", "[a]", "con", "-rf", "'", `"`, `\`,
	"health/wss://relay.example.com/päth?x=y", strings.Repeat("x", state.MaxKey),
}

// model compares the store with a map under random operations. Some batches name a key twice, and
// some contain an unusable key.
func model(ctx context.Context, s state.Store) error {
	rng := rand.New(rand.NewPCG(1, 2))
	twin := make(map[string]string)
	unusable := []string{"", strings.Repeat("x", state.MaxKey+1)}
	for i := range 400 {
		keys := make([]string, rng.IntN(5))
		for j := range keys {
			keys[j] = oddKeys[rng.IntN(len(oddKeys))]
		}
		var expected error
		if rng.IntN(5) == 0 {
			keys, expected = append(keys, unusable[rng.IntN(2)]), state.ErrKey
		}
		after := maps.Clone(twin)
		deletes := rng.IntN(3) == 0
		var records []state.Record
		for j, key := range keys {
			value := []string{"", "one", "\x00", strings.Repeat("\x00\xff\n\"", 1+i%9*10_000)}[rng.IntN(4)] + fmt.Sprint(j)[:rng.IntN(2)]
			records = append(records, state.Record{Key: key, Value: []byte(value)})
			if after[key] = value; deletes {
				delete(after, key)
			}
		}
		var err error
		if deletes {
			err = s.Delete(ctx, keys...)
		} else {
			err = s.Put(ctx, records...)
		}
		if !errors.Is(err, expected) {
			return fmt.Errorf("step %d: put or delete of %.200q: %w, want %v", i, keys, err, expected)
		}
		if expected == nil {
			twin = after
		}
		if err := wantSome(ctx, s, twin, oddKeys[rng.IntN(len(oddKeys))]); err != nil {
			return fmt.Errorf("step %d: %w", i, err)
		}
	}
	return nil
}

// wantSome compares the records with a prefix, and all records, with those of twin.
func wantSome(ctx context.Context, s state.Store, twin map[string]string, prefix string) error {
	some := maps.Clone(twin)
	maps.DeleteFunc(some, func(key, _ string) bool { return !strings.HasPrefix(key, prefix) })
	return errors.Join(want(ctx, s, prefix, some), want(ctx, s, "", twin))
}

func isolation(ctx context.Context, s state.Store) error {
	given := []byte("one")
	if err := s.Put(ctx, state.Record{Key: "a", Value: given}); err != nil {
		return err
	}
	copy(given, "XXX")
	got, err := get(ctx, s, "a")
	if err != nil || string(got) != "one" {
		return fmt.Errorf("the caller changed a value that it had put: %q, %w", got, err)
	}
	copy(got, "YYY")
	_ = append(got, "ZZZ"...)
	if got, err = get(ctx, s, "a"); err != nil || string(got) != "one" {
		return fmt.Errorf("the caller changed a value that it had read: %q, %w", got, err)
	}
	if err := s.Put(ctx, state.Record{Key: "a", Value: []byte("two")}); err != nil {
		return err
	}
	if string(got) != "one" {
		return fmt.Errorf("a put changed a value that an earlier get had returned: %q", got)
	}
	return nil
}

func fill(ctx context.Context, s state.Store, prefix string, n int) (map[string]string, error) {
	pairs := make(map[string]string, n)
	records := make([]state.Record, n)
	for i := range n {
		records[i] = state.Record{Key: fmt.Sprintf("%s%04d", prefix, i), Value: []byte("v")}
		pairs[records[i].Key] = "v"
	}
	return pairs, s.Put(ctx, records...)
}

func each(ctx context.Context, s state.Store) error {
	if _, err := fill(ctx, s, "a/", 100); err != nil {
		return err
	}
	sequence := s.Each(ctx, "")
	for range 2 { // the sequence can be ranged over again and left early
		n := 0
		for r, err := range sequence {
			if err != nil || r.Key != fmt.Sprintf("a/%04d", n) {
				return fmt.Errorf("record %d: %q, %w", n, r.Key, err)
			}
			if n++; n == 3 {
				break
			}
		}
	}
	return s.Put(ctx, state.Record{Key: "a/new"}) // leaving a range must release its locks
}

func eachDuringChange(ctx context.Context, s state.Store) error {
	if _, err := fill(ctx, s, "a/", 100); err != nil {
		return err
	}
	// The loop creates records on both sides and deletes every other record. A store that iterates
	// under a lock or over changing records would hang or not end.
	done := make(chan error, 1)
	seen := make(map[string]int)
	go func() { done <- churn(ctx, s, seen) }()
	select {
	case err := <-done:
		if err != nil {
			return err
		}
	case <-time.After(time.Minute):
		return errors.New("an iteration whose loop changes the store does not end")
	}
	for i := range 100 {
		if n := seen[fmt.Sprintf("a/%04d", i)]; n > 1 || i%2 == 0 && n != 1 {
			return fmt.Errorf("record %d was yielded %d times", i, n)
		}
	}
	return nil
}

func churn(ctx context.Context, s state.Store, seen map[string]int) error {
	n := 0
	for r, err := range s.Each(ctx, "a/") {
		if err != nil {
			return err
		}
		seen[r.Key]++
		if n < 100 {
			err := s.Put(ctx, state.Record{Key: fmt.Sprintf("a/!%04d", n)}, state.Record{Key: fmt.Sprintf("a/~%04d", n)})
			if n%2 == 1 {
				err = errors.Join(err, s.Delete(ctx, fmt.Sprintf("a/%04d", n)))
			}
			if err != nil {
				return err
			}
		}
		n++
	}
	return nil
}

func contextDone(ctx context.Context, s state.Store) error {
	pairs, err := fill(ctx, s, "a/", 100)
	if err != nil {
		return err
	}
	done, cancel := context.WithCancel(ctx)
	n := 0
	for _, err = range s.Each(done, "") {
		if n++; n == 3 {
			cancel()
		}
	}
	cancel()
	if n == 100 {
		return errors.New("the iteration continued to the end after the end of its context")
	}
	for what, err := range map[string]error{
		"iteration": err, "put": s.Put(done, state.Record{Key: "a/0001"}), "delete": s.Delete(done, "a/0001"),
		"each": want(done, s, "no such prefix", nil),
	} {
		if !errors.Is(err, context.Canceled) {
			return fmt.Errorf("%s with a context that is done: %w", what, err)
		}
	}
	return want(ctx, s, "", pairs)
}

// concurrent puts and reads pairs of records in several goroutines. Both records of a pair must
// always be equal.
func concurrent(ctx context.Context, s state.Store) error {
	const workers, rounds = 8, 25
	errs := make([]error, workers)
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() { errs[w] = work(ctx, s, fmt.Sprint("pair/", w/2, "/"), rounds, w%2 == 0) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

func work(ctx context.Context, s state.Store, prefix string, rounds int, write bool) error {
	for i := range rounds {
		if write {
			value := fmt.Append(nil, i)
			if err := s.Put(ctx, state.Record{Key: prefix + "a", Value: value}, state.Record{Key: prefix + "b", Value: value}); err != nil {
				return err
			}
		}
		a, err := get(ctx, s, prefix+"a")
		b, berr := get(ctx, s, prefix+"b") // read later, so not older
		if err := errors.Join(err, berr); err != nil {
			return err
		}
		if len(b) < len(a) || len(b) == len(a) && bytes.Compare(b, a) < 0 {
			return fmt.Errorf("put of a batch: %q was stored without %q", a, b)
		}
	}
	return nil
}
