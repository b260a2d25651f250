//go:build race

package batchverify

// The race detector makes field arithmetic about ten times slower and cannot find wrong sums.
const thoroughness = 40
