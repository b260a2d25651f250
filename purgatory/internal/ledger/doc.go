// Package ledger is the book of what waits for git data: who may wait, until when,
// and what is remembered of what waited in vain. It is pure: it has no clock, does no
// I/O and is not safe for concurrent use.
package ledger
