//go:build !race

package purgatory_test

import "time"

// holdKilled is Hold in the process that is killed.
const holdKilled = 5 * time.Second
