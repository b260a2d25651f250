// Package ledger has the events that wait for git data, as they are returned by value.
package ledger
