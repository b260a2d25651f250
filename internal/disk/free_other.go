//go:build !linux

package disk

import "math"

// Free returns the maximum, because the free space is unknown.
func Free(string) (uint64, error) { return math.MaxUint64, nil }
