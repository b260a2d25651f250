// Package gitfetch fetches git objects that events name from git servers into bare repositories.
//
// It implements the smart HTTP protocol in Go, over the dialer of package egress. Git never uses
// the network, and gets no untrusted text as argument or environment. Fetched objects go into a
// quarantine, which is promoted after all wanted objects are complete. An error before leaves the
// repository unchanged.
package gitfetch
