// Package refplan plans a release as pure values. Its input is a [Group], the events of all
// repositories with one identifier, and a [Repository] of the group. It decides which state counts,
// which refs change, which objects are missing, and which events may be served. It has no context,
// lock, clock, git or logger.
package refplan
