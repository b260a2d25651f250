//go:build !race

package batchverify

// thoroughness divides the number of rounds of tests that compare with the reference.
const thoroughness = 1
