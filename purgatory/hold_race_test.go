//go:build race

package purgatory_test

import "time"

// holdKilled is how long events wait in the process that is killed. The race detector makes it several times slower.
const holdKilled = 6 * time.Second
