// Package nearest finds the known name that is most similar to an unknown name.
package nearest

import (
	"flag"
	"fmt"
	"strings"
)

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

// Flag adds the nearest flag to an error of fs.Parse about an unknown flag.
func Flag(fs *flag.FlagSet, err error) error {
	name, unknown := strings.CutPrefix(err.Error(), "flag provided but not defined: -")
	if !unknown {
		return err
	}
	var known []string
	fs.VisitAll(func(f *flag.Flag) { known = append(known, f.Name) })
	return fmt.Errorf("%w, the nearest flag is -%s", err, Of(name, known))
}
