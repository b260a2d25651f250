// Package racetest is how much tests do. The race detector makes them five to ten times slower
// and looks at nothing but memory that goroutines share; so a test with which it has nothing to do
// says so itself:
//
//	func TestTenThousandUploads(t *testing.T) {
//		racetest.Amounts(t)
//
// All of them run without it. This runs them with it, for an hour or two:
//
//	GRASPSYNC_RACE=all go test -race -timeout 3h ./...
//
// What is drawn at random can be drawn more often than there is time for on every commit:
//
//	GRASPSYNC_ROUNDS=10 go test -timeout 3h ./...
package racetest

import (
	"os"
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
	if more := os.Getenv("GRASPSYNC_ROUNDS"); more != "" {
		times, err := strconv.Atoi(more)
		if err != nil || times < 1 {
			panic("GRASPSYNC_ROUNDS is " + strconv.Quote(more) + ", want a number from 1")
		}
		n *= times
	}
	return n
}
