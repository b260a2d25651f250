//go:build !linux

package gitfetch

// limitMemory does nothing: only git's own limit holds here.
func limitMemory(int, uint64) error { return nil }
