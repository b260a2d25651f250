package statetest

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/graspsync/graspsync/internal/racetest"
	"github.com/graspsync/graspsync/state"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// broken is a Store with one fault: each field that is set replaces a method.
type broken struct {
	state.Store
	get  func(ctx context.Context, key string) ([]byte, state.Version, error)
	cas  func(ctx context.Context, key string, old state.Version, value []byte) (state.Version, error)
	del  func(ctx context.Context, key string, old state.Version) error
	keys func(ctx context.Context, prefix string) iter.Seq2[string, error]
}

func (b broken) Get(ctx context.Context, key string) ([]byte, state.Version, error) {
	if b.get != nil {
		return b.get(ctx, key)
	}
	return b.Store.Get(ctx, key)
}

func (b broken) CompareAndSwap(ctx context.Context, key string, old state.Version, value []byte) (state.Version, error) {
	if b.cas != nil {
		return b.cas(ctx, key, old, value)
	}
	return b.Store.CompareAndSwap(ctx, key, old, value)
}

func (b broken) Delete(ctx context.Context, key string, old state.Version) error {
	if b.del != nil {
		return b.del(ctx, key, old)
	}
	return b.Store.Delete(ctx, key, old)
}

func (b broken) Keys(ctx context.Context, prefix string) iter.Seq2[string, error] {
	if b.keys != nil {
		return b.keys(ctx, prefix)
	}
	return b.Store.Keys(ctx, prefix)
}

// museum holds one store for each fault that the suite must find, with the parts
// that find it. A suite that passes a broken store would be worth nothing.
var museum = []struct {
	fault  string
	caught []string
	make   func() state.Store
}{
	{"none", nil, func() state.Store { return broken{Store: state.NewMemory()} }},
	{"an absent key reads as an empty value", []string{"Absent", "CreateAndGet", "Delete"}, func() state.Store {
		m := state.NewMemory()
		return broken{Store: m, get: func(ctx context.Context, key string) ([]byte, state.Version, error) {
			value, v, err := m.Get(ctx, key)
			if errors.Is(err, state.ErrNotFound) {
				err = nil
			}
			return value, v, err
		}}
	}},
	{"an empty value reads as absent", []string{"EmptyValue"}, func() state.Store {
		m := state.NewMemory()
		return broken{Store: m, get: func(ctx context.Context, key string) ([]byte, state.Version, error) {
			value, v, err := m.Get(ctx, key)
			if err == nil && len(value) == 0 {
				return nil, v, state.ErrNotFound
			}
			return value, v, err
		}}
	}},
	{"a swap ignores the version", []string{"Absent", "Conflict", "VersionsAreNeverReused", "Model"}, func() state.Store {
		m := state.NewMemory()
		return broken{Store: m, cas: func(ctx context.Context, key string, _ state.Version, value []byte) (state.Version, error) {
			for {
				_, v, _ := m.Get(ctx, key)
				if v, err := m.CompareAndSwap(ctx, key, v, value); !errors.Is(err, state.ErrConflict) {
					return v, err
				}
			}
		}}
	}},
	{"check and write are two steps", []string{"ConcurrentCreate", "ConcurrentSwap"}, func() state.Store {
		m := state.NewMemory()
		var before sync.WaitGroup // meets all racers between the check and the write
		before.Add(workers)
		return broken{Store: m, cas: func(ctx context.Context, key string, old state.Version, value []byte) (state.Version, error) {
			_, v, _ := m.Get(ctx, key)
			if v != old {
				return state.Absent, state.ErrConflict
			}
			if key == "a" && old == state.Absent { // the single put that prepares ConcurrentSwap
				return m.CompareAndSwap(ctx, key, old, value)
			}
			if strings.HasPrefix(key, "key ") || key == "a" {
				before.Done()
				before.Wait()
			}
			for {
				_, v, _ := m.Get(ctx, key)
				if v, err := m.CompareAndSwap(ctx, key, v, value); !errors.Is(err, state.ErrConflict) {
					return v, err
				}
			}
		}}
	}},
	{"updates that come together are lost", []string{"ConcurrentCounter"}, func() state.Store {
		m := state.NewMemory()
		var arrived atomic.Int32
		all := make(chan struct{}) // closed when each worker is at its first write, having read
		return broken{Store: m, cas: func(ctx context.Context, key string, _ state.Version, value []byte) (state.Version, error) {
			if arrived.Add(1) == workers {
				close(all)
			}
			<-all
			for {
				_, v, _ := m.Get(ctx, key)
				if v, err := m.CompareAndSwap(ctx, key, v, value); !errors.Is(err, state.ErrConflict) {
					return v, err
				}
			}
		}}
	}},
	{"an unchanged value keeps its version", []string{"Swap"}, func() state.Store {
		m := state.NewMemory()
		return broken{Store: m, cas: func(ctx context.Context, key string, old state.Version, value []byte) (state.Version, error) {
			if got, v, err := m.Get(ctx, key); err == nil && v == old && string(got) == string(value) {
				return v, nil
			}
			return m.CompareAndSwap(ctx, key, old, value)
		}}
	}},
	{"versions are counted per key, from 1", []string{"Conflict", "VersionsAreNeverReused"}, func() state.Store { return newPerKey() }},
	{"a conflict is a plain error", []string{"Absent", "Conflict"}, func() state.Store {
		m := state.NewMemory()
		return broken{Store: m, cas: func(ctx context.Context, key string, old state.Version, value []byte) (state.Version, error) {
			v, err := m.CompareAndSwap(ctx, key, old, value)
			if err != nil {
				err = errors.New(err.Error())
			}
			return v, err
		}}
	}},
	{"deleting what is absent succeeds", []string{"Absent", "Delete", "ConcurrentDelete", "Model"}, func() state.Store {
		m := state.NewMemory()
		return broken{Store: m, del: func(ctx context.Context, key string, old state.Version) error {
			if err := m.Delete(ctx, key, old); !errors.Is(err, state.ErrNotFound) {
				return err
			}
			return nil
		}}
	}},
	{"delete ignores the version", []string{"Conflict", "Model"}, func() state.Store {
		m := state.NewMemory()
		return broken{Store: m, del: func(ctx context.Context, key string, old state.Version) error {
			if _, v, err := m.Get(ctx, key); err == nil {
				old = v
			}
			return m.Delete(ctx, key, old)
		}}
	}},
	{"keys are cleaned like paths", []string{"KeysAreBytes"}, func() state.Store {
		m := state.NewMemory()
		return broken{
			Store: m,
			get: func(ctx context.Context, key string) ([]byte, state.Version, error) {
				return m.Get(ctx, strings.ToLower(key))
			},
			cas: func(ctx context.Context, key string, old state.Version, value []byte) (state.Version, error) {
				return m.CompareAndSwap(ctx, strings.ToLower(key), old, value)
			},
		}
	}},
	{"keys of any length", []string{"KeyLimits"}, func() state.Store {
		m := state.NewMemory()
		return broken{Store: m, get: func(ctx context.Context, key string) ([]byte, state.Version, error) {
			if key == "" {
				return nil, state.Absent, state.ErrNotFound
			}
			return m.Get(ctx, key)
		}}
	}},
	{"values are kept by reference", []string{"ValueIsolation"}, func() state.Store { return newByReference(true, false) }},
	{"values are handed out by reference", []string{"ValueIsolation"}, func() state.Store { return newByReference(false, true) }},
	{"keys come unsorted", []string{"Keys", "KeysAreBytes"}, func() state.Store {
		return withKeys(func(keys []string) []string { slices.Reverse(keys); return keys })
	}},
	{"keys come twice", []string{"Keys", "KeysDuringChange", "ConcurrentKeys"}, func() state.Store {
		return withKeys(func(keys []string) []string {
			twice := slices.Concat(keys, keys)
			slices.Sort(twice)
			return twice
		})
	}},
	{"the last key is missing", []string{"Keys", "Model"}, func() state.Store {
		return withKeys(func(keys []string) []string { return keys[:max(0, len(keys)-1)] })
	}},
	{"the prefix is ignored", []string{"Keys"}, func() state.Store {
		m := state.NewMemory()
		return broken{Store: m, keys: func(ctx context.Context, _ string) iter.Seq2[string, error] { return m.Keys(ctx, "") }}
	}},
	{"the sequence can be used once", []string{"KeysStopsEarly"}, func() state.Store {
		m := state.NewMemory()
		return broken{Store: m, keys: func(ctx context.Context, prefix string) iter.Seq2[string, error] {
			next, stop := iter.Pull2(m.Keys(ctx, prefix))
			context.AfterFunc(ctx, stop)
			return func(yield func(string, error) bool) {
				for {
					if key, err, ok := next(); !ok || !yield(key, err) {
						return
					}
				}
			}
		}}
	}},
	{"a done context is ignored", []string{"ContextDone", "ContextDoneDuringKeys"}, func() state.Store {
		m := state.NewMemory()
		return broken{
			Store: m,
			get: func(ctx context.Context, key string) ([]byte, state.Version, error) {
				return m.Get(context.WithoutCancel(ctx), key)
			},
			keys: func(ctx context.Context, prefix string) iter.Seq2[string, error] {
				return m.Keys(context.WithoutCancel(ctx), prefix)
			},
		}
	}},
	{"a swap that reports the end of its context was made", []string{"ContextDone"}, func() state.Store {
		m := state.NewMemory()
		return broken{Store: m, cas: func(ctx context.Context, key string, old state.Version, value []byte) (state.Version, error) {
			v, err := m.CompareAndSwap(context.WithoutCancel(ctx), key, old, value)
			return v, errors.Join(err, ctx.Err())
		}}
	}},
	{"a done context looks like no keys", []string{"ContextDone", "ContextDoneDuringKeys"}, func() state.Store {
		m := state.NewMemory()
		return broken{Store: m, keys: func(ctx context.Context, prefix string) iter.Seq2[string, error] {
			return func(yield func(string, error) bool) {
				for key, err := range m.Keys(ctx, prefix) {
					if err != nil || !yield(key, nil) {
						return
					}
				}
			}
		}}
	}},
}

// withKeys changes what Keys yields.
func withKeys(change func([]string) []string) state.Store {
	m := state.NewMemory()
	return broken{Store: m, keys: func(ctx context.Context, prefix string) iter.Seq2[string, error] {
		return func(yield func(string, error) bool) {
			keys, err := list(ctx, m, prefix)
			for _, key := range change(keys) {
				if !yield(key, nil) {
					return
				}
			}
			if err != nil {
				yield("", err)
			}
		}
	}}
}

// newByReference returns a store that shares its memory with its callers.
func newByReference(in, out bool) state.Store {
	m := state.NewMemory()
	var mu sync.Mutex
	shared := make(map[string][]byte)
	b := broken{Store: m}
	b.cas = func(ctx context.Context, key string, old state.Version, value []byte) (state.Version, error) {
		v, err := m.CompareAndSwap(ctx, key, old, value)
		if err == nil {
			mu.Lock()
			defer mu.Unlock()
			if shared[key] = value; !in {
				shared[key] = slices.Clone(value)
			}
		}
		return v, err
	}
	b.get = func(ctx context.Context, key string) ([]byte, state.Version, error) {
		_, v, err := m.Get(ctx, key)
		mu.Lock()
		defer mu.Unlock()
		if out {
			return shared[key], v, err
		}
		return slices.Clone(shared[key]), v, err
	}
	return b
}

// perKey is a store whose versions say how often a key was written: after a
// deletion they begin again.
type perKey struct {
	*state.Memory
	mu     sync.Mutex
	writes map[string]state.Version
}

func newPerKey() *perKey {
	return &perKey{Memory: state.NewMemory(), writes: make(map[string]state.Version)}
}

func (p *perKey) Get(ctx context.Context, key string) ([]byte, state.Version, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	value, _, err := p.Memory.Get(ctx, key)
	return value, p.writes[key], err
}

func (p *perKey) CompareAndSwap(ctx context.Context, key string, old state.Version, value []byte) (state.Version, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.writes[key] != old {
		return state.Absent, state.ErrConflict
	}
	_, v, _ := p.Memory.Get(ctx, key)
	if _, err := p.Memory.CompareAndSwap(ctx, key, v, value); err != nil {
		return state.Absent, err
	}
	p.writes[key]++
	return p.writes[key], nil
}

func (p *perKey) Delete(ctx context.Context, key string, old state.Version) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, v, err := p.Memory.Get(ctx, key)
	switch {
	case err != nil:
		return err
	case p.writes[key] != old:
		return state.ErrConflict
	}
	delete(p.writes, key)
	return p.Memory.Delete(ctx, key, v)
}

func TestMuseum(t *testing.T) {
	racetest.Amounts(t)
	byName := make(map[string]check)
	for _, c := range checks {
		byName[c.name] = c
	}
	for _, m := range museum {
		t.Run(m.fault, func(t *testing.T) {
			if m.caught == nil {
				for _, c := range checks {
					assert.NoError(t, c.run(t.Context(), m.make()), c.name)
				}
			}
			for _, name := range m.caught {
				require.Contains(t, byName, name)
				assert.Error(t, byName[name].run(t.Context(), m.make()), "%s did not notice", name)
			}
		})
	}
}

// Every part of the suite finds at least one of the faults in the museum, or is
// named here with the reason.
func TestEveryCheckCanFail(t *testing.T) {
	caught := map[string]string{
		"LargeValue": "a store that cuts values: below",
	}
	for _, m := range museum {
		for _, name := range m.caught {
			caught[name] = m.fault
		}
	}
	for _, c := range checks {
		assert.Contains(t, caught, c.name, fmt.Sprintf("nothing shows that %s can fail", c.name))
	}
	m := state.NewMemory()
	cuts := broken{Store: m, cas: func(ctx context.Context, key string, old state.Version, value []byte) (state.Version, error) {
		return m.CompareAndSwap(ctx, key, old, value[:min(len(value), 1<<20)])
	}}
	assert.Error(t, largeValue(t.Context(), cuts))
}
