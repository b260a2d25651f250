// Package racetest is how much tests do. The race detector makes them five to ten times slower
// and looks at nothing but memory that goroutines share; so a test with which it has nothing to do
// says so itself:
//
//	func TestTenThousandUploads(t *testing.T) {
//		racetest.Amounts(t)
//
// All of them run without it. This runs them with it, for an hour or two:
//
//	GRASPSYNC_RACE=all go test -race -timeout 3h work
//
// What is drawn at random, or done for each of many steps or cases, can be done more often than there is time
// for on every commit: here ten times as often, and for every step and case.
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

// Amounts skips a test under the race detector whose subject is how much there is of something,
// how long it takes, or what one goroutine does: a shorter test beside it has the same goroutines.
func Amounts(t testing.TB) {
	t.Helper()
	if Enabled && os.Getenv("GRASPSYNC_RACE") != "all" {
		t.Skip("about amounts or times: GRASPSYNC_RACE=all runs it under the race detector")
	}
}

// Foreign skips a test under the race detector in which somebody else's code has a data race.
func Foreign(t testing.TB, race string) {
	t.Helper()
	if Enabled {
		t.Skip("not under the race detector: ", race)
	}
}

// Rounds returns how often a test draws that draws n times: a tenth with -short, and as many times
// more as GRASPSYNC_ROUNDS says.
func Rounds(n int) int {
	if testing.Short() {
		n = max(1, n/10)
	}
	return n * more()
}

// Steps yields numbers from 1 on, for a test that has each of many steps fail once and breaks off after the
// last one: 1, and one of n of the others, drawn anew each time; of 4n with -short. With GRASPSYNC_ROUNDS it
// is so many times more, at most all.
func Steps(n int) iter.Seq[int] {
	if testing.Short() {
		n *= 4
	}
	apart := max(1, n/more())
	return func(yield func(int) bool) {
		for at := 1; yield(at); at += 1 + rand.N(2*apart-1) { //nolint:gosec // nobody is to be surprised
		}
	}
}

// Some returns n of several cases, in their order, drawn anew each time; so many times more as
// GRASPSYNC_ROUNDS says.
func Some[E any](n int, all []E) []E {
	some := slices.Clone(all)
	for surplus := len(all) - n*more(); surplus > 0; surplus-- {
		at := rand.N(len(some)) //nolint:gosec // nobody is to be surprised
		some = slices.Delete(some, at, at+1)
	}
	return some
}

func more() int {
	text := os.Getenv("GRASPSYNC_ROUNDS")
	if text == "" {
		return 1
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		panic("GRASPSYNC_ROUNDS is " + strconv.Quote(text) + ", want a number from 1")
	}
	return n
}
