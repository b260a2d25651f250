package statetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/graspsync/graspsync/state"
)

// fill writes n keys under the prefix and returns them in order.
func fill(ctx context.Context, s state.Store, prefix string, n int) ([]string, error) {
	out := make([]string, 0, n)
	for i := range n {
		key := fmt.Sprintf("%s%04d", prefix, (i*7919)%n) // created out of order where 7919 and n have no common factor
		if _, err := put(ctx, s, key, []byte("v")); err != nil {
			return nil, err
		}
		out = append(out, key)
	}
	slices.Sort(out)
	return out, nil
}

func keys(ctx context.Context, s state.Store) error {
	if got, err := list(ctx, s, ""); err != nil || len(got) != 0 {
		return fmt.Errorf("keys of an empty store: %q, %v", got, err)
	}
	a, err := fill(ctx, s, "a/", 100)
	if err != nil {
		return err
	}
	ab, err := fill(ctx, s, "ab/", 3)
	if err != nil {
		return err
	}
	for prefix, expected := range map[string][]string{
		"":        slices.Concat(a, ab),
		"a":       slices.Concat(a, ab),
		"a/":      a,
		"a/0099":  {"a/0099"},
		"a/00990": nil,
		"ab":      ab,
		"b":       nil,
		"A":       nil,
	} {
		for range 2 { // twice: a sequence may be ranged over again
			got, err := list(ctx, s, prefix)
			if err != nil {
				return err
			}
			if !slices.Equal(got, expected) {
				return fmt.Errorf("keys of %q: got %q, want %q", prefix, got, expected)
			}
		}
	}
	return nil
}

func keysStops(ctx context.Context, s state.Store) error {
	all, err := fill(ctx, s, "a/", 10)
	if err != nil {
		return err
	}
	sequence := s.Keys(ctx, "")
	for range 2 {
		n := 0
		for key, err := range sequence {
			if err != nil || key != all[n] {
				return fmt.Errorf("key %d: %q, %v", n, key, err)
			}
			if n++; n == 3 {
				break
			}
		}
	}
	// Nothing may be left locked by the range that was broken off.
	_, err = put(ctx, s, "a/new", nil)
	return err
}

func keysDuringChange(ctx context.Context, s state.Store) error {
	all, err := fill(ctx, s, "a/", 100)
	if err != nil {
		return err
	}
	// The loop creates keys on both sides and removes every odd one; it would never
	// end, or hang, in a store that iterates under a lock or over what it is changing.
	done := make(chan error, 1)
	seen := make(map[string]int)
	go func() { done <- churn(ctx, s, all, seen) }()
	select {
	case err := <-done:
		if err != nil {
			return err
		}
	case <-time.After(30 * time.Second):
		return errors.New("an iteration whose loop changes the store does not end")
	}
	for i, key := range all {
		if seen[key] > 1 || (i%2 == 0 && seen[key] != 1) {
			return fmt.Errorf("%q came %d times", key, seen[key])
		}
	}
	return nil
}

func churn(ctx context.Context, s state.Store, all []string, seen map[string]int) error {
	n := 0
	for key, err := range s.Keys(ctx, "a/") {
		if err != nil {
			return fmt.Errorf("keys: %w", err)
		}
		seen[key]++
		if n < 100 {
			for _, side := range []string{"a/!", "a/~"} {
				if _, err := put(ctx, s, fmt.Sprintf("%s%04d", side, n), nil); err != nil {
					return err
				}
			}
			if odd := all[n]; n%2 == 1 {
				if _, v, err := s.Get(ctx, odd); err != nil {
					return fmt.Errorf("get in the loop: %w", err)
				} else if err := s.Delete(ctx, odd, v); err != nil {
					return fmt.Errorf("delete in the loop: %w", err)
				}
			}
		}
		n++
	}
	return nil
}

func contextDone(ctx context.Context, s state.Store) error {
	v, err := put(ctx, s, "a", []byte("one"))
	if err != nil {
		return err
	}
	done, cancel := context.WithCancel(ctx)
	cancel()
	if _, _, err = s.Get(done, "a"); !errors.Is(err, context.Canceled) {
		return fmt.Errorf("get with a context that is done: %v", err)
	}
	if _, err = s.CompareAndSwap(done, "a", v, []byte("two")); !errors.Is(err, context.Canceled) {
		return fmt.Errorf("swap with a context that is done: %v", err)
	}
	if err = s.Delete(done, "a", v); !errors.Is(err, context.Canceled) {
		return fmt.Errorf("delete with a context that is done: %v", err)
	}
	for _, prefix := range []string{"", "no such prefix"} {
		if got, err := list(done, s, prefix); !errors.Is(err, context.Canceled) || len(got) != 0 {
			return fmt.Errorf("keys of %q with a context that is done: %q, %v", prefix, got, err)
		}
	}
	return want(ctx, s, "a", "one", v)
}

func contextDoneDuringKeys(ctx context.Context, s state.Store) error {
	if _, err := fill(ctx, s, "a/", 100); err != nil {
		return err
	}
	done, cancel := context.WithCancel(ctx)
	defer cancel()
	n, last := 0, error(nil)
	for key, err := range s.Keys(done, "") {
		if last != nil {
			return fmt.Errorf("%q after the error %w", key, last)
		}
		if last = err; err != nil {
			if key != "" {
				return fmt.Errorf("the error comes with the key %q", key)
			}
			continue
		}
		if n++; n == 3 {
			cancel()
		}
	}
	if n == 100 {
		return errors.New("the iteration went on to the end without its context")
	}
	return wantErr("iteration whose context ended", last, context.Canceled)
}
