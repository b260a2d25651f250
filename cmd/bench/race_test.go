//go:build race

package main

// raceEnabled: go-nostr has data races, so that the race detector would fail its
// runs. Ours are run.
const raceEnabled = true
