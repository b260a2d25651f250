package statetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/graspsync/graspsync/state"
)

func absent(ctx context.Context, s state.Store) error {
	if err := wantAbsent(ctx, s, "a"); err != nil {
		return err
	}
	if _, err := s.CompareAndSwap(ctx, "a", 1, []byte("x")); !errors.Is(err, state.ErrConflict) {
		return fmt.Errorf("write at a version that the key has not: %v, want ErrConflict", err)
	}
	if err := wantAbsent(ctx, s, "a"); err != nil {
		return err
	}
	return wantErr("delete of an absent key", s.Delete(ctx, "a", 1), state.ErrNotFound)
}

func createAndGet(ctx context.Context, s state.Store) error {
	v, err := s.CompareAndSwap(ctx, "a", state.Absent, []byte("one"))
	if err != nil {
		return fmt.Errorf("create: %w", err)
	}
	if v == state.Absent {
		return errors.New("create returned the version Absent")
	}
	if err := want(ctx, s, "a", "one", v); err != nil {
		return err
	}
	return wantAbsent(ctx, s, "b")
}

func emptyValue(ctx context.Context, s state.Store) error {
	for _, value := range [][]byte{nil, {}} {
		v, err := put(ctx, s, "empty", value)
		if err != nil {
			return err
		}
		if err := want(ctx, s, "empty", "", v); err != nil {
			return fmt.Errorf("an empty value is a value: %w", err)
		}
	}
	return nil
}

func largeValue(ctx context.Context, s state.Store) error {
	large := bytes.Repeat([]byte{0, 0xff, '\n', '"'}, 1<<20)
	v, err := put(ctx, s, "large", large)
	if err != nil {
		return err
	}
	return want(ctx, s, "large", string(large), v)
}

func swap(ctx context.Context, s state.Store) error {
	first, err := put(ctx, s, "a", []byte("one"))
	if err != nil {
		return err
	}
	// The same bytes again are a change, too: somebody may have acted on it.
	second, err := s.CompareAndSwap(ctx, "a", first, []byte("one"))
	if err != nil {
		return fmt.Errorf("swap: %w", err)
	}
	if second == first || second == state.Absent {
		return fmt.Errorf("swap: version %d after %d", second, first)
	}
	third, err := s.CompareAndSwap(ctx, "a", second, []byte("a longer one"))
	if err != nil {
		return fmt.Errorf("swap: %w", err)
	}
	return want(ctx, s, "a", "a longer one", third)
}

func conflict(ctx context.Context, s state.Store) error {
	first, err := put(ctx, s, "a", []byte("one"))
	if err != nil {
		return err
	}
	second, err := put(ctx, s, "a", []byte("two"))
	if err != nil {
		return err
	}
	var other state.Version
	for range 2 { // as often as "a": its version must differ all the same
		if other, err = put(ctx, s, "b", []byte("other")); err != nil {
			return err
		}
	}
	for _, old := range []state.Version{state.Absent, first, other, second + 1000} {
		v, err := s.CompareAndSwap(ctx, "a", old, []byte("three"))
		if !errors.Is(err, state.ErrConflict) {
			return fmt.Errorf("swap at version %d instead of %d: %v, want ErrConflict", old, second, err)
		}
		if v != state.Absent {
			return fmt.Errorf("swap that failed returned version %d, want Absent", v)
		}
		if err := wantErr("delete at a wrong version", s.Delete(ctx, "a", old), state.ErrConflict); err != nil {
			return err
		}
	}
	return want(ctx, s, "a", "two", second)
}

func remove(ctx context.Context, s state.Store) error {
	v, err := put(ctx, s, "a", []byte("one"))
	if err != nil {
		return err
	}
	if _, err := put(ctx, s, "ab", []byte("neighbour")); err != nil {
		return err
	}
	if err := s.Delete(ctx, "a", v); err != nil {
		return fmt.Errorf("delete: %w", err)
	}
	if err := wantAbsent(ctx, s, "a"); err != nil {
		return err
	}
	if err := wantErr("second delete", s.Delete(ctx, "a", v), state.ErrNotFound); err != nil {
		return err
	}
	if got, err := list(ctx, s, ""); err != nil || !slices.Equal(got, []string{"ab"}) {
		return fmt.Errorf("keys after a delete: %q, %v", got, err)
	}
	return nil
}

func versions(ctx context.Context, s state.Store) error {
	seen := map[state.Version]string{state.Absent: "absence"}
	for i := range 50 {
		key := fmt.Sprint("k", i%5)
		v, err := put(ctx, s, key, []byte("x"))
		if err != nil {
			return err
		}
		if who, ok := seen[v]; ok {
			return fmt.Errorf("version %d of %s was already that of %s", v, key, who)
		}
		seen[v] = key
		if i%3 == 0 {
			if err := s.Delete(ctx, key, v); err != nil {
				return fmt.Errorf("delete: %w", err)
			}
			if _, err := s.CompareAndSwap(ctx, key, v, nil); !errors.Is(err, state.ErrConflict) {
				return fmt.Errorf("swap at the version of a deleted value: %v, want ErrConflict", err)
			}
		}
	}
	return nil
}

// oddKeys are keys that trip a store that makes paths, lines or patterns of them.
var oddKeys = []string{
	"/", "//", "a/b", "a/b/", "../a", ".", "..", " ", "a b", "a\nb", "a\tb", "a\x00b", "\x00",
	"\xff\xfe", "A", "a", "é", "e\u0301", "%2e", "*", "a*", "?", "[a]", "con", "-rf", "'", `"`, `\`,
	"health/wss://relay.example.com/päth?x=y", strings.Repeat("x", state.MaxKey),
}

func keysAreBytes(ctx context.Context, s state.Store) error {
	at := make(map[string]state.Version)
	for i, key := range oddKeys {
		v, err := s.CompareAndSwap(ctx, key, state.Absent, fmt.Append(nil, i))
		if err != nil {
			return fmt.Errorf("create %.50q: %w", key, err)
		}
		at[key] = v
	}
	for i, key := range oddKeys {
		if err := want(ctx, s, key, fmt.Sprint(i), at[key]); err != nil {
			return err
		}
	}
	sorted := slices.Sorted(slices.Values(oddKeys))
	got, err := list(ctx, s, "")
	if err != nil {
		return err
	}
	if !slices.Equal(got, sorted) {
		return fmt.Errorf("keys: got %.1000q, want %.1000q", got, sorted)
	}
	return nil
}

func keyLimits(ctx context.Context, s state.Store) error {
	for _, key := range []string{"", strings.Repeat("x", state.MaxKey+1)} {
		_, _, err := s.Get(ctx, key)
		if err := wantErr("get of an unusable key", err, state.ErrKey); err != nil {
			return err
		}
		_, err = s.CompareAndSwap(ctx, key, state.Absent, nil)
		if err := wantErr("write of an unusable key", err, state.ErrKey); err != nil {
			return err
		}
		if err := wantErr("delete of an unusable key", s.Delete(ctx, key, 1), state.ErrKey); err != nil {
			return err
		}
	}
	return nil
}

func isolation(ctx context.Context, s state.Store) error {
	given := []byte("one")
	v, err := put(ctx, s, "a", given)
	if err != nil {
		return err
	}
	copy(given, "XXX")
	if err := want(ctx, s, "a", "one", v); err != nil {
		return fmt.Errorf("the caller changed what it had given: %w", err)
	}
	got, _, err := s.Get(ctx, "a")
	if err != nil {
		return err
	}
	copy(got, "YYY")
	_ = append(got, "ZZZ"...)
	if err := want(ctx, s, "a", "one", v); err != nil {
		return fmt.Errorf("the caller changed what it had got: %w", err)
	}
	got, _, err = s.Get(ctx, "a")
	if err != nil {
		return err
	}
	if _, err := put(ctx, s, "a", []byte("two")); err != nil {
		return err
	}
	if string(got) != "one" {
		return fmt.Errorf("a write changed what an earlier get had returned: %q", got)
	}
	return nil
}

// model compares the store with a map under random operations, wrong versions
// among them.
func model(ctx context.Context, s state.Store) error {
	type value struct {
		text    string
		version state.Version
	}
	rng := rand.New(rand.NewPCG(1, 2))
	twin := make(map[string]value)
	for i := range 2000 {
		key := fmt.Sprint("key/", rng.IntN(20))
		old := twin[key].version
		wrong := rng.IntN(4) == 0
		if wrong {
			old += 1 + state.Version(rng.IntN(3))
		}
		if _, exists := twin[key]; rng.IntN(3) > 0 {
			text := fmt.Sprint("value ", i)
			v, err := s.CompareAndSwap(ctx, key, old, []byte(text))
			if wrong != errors.Is(err, state.ErrConflict) || (err == nil) == wrong {
				return fmt.Errorf("step %d: swap of %q at %d: %v; the model has %+v", i, key, old, err, twin[key])
			}
			if err == nil {
				twin[key] = value{text, v}
			}
		} else {
			err := s.Delete(ctx, key, old)
			ok := err == nil
			switch {
			case !exists:
				ok = errors.Is(err, state.ErrNotFound)
			case wrong:
				ok = errors.Is(err, state.ErrConflict)
			default:
				delete(twin, key)
			}
			if !ok {
				return fmt.Errorf("step %d: delete of %q at %d: %v", i, key, old, err)
			}
		}
	}
	for i := range 20 {
		key := fmt.Sprint("key/", i)
		check := wantAbsent(ctx, s, key)
		if v, exists := twin[key]; exists {
			check = want(ctx, s, key, v.text, v.version)
		}
		if check != nil {
			return check
		}
	}
	got, err := list(ctx, s, "key/")
	if err == nil && len(got) != len(twin) {
		err = fmt.Errorf("%d keys, want %d", len(got), len(twin))
	}
	return err
}
