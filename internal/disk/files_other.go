//go:build !unix

package disk

import "math"

// Files returns the maximum number of open files. On this system the limit is unknown.
func Files() int { return math.MaxInt }
