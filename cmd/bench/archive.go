package main

import (
	"cmp"
	"slices"
	"sync"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync/filters"
)

// archive answers filters from events that do not change, newest first. Everything is indexed, so
// that the clients dominate the measurement.
type archive struct {
	records []*nostr.Event // newest first; an index into it is a place
	ids     map[string]int
	tags    map[[2]string][]int
	kinds   map[int][]int
	authors map[string][]int
	all     []int

	mu     sync.Mutex
	recent map[string][]int // guarded by mu: places by filter
}

// maxRecent is the maximum number of cached answers: some for each running reconciliation or walk
// through pages.
const maxRecent = 64

func newArchive(records []*nostr.Event) *archive {
	a := &archive{
		records: records, ids: make(map[string]int), tags: make(map[[2]string][]int),
		kinds: make(map[int][]int), authors: make(map[string][]int), recent: make(map[string][]int),
	}
	slices.SortFunc(records, func(a, b *nostr.Event) int {
		return cmp.Or(cmp.Compare(b.CreatedAt, a.CreatedAt), cmp.Compare(a.ID, b.ID))
	})
	for i, r := range records {
		a.all = append(a.all, i)
		a.ids[r.ID] = i
		a.kinds[r.Kind] = append(a.kinds[r.Kind], i)
		a.authors[r.PubKey] = append(a.authors[r.PubKey], i)
		for _, t := range r.Tags {
			if len(t) >= 2 && len(t[0]) == 1 {
				key := [2]string{t[0], t[1]}
				a.tags[key] = append(a.tags[key], i)
			}
		}
	}
	return a
}

// query returns the places of the newest matching events, at most most.
func (a *archive) query(f nostr.Filter, most int) []int {
	places := a.matching(f)
	if f.Until != nil {
		from, _ := slices.BinarySearchFunc(places, *f.Until, func(i int, until nostr.Timestamp) int {
			return cmp.Compare(until, a.records[i].CreatedAt)
		})
		places = places[from:]
	}
	if f.Since != nil {
		to, _ := slices.BinarySearchFunc(places, *f.Since, func(i int, since nostr.Timestamp) int {
			if a.records[i].CreatedAt >= since {
				return -1
			}
			return 1
		})
		places = places[:to]
	}
	return places[:min(most, len(places))]
}

// matching returns the places of all matching events of any time. It caches answers, because a walk
// through pages repeats its query.
func (a *archive) matching(f nostr.Filter) []int {
	f.Since, f.Until, f.Limit, f.LimitZero = nil, nil, 0, false
	if len(f.IDs) > 0 { // not asked again
		return a.find(f)
	}
	key := f.String()
	a.mu.Lock()
	places, ok := a.recent[key]
	a.mu.Unlock()
	if ok {
		return places
	}
	places = a.find(f)
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.recent) >= maxRecent {
		clear(a.recent)
	}
	a.recent[key] = places
	return places
}

func (a *archive) find(f nostr.Filter) []int {
	match := filters.Compile([]nostr.Filter{f})
	var found []int
	for _, i := range a.candidates(f) {
		if match.Match(a.records[i]) {
			found = append(found, i)
		}
	}
	return found
}

// candidates returns sorted places that contain all matches.
func (a *archive) candidates(f nostr.Filter) []int {
	var lists [][]int
	switch {
	case len(f.IDs) > 0:
		for _, id := range f.IDs {
			if i, ok := a.ids[id]; ok {
				lists = append(lists, []int{i})
			}
		}
	case len(f.Tags) > 0:
		for name, values := range f.Tags {
			for _, v := range values {
				lists = append(lists, a.tags[[2]string{name, v}])
			}
			break // one tag name is enough
		}
	case len(f.Authors) > 0:
		for _, author := range f.Authors {
			lists = append(lists, a.authors[author])
		}
	case len(f.Kinds) > 0:
		for _, kind := range f.Kinds {
			lists = append(lists, a.kinds[kind])
		}
	default:
		return a.all
	}
	places := slices.Concat(lists...)
	slices.Sort(places)
	return slices.Compact(places)
}
