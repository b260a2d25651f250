// Package lazy creates maps at the first insertion.
package lazy

// Put sets an entry of a map that may be nil.
func Put[K comparable, V any](m *map[K]V, k K, v V) {
	if *m == nil {
		*m = make(map[K]V)
	}
	(*m)[k] = v
}
