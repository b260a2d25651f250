//go:build race

package batchverify

// The race detector makes field arithmetic some ten times slower; it looks for other
// things than wrong sums.
const thoroughness = 40
