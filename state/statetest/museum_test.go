package statetest

import (
	"context"
	"errors"
	"iter"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/graspsync/graspsync/state"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// broken is a Store with one fault. Each field that is set replaces a method.
type broken struct {
	state.Store
	put  func(ctx context.Context, records []state.Record) error
	del  func(ctx context.Context, keys []string) error
	each func(ctx context.Context, prefix string) iter.Seq2[state.Record, error]
}

func (b broken) Put(ctx context.Context, records ...state.Record) error {
	if b.put != nil {
		return b.put(ctx, records)
	}
	return b.Store.Put(ctx, records...)
}

func (b broken) Delete(ctx context.Context, keys ...string) error {
	if b.del != nil {
		return b.del(ctx, keys)
	}
	return b.Store.Delete(ctx, keys...)
}

func (b broken) Each(ctx context.Context, prefix string) iter.Seq2[state.Record, error] {
	if b.each != nil {
		return b.each(ctx, prefix)
	}
	return b.Store.Each(ctx, prefix)
}

// museum contains a store for each fault that the suite must detect, with the check that detects
// it.
var museum = []struct {
	fault  string
	caught []string
	make   func(m *state.Memory) broken
}{
	{"none", nil, func(*state.Memory) broken { return broken{} }},
	{"a batch is not atomic", []string{"Model"}, func(m *state.Memory) broken {
		return broken{put: func(ctx context.Context, records []state.Record) error {
			for _, r := range records {
				if r.Key == "" {
					return nil
				}
				if err := m.Put(ctx, r); err != nil {
					return err
				}
			}
			return nil
		}}
	}},
	{"the records of a batch are stored in reverse order", []string{"Model"}, func(m *state.Memory) broken {
		return broken{put: func(ctx context.Context, records []state.Record) error {
			slices.Reverse(records)
			return m.Put(ctx, records...)
		}}
	}},
	{"only the first key is deleted", []string{"Model"}, func(m *state.Memory) broken {
		return broken{del: func(ctx context.Context, keys []string) error { return m.Delete(ctx, keys[:min(1, len(keys))]...) }}
	}},
	{"keys are cleaned like paths", []string{"Model"}, func(m *state.Memory) broken {
		return broken{put: func(ctx context.Context, records []state.Record) error {
			for i := range records {
				records[i].Key = strings.TrimSuffix(records[i].Key, "/") + strings.Repeat("/", min(1, strings.Count(records[i].Key, "/")))
			}
			return m.Put(ctx, records...)
		}}
	}},
	{"values are stored by reference", []string{"ValueIsolation"}, func(m *state.Memory) broken {
		shared := make(map[string][]byte)
		b := withEach(m, func(all []state.Record) []state.Record {
			for i := range all {
				all[i].Value = shared[all[i].Key]
			}
			return all
		})
		b.put = func(ctx context.Context, records []state.Record) error {
			for _, r := range records {
				shared[r.Key] = r.Value
			}
			return m.Put(ctx, records...)
		}
		return b
	}},
	{"records are unsorted", []string{"Each", "Model"}, func(m *state.Memory) broken {
		return withEach(m, func(r []state.Record) []state.Record { slices.Reverse(r); return r })
	}},
	{"records are yielded twice", []string{"Model", "EachDuringChange"}, func(m *state.Memory) broken {
		return withEach(m, func(r []state.Record) []state.Record { return slices.Concat(r, r) })
	}},
	{"the prefix is ignored", []string{"Model"}, func(m *state.Memory) broken {
		return broken{each: func(ctx context.Context, _ string) iter.Seq2[state.Record, error] { return m.Each(ctx, "") }}
	}},
	{"a done context is ignored", []string{"ContextDone"}, func(m *state.Memory) broken {
		return broken{put: func(ctx context.Context, records []state.Record) error {
			return m.Put(context.WithoutCancel(ctx), records...)
		}}
	}},
	{"a put that reports the end of its context was made", []string{"ContextDone"}, func(m *state.Memory) broken {
		return broken{put: func(ctx context.Context, records []state.Record) error {
			return errors.Join(m.Put(context.WithoutCancel(ctx), records...), ctx.Err())
		}}
	}},
	{"a done context looks like no records", []string{"ContextDone"}, func(m *state.Memory) broken {
		return broken{each: func(ctx context.Context, prefix string) iter.Seq2[state.Record, error] {
			return func(yield func(state.Record, error) bool) {
				for r, err := range m.Each(ctx, prefix) {
					if err != nil || !yield(r, nil) {
						return
					}
				}
			}
		}}
	}},
	{"the second record of a batch is stored later", []string{"Concurrent"}, func(m *state.Memory) broken {
		return withEach(m, func(all []state.Record) []state.Record {
			return slices.DeleteFunc(all, func(r state.Record) bool { return strings.HasSuffix(r.Key, "b") })
		})
	}},
}

// withEach changes the records that Each yields.
func withEach(m *state.Memory, change func([]state.Record) []state.Record) broken {
	return broken{each: func(ctx context.Context, prefix string) iter.Seq2[state.Record, error] {
		return func(yield func(state.Record, error) bool) {
			var all []state.Record
			for r, err := range m.Each(ctx, prefix) {
				if err != nil {
					yield(r, err)
					return
				}
				all = append(all, r)
			}
			for _, r := range change(all) {
				if !yield(r, nil) {
					return
				}
			}
		}
	}}
}

func TestMuseum(t *testing.T) {
	byName := make(map[string]check)
	for _, c := range checks {
		byName[c.name] = c
	}
	open := func(make func(m *state.Memory) broken) state.Store {
		m := state.NewMemory()
		b := make(m)
		b.Store = m
		return b
	}
	for _, m := range museum {
		t.Run(m.fault, func(t *testing.T) {
			if m.caught == nil {
				for _, c := range checks {
					assert.NoError(t, c.run(t.Context(), open(m.make)), c.name)
				}
			}
			for _, name := range m.caught {
				require.Contains(t, byName, name)
				assert.Error(t, byName[name].run(t.Context(), open(m.make)), "%s did not notice", name)
			}
		})
	}
}
