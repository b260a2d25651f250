// Package gitfetch fetches git objects that events name from git servers into bare repositories.
//
// It implements the smart HTTP protocol in Go, over the dialer of package egress. Git never uses
// the network. It indexes packs, walks histories and moves refs, without hooks, with a fixed
// configuration and limited memory. Its arguments and environment contain no untrusted text.
//
// Fetched objects go into a quarantine, which readers of the repository do not see. It is promoted
// after all wanted objects are complete. An error before leaves the repository unchanged.
package gitfetch
