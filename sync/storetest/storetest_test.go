package storetest

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/eventtest"
	"github.com/graspsync/graspsync/internal/racetest"
	"github.com/graspsync/graspsync/nip34"
	relaysync "github.com/graspsync/graspsync/sync"
	"github.com/graspsync/graspsync/sync/memstore"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestRun(t *testing.T) {
	Run(t, func(*testing.T) relaysync.Store { return memstore.New() })
}

// broken is a correct Store with one fault.
type broken struct {
	*memstore.Store
	save    func(s *memstore.Store, ctx context.Context, in []graspsync.Incoming) ([]graspsync.Outcome, error)
	none    bool // Save also stores the zero event
	has     func(s *memstore.Store, ids []graspsync.EventID) ([]bool, error)
	filter  func(f nostr.Filter) nostr.Filter
	events  func(yield func(graspsync.Event, error) bool, all iter.Seq2[graspsync.Event, error])
	deleted func(s *memstore.Store, ctx context.Context, e graspsync.Event) (bool, error)
	remove  func(s *memstore.Store, ctx context.Context, e *nostr.Event) error
}

func (b broken) Remove(ctx context.Context, e graspsync.Event) error {
	if b.remove != nil {
		return b.remove(b.Store, ctx, e.Event)
	}
	return b.Store.Remove(ctx, e)
}

func (b broken) Save(ctx context.Context, in []graspsync.Incoming) ([]graspsync.Outcome, error) {
	if b.save != nil && (b.none || !slices.ContainsFunc(in, func(in graspsync.Incoming) bool { return in.Event.IsZero() })) {
		return b.save(b.Store, ctx, in)
	}
	return b.Store.Save(ctx, in)
}

func (b broken) Has(ctx context.Context, ids []graspsync.EventID) ([]bool, error) {
	if b.has != nil {
		return b.has(b.Store, ids)
	}
	return b.Store.Has(ctx, ids)
}

func (b broken) Deleted(ctx context.Context, e graspsync.Event) (bool, error) {
	if b.deleted != nil {
		return b.deleted(b.Store, ctx, e)
	}
	return b.Store.Deleted(ctx, e)
}

func (b broken) Events(ctx context.Context, f nostr.Filter) iter.Seq2[graspsync.Event, error] {
	if b.filter != nil {
		f = b.filter(f)
	}
	all := b.Store.Events(ctx, f)
	if b.events == nil {
		return all
	}
	return func(yield func(graspsync.Event, error) bool) { b.events(yield, all) }
}

func (b broken) Keys(ctx context.Context, f nostr.Filter) iter.Seq2[graspsync.EventKey, error] {
	return func(yield func(graspsync.EventKey, error) bool) {
		for e, err := range b.Events(ctx, f) {
			if err != nil {
				yield(graspsync.EventKey{}, err)
				return
			}
			if !yield(graspsync.EventKey{CreatedAt: e.CreatedAt, ID: idOf(e.Event)}, nil) {
				return
			}
		}
	}
}

// each returns a Save that applies rule to each event; a nil outcome means the correct Save.
func each(rule func(s *memstore.Store, e *nostr.Event) *graspsync.Outcome) func(
	*memstore.Store, context.Context, []graspsync.Incoming) ([]graspsync.Outcome, error) {
	return func(s *memstore.Store, ctx context.Context, in []graspsync.Incoming) ([]graspsync.Outcome, error) {
		out := make([]graspsync.Outcome, 0, len(in))
		for i := range in {
			if o := rule(s, in[i].Event.Event); o != nil {
				out = append(out, *o)
				continue
			}
			o, err := s.Save(ctx, in[i:i+1])
			if err != nil {
				return nil, err
			}
			out = append(out, o...)
		}
		return out, nil
	}
}

func firstN(n int) func(func(graspsync.Event, error) bool, iter.Seq2[graspsync.Event, error]) {
	return func(yield func(graspsync.Event, error) bool, all iter.Seq2[graspsync.Event, error]) {
		i := 0
		for e, err := range all {
			if i++; i > n || !yield(e, err) {
				return
			}
		}
	}
}

// stored is a Store that calls a result Stored.
func stored(result graspsync.Result) broken {
	return broken{save: each(func(s *memstore.Store, e *nostr.Event) *graspsync.Outcome {
		o, _ := s.Save(context.Background(), incoming(e))
		if o[0].Result == result {
			o[0] = graspsync.Outcome{Result: graspsync.Stored}
		}
		return &o[0]
	})}
}

// changed is a Store that changes events before it saves them.
func changed(change func(e *nostr.Event)) broken {
	return broken{save: each(func(s *memstore.Store, e *nostr.Event) *graspsync.Outcome {
		c, in := *e, incoming(e)
		change(&c)
		in[0].Event.Event = &c
		o, _ := s.Save(context.Background(), in)
		return &o[0]
	})}
}

// times is a Store that yields each event several times or not.
func times(of func(e graspsync.Event) int) broken {
	return broken{events: func(yield func(graspsync.Event, error) bool, all iter.Seq2[graspsync.Event, error]) {
		for e, err := range all {
			for range of(e) {
				if !yield(e, err) {
					return
				}
			}
		}
	}}
}

// museum returns Stores with faults that real Stores had.
func museum(release <-chan struct{}) map[string]broken {
	ctx := context.Background()
	seen := map[string]string{}
	lifted := nip34.NewTombstones(nip34.Identity{})
	return map[string]broken{
		"nothing is removed": {remove: func(*memstore.Store, context.Context, *nostr.Event) error { return nil }},
		"it is removed though it is said that it can't": {remove: func(s *memstore.Store, ctx context.Context, e *nostr.Event) error {
			return errors.Join(relaysync.ErrCannotRemove, s.Remove(ctx, eventtest.Of(e)))
		}},
		"it can't be removed, some kinds of it": {remove: func(s *memstore.Store, ctx context.Context, e *nostr.Event) error {
			if e.Kind == 30617 {
				return relaysync.ErrCannotRemove
			}
			return s.Remove(ctx, eventtest.Of(e))
		}},
		"what is not there can't be removed": {remove: func(s *memstore.Store, ctx context.Context, e *nostr.Event) error {
			if has, err := s.Has(ctx, []graspsync.EventID{idOf(e)}); err != nil || !has[0] {
				return errors.New("not here")
			}
			return s.Remove(ctx, eventtest.Of(e))
		}},
		"removal deletes": {remove: func(s *memstore.Store, ctx context.Context, e *nostr.Event) error {
			d := nostr.Event{PubKey: e.PubKey, Kind: nostr.KindDeletion, CreatedAt: e.CreatedAt, Tags: nostr.Tags{{"e", e.ID}}}
			d.ID = d.GetID()
			_, err := s.Save(ctx, []graspsync.Incoming{{Event: eventtest.Of(&d)}})
			return err
		}},
		"removal goes by the address": {remove: func(s *memstore.Store, ctx context.Context, e *nostr.Event) error {
			for o, err := range s.Events(ctx, nostr.Filter{Kinds: []int{e.Kind}, Authors: []string{e.PubKey}}) {
				if err != nil {
					return err
				}
				if o.Tags.GetD() == e.Tags.GetD() {
					_ = s.Remove(ctx, o)
				}
			}
			return ctx.Err()
		}},
		"removal goes on when its context has ended": {remove: func(s *memstore.Store, _ context.Context, e *nostr.Event) error {
			return s.Remove(context.Background(), eventtest.Of(e))
		}},
		"what a removed deletion covered stays deleted": {
			remove: func(s *memstore.Store, ctx context.Context, e *nostr.Event) error {
				lifted.Add(eventtest.Of(e))
				return s.Remove(ctx, eventtest.Of(e))
			},
			deleted: func(s *memstore.Store, ctx context.Context, e graspsync.Event) (bool, error) {
				is, err := s.Deleted(ctx, e)
				return err == nil && (is || lifted.Covers(e)), err
			},
		},
		"comments are not deleted": {save: each(func(s *memstore.Store, e *nostr.Event) *graspsync.Outcome {
			if e.Kind != nostr.KindDeletion {
				return nil
			}
			c := *e
			c.Tags = slices.DeleteFunc(slices.Clone(e.Tags), func(t nostr.Tag) bool {
				has := false
				for range s.Events(ctx, nostr.Filter{IDs: t[1:2], Kinds: []int{kindComment}}) {
					has = true
				}
				return has
			})
			o, _ := s.Save(ctx, incoming(&c))
			return &o[0]
		})},
		"a deleted version gives way to the one before": {save: each(func(s *memstore.Store, e *nostr.Event) *graspsync.Outcome {
			for _, t := range e.Tags {
				if e.Kind != nostr.KindDeletion || t[0] != "e" {
					continue
				}
				for v := range s.Events(ctx, nostr.Filter{IDs: t[1:2], Authors: []string{e.PubKey}}) {
					if !nostr.IsRegularKind(v.Kind) {
						_ = s.Remove(ctx, v)
					}
				}
			}
			return nil
		})},
		"nobody vanishes": changed(func(e *nostr.Event) {
			if e.Kind == kindVanish {
				e.Tags = nil
			}
		}),
		"answers end at 500":   {events: firstN(500)},
		"answers end at 1,000": {events: firstN(1000)},
		"answers end at 2,000": {events: firstN(2000)},
		"since is exclusive": {filter: func(f nostr.Filter) nostr.Filter {
			if f.Since != nil {
				since := *f.Since + 1
				f.Since = &since
			}
			return f
		}},
		"until is exclusive": {filter: func(f nostr.Filter) nostr.Filter {
			if f.Until != nil {
				until := *f.Until - 1
				f.Until = &until
			}
			return f
		}},
		"100 tag values at most": {filter: func(f nostr.Filter) nostr.Filter {
			tags := nostr.TagMap{}
			for name, values := range f.Tags {
				tags[name] = values[:min(len(values), 100)]
			}
			f.Tags = tags
			return f
		}},
		"tags are told by their values": {filter: func(f nostr.Filter) nostr.Filter {
			if v, ok := f.Tags["A"]; ok {
				f.Tags = nostr.TagMap{"a": v}
			}
			return f
		}},
		"long tag values are not found": times(func(e graspsync.Event) int {
			if !e.IsZero() && len(e.Tags) > 0 && len(e.Tags[0]) > 1 && len(e.Tags[0][1]) > 100 {
				return 0
			}
			return 1
		}),
		"events come twice": times(func(graspsync.Event) int { return 2 }),
		"an error is swallowed": {events: func(yield func(graspsync.Event, error) bool, all iter.Seq2[graspsync.Event, error]) {
			for e, err := range all {
				if err != nil || !yield(e, nil) {
					return
				}
			}
		}},
		"goes on after an error": {events: func(yield func(graspsync.Event, error) bool, all iter.Seq2[graspsync.Event, error]) {
			for e, err := range all {
				if !yield(e, err) || err != nil && !yield(graspsync.Event{}, err) {
					return
				}
			}
		}},
		"breaking out leaks": {events: func(yield func(graspsync.Event, error) bool, all iter.Seq2[graspsync.Event, error]) {
			for e, err := range all {
				if !yield(e, err) {
					go func() { <-release }()
					return
				}
			}
		}},
		"ties go to the highest id": {save: each(func(s *memstore.Store, e *nostr.Event) *graspsync.Outcome {
			if nostr.IsRegularKind(e.Kind) {
				return nil
			}
			key := fmt.Sprint(modelKey(e), e.CreatedAt)
			if first, ok := seen[key]; ok && e.ID < first {
				return &graspsync.Outcome{Result: graspsync.Superseded}
			}
			seen[key] = e.ID
			return nil
		})},
		"superseded versions count as stored": stored(graspsync.Superseded),
		"what nobody has parsed is stored": {none: true, save: func(s *memstore.Store, ctx context.Context, in []graspsync.Incoming) ([]graspsync.Outcome, error) {
			in = slices.Clone(in)
			for i := range in {
				in[i].Event = eventtest.Of(in[i].Event.Event)
			}
			return s.Save(ctx, in)
		}},
		"deletions are not executed": changed(func(e *nostr.Event) {
			if e.Kind == nostr.KindDeletion {
				e.Tags = nil
			}
		}),
		"anyone can delete": {save: each(func(s *memstore.Store, e *nostr.Event) *graspsync.Outcome {
			if e.Kind == nostr.KindDeletion {
				for _, t := range e.Tags {
					if _, err := graspsync.ParseEventID(t[1]); err == nil {
						_ = s.Remove(ctx, eventtest.Of(&nostr.Event{ID: t[1]}))
					}
				}
			}
			return nil
		})},
		"no tombstones": stored(graspsync.Deleted),
		"deleted goes by the address alone": {deleted: func(s *memstore.Store, ctx context.Context, e graspsync.Event) (bool, error) {
			c := *e.Event
			c.CreatedAt = start
			return s.Deleted(ctx, eventtest.Of(&c))
		}},
		"ephemeral events are stored": stored(graspsync.Refused),
		"refused without a reason": {save: each(func(s *memstore.Store, e *nostr.Event) *graspsync.Outcome {
			o, _ := s.Save(ctx, incoming(e))
			o[0].Err = nil
			return &o[0]
		})},
		"duplicates count as stored": stored(graspsync.Duplicate),
		"an outcome is missing": {save: func(s *memstore.Store, ctx context.Context, in []graspsync.Incoming) ([]graspsync.Outcome, error) {
			o, err := s.Save(ctx, in)
			return o[:max(0, len(o)-1)], err
		}},
		"deletions can be deleted": {save: each(func(s *memstore.Store, e *nostr.Event) *graspsync.Outcome {
			if e.Kind == nostr.KindDeletion {
				for _, t := range e.Tags {
					for d, err := range s.Events(ctx, nostr.Filter{IDs: []string{t[1]}, Kinds: []int{5}}) {
						if err == nil && d.PubKey.String() == e.PubKey {
							_ = s.Remove(ctx, d)
						}
					}
				}
			}
			return nil
		})},
		"has says yes": {has: func(_ *memstore.Store, ids []graspsync.EventID) ([]bool, error) {
			has := make([]bool, len(ids))
			for i := range has {
				has[i] = true
			}
			return has, nil
		}},
		"has looks up 500 ids": {has: func(s *memstore.Store, ids []graspsync.EventID) ([]bool, error) {
			has, err := s.Has(ctx, ids[:min(len(ids), 500)])
			return append(has, make([]bool, len(ids)-len(has))...), err
		}},
		"has ignores the context": {has: func(s *memstore.Store, ids []graspsync.EventID) ([]bool, error) {
			return s.Has(ctx, ids)
		}},
		"content is cut": changed(func(e *nostr.Event) { e.Content = e.Content[:min(len(e.Content), math.MaxInt16)] }),
		"saving fails now and then": {save: each(func(s *memstore.Store, e *nostr.Event) *graspsync.Outcome {
			if e.ID[0] == '0' {
				return &graspsync.Outcome{Result: graspsync.Failed, Err: errors.New("conflict")}
			}
			return nil
		})},
	}
}

// locked is a Store with one lock that it holds while it yields, until release.
type locked struct {
	*memstore.Store
	lock    chan struct{} // one slot
	release <-chan struct{}
}

func (l locked) hold() (unlock func()) {
	select {
	case l.lock <- struct{}{}:
		return func() { <-l.lock }
	case <-l.release:
		return func() {}
	}
}

func (l locked) Save(ctx context.Context, in []graspsync.Incoming) ([]graspsync.Outcome, error) {
	defer l.hold()()
	return l.Store.Save(ctx, in)
}

func (l locked) Keys(ctx context.Context, f nostr.Filter) iter.Seq2[graspsync.EventKey, error] {
	return func(yield func(graspsync.EventKey, error) bool) {
		defer l.hold()()
		l.Store.Keys(ctx, f)(yield)
	}
}

// A Store that deadlocks when it is called during an iteration is reported within a deadline.
func TestALockThatIsHeldWhileItYields(t *testing.T) {
	release := make(chan struct{})
	t.Cleanup(func() { close(release) })
	l := locked{memstore.New(), make(chan struct{}, 1), release}
	err := meanwhile(newSubject(t.Context(), l), 200*time.Millisecond)
	require.EqualError(t, err, "a call during an iteration does not return: is a lock held while it yields?")
	require.NoError(t, meanwhile(newSubject(t.Context(), memstore.New()), patience))
}

// A Store without identity executes no request to vanish that names the service.
func TestRunAs(t *testing.T) {
	us, err := nip34.ParseIdentity("grasp.example", "relay.example")
	require.NoError(t, err)
	require.NoError(t, checkVanishHere(newSubject(t.Context(), memstore.New(memstore.WithIdentity(us))), us))
	require.ErrorContains(t, checkVanishHere(newSubject(t.Context(), memstore.New()), us), "grasp.example")
}

// At least one check detects each Store of the museum.
func TestMuseum(t *testing.T) {
	racetest.Amounts(t)
	release := make(chan struct{})
	t.Cleanup(func() { close(release) })
	for name, b := range museum(release) {
		t.Run(name, func(t *testing.T) {
			for _, c := range checks() {
				b.Store = memstore.New()
				if err := c.run(newSubject(t.Context(), b)); err != nil {
					t.Logf("%s: %v", c.name, err)
					return
				}
			}
			assert.Fail(t, "no check found anything wrong")
		})
	}
}

// folders are Stores by folder.
type folders map[string]*memstore.Store

func (f folders) open(folder string) *memstore.Store {
	if f[folder] == nil {
		f[folder] = memstore.New()
	}
	return f[folder]
}

func TestRunDurable(t *testing.T) {
	all := folders{}
	RunDurable(t, func(_ *testing.T, folder string) (relaysync.Store, func()) { return all.open(folder), func() {} })
}

// Every Store that loses something when it is closed is detected.
func TestWhatDoesNotLast(t *testing.T) {
	for name, lasts := range map[string]func(graspsync.Event) bool{
		"nothing":     func(graspsync.Event) bool { return false },
		"an event":    func(e graspsync.Event) bool { return e.Kind != kindIssue },
		"deletions":   func(e graspsync.Event) bool { return e.Kind != nostr.KindDeletion },
		"vanishing":   func(e graspsync.Event) bool { return e.Kind != kindVanish },
		"its removal": nil,
	} {
		t.Run(name, func(t *testing.T) {
			last := memstore.New()
			var removed []graspsync.Event
			err := durable(t.Context(), func(visit func(relaysync.Store) error) error {
				now := memstore.New()
				for e, err := range last.Events(t.Context(), nostr.Filter{}) {
					require.NoError(t, err)
					if lasts == nil || lasts(e) {
						require.NoError(t, newSubject(t.Context(), now).save(e.Event))
					}
				}
				for _, e := range removed { // stays where removal is not durable
					require.NoError(t, newSubject(t.Context(), now).deliver([][]*nostr.Event{{e.Event}}))
				}
				last = now
				return visit(broken{Store: now, remove: func(s *memstore.Store, ctx context.Context, e *nostr.Event) error {
					if lasts == nil {
						removed = append(removed, eventtest.Of(e))
					}
					return s.Remove(ctx, eventtest.Of(e))
				}})
			})
			require.Error(t, err)
		})
	}
}
