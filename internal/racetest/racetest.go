// Package racetest controls the amount of work of tests. The race detector makes tests five to ten
// times slower and checks only concurrent memory access. Tests for which it is useless call
// Amounts:
//
//	func TestTenThousandUploads(t *testing.T) {
//		racetest.Amounts(t)
//
// All tests run without the race detector. This command runs each test with the detector, in one to two
// hours:
//
//	GRASPSYNC_RACE=all go test -race -timeout 3h work
//
// Random tests, and tests of many steps or cases, can run more rounds than there is time for on
// each commit. This command multiplies rounds by 10:
//
//	GRASPSYNC_ROUNDS=10 go test -timeout 3h work
package racetest

import (
	"iter"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"
)

// Amounts skips a test of amounts, durations or a single goroutine under the race detector.
func Amounts(t testing.TB) {
	t.Helper()
	if Enabled && os.Getenv("GRASPSYNC_RACE") != "all" {
		t.Skip("about amounts or times: GRASPSYNC_RACE=all runs it under the race detector")
	}
}

// Foreign skips a test under the race detector because foreign code has a data race.
func Foreign(t testing.TB, race string) {
	t.Helper()
	if Enabled {
		t.Skip("not under the race detector: ", race)
	}
}

// Rounds returns the number of rounds of a random test: n, n/10 with -short, times
// GRASPSYNC_ROUNDS.
func Rounds(n int) int {
	if testing.Short() {
		n = max(1, n/10)
	}
	return n * multiplier()
}

// Steps yields 1, and on average every n-th of the other step numbers at random, with -short every
// 4n-th, for a test that makes each of many steps fail. GRASPSYNC_ROUNDS divides n.
func Steps(n int) iter.Seq[int] {
	if testing.Short() {
		n *= 4
	}
	apart := max(1, n/multiplier())
	return func(yield func(int) bool) {
		for at := 1; yield(at); at += 1 + rand.N(2*apart-1) { //nolint:gosec // nobody is to be surprised
		}
	}
}

// Some returns n times GRASPSYNC_ROUNDS random elements, in their order.
func Some[E any](n int, all []E) []E {
	some := slices.Clone(all)
	for len(some) > n*multiplier() {
		at := rand.N(len(some)) //nolint:gosec // nobody is to be surprised
		some = slices.Delete(some, at, at+1)
	}
	return some
}

func multiplier() int {
	text := os.Getenv("GRASPSYNC_ROUNDS")
	if text == "" {
		return 1
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		panic("GRASPSYNC_ROUNDS is " + text + ", want a number from 1")
	}
	return n
}
