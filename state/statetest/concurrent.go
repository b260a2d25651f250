package statetest

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"

	"github.com/graspsync/graspsync/state"
)

const (
	workers = 8
	rounds  = 25
)

// together runs work in several goroutines that start at one moment, and returns
// their errors joined.
func together(work func(worker int) error) error {
	errs := make([]error, workers)
	start := make(chan struct{})
	var wg sync.WaitGroup
	for i := range workers {
		wg.Go(func() {
			<-start
			errs[i] = work(i)
		})
	}
	close(start)
	wg.Wait()
	return errors.Join(errs...)
}

// race lets all workers try the same thing and checks that exactly one succeeded
// while all others got the sentinel. It returns the winner.
func race(sentinel error, try func(worker int) error) (int, error) {
	var mu sync.Mutex
	var winners []int
	err := together(func(worker int) error {
		err := try(worker)
		if err == nil {
			mu.Lock()
			winners = append(winners, worker)
			mu.Unlock()
			return nil
		}
		return wantErr("who lost the race", err, sentinel)
	})
	if err == nil && len(winners) != 1 {
		err = fmt.Errorf("%d of %d won, want exactly 1", len(winners), workers)
	}
	if err != nil {
		return 0, err
	}
	return winners[0], nil
}

func concurrentCreate(ctx context.Context, s state.Store) error {
	for round := range rounds {
		key := fmt.Sprint("key ", round)
		got := make([]state.Version, workers)
		winner, err := race(state.ErrConflict, func(worker int) (err error) {
			got[worker], err = s.CompareAndSwap(ctx, key, state.Absent, strconv.AppendInt(nil, int64(worker), 10))
			return err
		})
		if err != nil {
			return fmt.Errorf("create: %w", err)
		}
		if err := want(ctx, s, key, strconv.Itoa(winner), got[winner]); err != nil {
			return fmt.Errorf("after a race to create: %w", err)
		}
	}
	return nil
}

func concurrentSwap(ctx context.Context, s state.Store) error {
	version, err := put(ctx, s, "a", []byte("start"))
	if err != nil {
		return err
	}
	for range rounds {
		got := make([]state.Version, workers)
		winner, err := race(state.ErrConflict, func(worker int) (err error) {
			got[worker], err = s.CompareAndSwap(ctx, "a", version, strconv.AppendInt(nil, int64(worker), 10))
			return err
		})
		if err != nil {
			return fmt.Errorf("swap: %w", err)
		}
		version = got[winner]
		if err := want(ctx, s, "a", strconv.Itoa(winner), version); err != nil {
			return fmt.Errorf("after a race to swap: %w", err)
		}
	}
	return nil
}

// concurrentCounter counts by read, add, swap and retry: a lost update shows as a
// sum that is too small.
func concurrentCounter(ctx context.Context, s state.Store) error {
	err := together(func(int) error {
		for done := 0; done < rounds; {
			value, version, err := s.Get(ctx, "counter")
			if err != nil && !errors.Is(err, state.ErrNotFound) {
				return fmt.Errorf("get: %w", err)
			}
			n := 0
			if len(value) > 0 {
				if n, err = strconv.Atoi(string(value)); err != nil {
					return fmt.Errorf("a value that nobody wrote: %w", err)
				}
			}
			_, err = s.CompareAndSwap(ctx, "counter", version, strconv.AppendInt(nil, int64(n+1), 10))
			switch {
			case err == nil:
				done++
			case !errors.Is(err, state.ErrConflict):
				return fmt.Errorf("swap: %w", err)
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	value, _, err := s.Get(ctx, "counter")
	if err != nil || string(value) != strconv.Itoa(workers*rounds) {
		return fmt.Errorf("counter is at %q, want %d: updates were lost (%v)", value, workers*rounds, err)
	}
	return nil
}

func concurrentDelete(ctx context.Context, s state.Store) error {
	for range rounds {
		version, err := put(ctx, s, "a", nil)
		if err != nil {
			return err
		}
		if _, err = race(state.ErrNotFound, func(int) error { return s.Delete(ctx, "a", version) }); err != nil {
			return fmt.Errorf("delete: %w", err)
		}
		if err := wantAbsent(ctx, s, "a"); err != nil {
			return err
		}
	}
	return nil
}

// concurrentKeys iterates while others write: what was there all the time must come
// exactly once, in every iteration.
func concurrentKeys(ctx context.Context, s state.Store) error {
	all, err := fill(ctx, s, "stays/", 50)
	if err != nil {
		return err
	}
	return together(func(worker int) error {
		for round := range rounds {
			if worker%2 == 0 {
				key := fmt.Sprintf("stays/%d/%d", worker, round) // sorts between those that stay
				v, err := put(ctx, s, key, nil)
				if err != nil {
					return err
				}
				if _, err := put(ctx, s, all[round], []byte(key)); err != nil && !errors.Is(err, state.ErrConflict) {
					return err
				}
				if err := s.Delete(ctx, key, v); err != nil {
					return fmt.Errorf("delete: %w", err)
				}
				continue
			}
			if err := eachOnce(ctx, s, all); err != nil {
				return err
			}
		}
		return nil
	})
}

func eachOnce(ctx context.Context, s state.Store, all []string) error {
	seen := make(map[string]int)
	for key, err := range s.Keys(ctx, "stays/") {
		if err != nil {
			return fmt.Errorf("keys: %w", err)
		}
		seen[key]++
	}
	for _, key := range all {
		if seen[key] != 1 {
			return fmt.Errorf("%q came %d times while others were written", key, seen[key])
		}
	}
	return nil
}
