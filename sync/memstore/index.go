package memstore

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strconv"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/filters"
)

// term is a condition of a filter: one value of authors, kinds, or a tag whose name is one letter,
// because filters can ask for these tags only (NIP-01).
type term struct{ list, value string }

// terms yields the terms of an event, with repetitions.
func terms(ev *nostr.Event) iter.Seq[term] {
	return func(yield func(term) bool) {
		if !yield(term{filters.ListAuthors, ev.PubKey}) || !yield(kindTerm(ev.Kind)) {
			return
		}
		for _, t := range ev.Tags {
			if len(t) >= 2 && len(t[0]) == 1 && !yield(term{t[0], t[1]}) {
				return
			}
		}
	}
}

func kindTerm(kind int) term { return term{filters.ListKinds, strconv.Itoa(kind)} }

// index maps a term to its entries in order of insertion.
type index map[term][]*entry

func (x index) add(e *entry) {
	for t := range terms(e.event.Event) {
		if list := x[t]; len(list) == 0 || list[len(list)-1] != e {
			x[t] = append(list, e)
		}
	}
}

func (x index) remove(e *entry) {
	for t := range terms(e.event.Event) {
		i, ok := slices.BinarySearchFunc(x[t], e, inOrder)
		if !ok {
			continue
		}
		if x[t] = slices.Delete(x[t], i, i+1); len(x[t]) == 0 {
			delete(x, t)
		}
	}
}

func inOrder(a, b *entry) int { return cmp.Compare(a.number, b.number) }

// candidates returns the shortest list that contains every match, with repetitions. The caller holds
// mu for reading.
func (s *Store) candidates(f nostr.Filter) (out []*entry) {
	if f.IDs != nil {
		for _, text := range f.IDs {
			id, err := graspsync.ParseEventID(text)
			if e := s.events[id]; err == nil && e != nil {
				out = append(out, e)
			}
		}
		return out
	}
	lists := map[string][]string{filters.ListAuthors: f.Authors}
	for _, kind := range f.Kinds {
		lists[filters.ListKinds] = append(lists[filters.ListKinds], strconv.Itoa(kind))
	}
	for name, values := range f.Tags {
		if len(name) == 1 {
			lists[name] = values
		}
	}
	found := false
	for name, values := range lists {
		var list []*entry
		for _, v := range slices.Compact(slices.Sorted(slices.Values(values))) {
			list = append(list, s.index[term{name, v}]...)
		}
		if len(values) > 0 && (!found || len(list) < len(out)) {
			out, found = list, true
		}
	}
	if !found {
		out = slices.Collect(maps.Values(s.events))
	}
	return out
}

// read yields a part of each matching event in order of insertion, or an error as the last pair. It
// does not hold the lock while it yields.
func read[T any](ctx context.Context, s *Store, f nostr.Filter, part func(graspsync.Event) T) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		var none T
		for _, e := range s.collect(f) {
			if ctx.Err() != nil {
				break
			}
			if !yield(part(e.event), nil) {
				return
			}
		}
		if err := ctx.Err(); err != nil {
			yield(none, fmt.Errorf("reading events: %w", err))
		}
	}
}

func (s *Store) collect(f nostr.Filter) []*entry {
	s.mu.RLock()
	defer s.mu.RUnlock()
	wanted := filters.Compile([]nostr.Filter{f})
	found := slices.DeleteFunc(s.candidates(f), func(e *entry) bool { return !wanted.Match(e.event.Event) })
	slices.SortFunc(found, inOrder)
	return slices.Compact(found)
}
