//go:build !linux

package gitfetch

import "math"

// limitMemory does nothing: only git's own limit holds here.
func limitMemory(int, uint64) error { return nil }

// freeDisk is not known here.
func freeDisk(string) (uint64, error) { return math.MaxUint64, nil }
