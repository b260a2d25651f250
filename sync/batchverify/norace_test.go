//go:build !race

package batchverify

// thoroughness divides the number of rounds of tests that compare with a twin.
const thoroughness = 1
