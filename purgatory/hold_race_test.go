//go:build race

package purgatory_test

import "time"

// holdKilled is Hold in the process that is killed. The race detector makes the process several
// times slower.
const holdKilled = 6 * time.Second
