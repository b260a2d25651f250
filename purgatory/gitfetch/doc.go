// Package gitfetch fetches the git objects that events name, from the git servers of
// strangers into bare repositories.
//
// The package speaks the smart HTTP protocol in Go, over the dialer of package egress. Git never uses the
// network. It indexes packs, walks histories and moves refs, without hooks, with a fixed configuration and
// bounded memory. No text of a stranger is in its arguments or its environment.
//
// Fetched objects go into a quarantine first. Readers of the repository do not see them. The quarantine is
// promoted when each wanted object is complete. Every error before that leaves the repository as it was.
package gitfetch
