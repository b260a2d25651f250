// Package lazy fills maps that are made when something is put into them.
package lazy

// Put sets an entry of a map that may be nil still.
func Put[K comparable, V any](m *map[K]V, k K, v V) {
	if *m == nil {
		*m = make(map[K]V)
	}
	(*m)[k] = v
}
