//go:build !unix

package disk

import (
	"io/fs"
	"math"
)

// Files returns the maximum number of open files. On this system the limit is unknown.
func Files() int { return math.MaxInt }

// Links returns 1, because the number of hard links is unknown.
func Links(fs.FileInfo) int64 { return 1 }
