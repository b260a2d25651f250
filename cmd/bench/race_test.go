//go:build race

package main

// raceEnabled skips go-nostr, which has data races. Our client runs.
const raceEnabled = true
