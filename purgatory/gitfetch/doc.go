// Package gitfetch fetches the git objects that events name from servers of
// strangers, into bare repositories of ours.
//
// Go speaks the protocol and reads every byte that comes, over the same guarded
// dialer as everything else that goes out; git itself never touches the network.
// It is run to index packs, to walk histories and to move refs: with no
// configuration but ours, no hooks, bounded memory, and never with anything that a
// stranger wrote in its arguments or environment.
//
// What is fetched goes into a quarantine first, where the repository does not see
// it. It is promoted once everything that was wanted is complete; whatever happens
// before that leaves the repository as it was.
package gitfetch
