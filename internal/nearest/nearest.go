// Package nearest finds the known name that is most similar to an unknown name.
package nearest

// Of returns the name in known with the smallest [Distance] to name, or "" if known is empty.
func Of(name string, known []string) (nearest string) {
	best := -1
	for _, k := range known {
		if d := Distance(name, k); best < 0 || d < best {
			best, nearest = d, k
		}
	}
	return nearest
}

// Distance returns the number of bytes to insert, delete or replace to change one name into the
// other.
func Distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost = 1 + min(diagonal, row[j], row[j+1])
			}
			diagonal, row[j+1] = row[j+1], cost
		}
	}
	return row[len(b)]
}
