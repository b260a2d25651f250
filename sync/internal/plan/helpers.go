package plan

import (
	"maps"
	"slices"
)

func without[K comparable, V any](m map[K]V, named map[K]struct{}) map[K]struct{} {
	out := make(map[K]struct{})
	for k := range m {
		if _, ok := named[k]; !ok {
			out[k] = struct{}{}
		}
	}
	return out
}

// sortedBy returns the keys in order, so that effects do not depend on the order of a map.
func sortedBy[K comparable, V any](m map[K]V, compare func(a, b K) int) []K {
	return slices.SortedFunc(maps.Keys(m), compare)
}

func drop(m *map[Item]struct{}, it Item) {
	if delete(*m, it); len(*m) == 0 {
		*m = nil
	}
}

func has(m map[Item]struct{}, it Item) bool {
	_, ok := m[it]
	return ok
}
