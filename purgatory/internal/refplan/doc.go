// Package refplan decides what becomes of repositories, in values: from what is known of
// those with one identifier, a [Group], and of one of them, a [Repository], it says which
// state decides, which refs change, which objects are needed, and what can be served. It
// has no context, lock, clock, git or logger.
package refplan
