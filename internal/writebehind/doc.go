// Package writebehind writes records to a [state.Store] from one goroutine. It batches changes that
// may be lost for a while (Put), and writes changes immediately if a caller waits (Save). Failed
// writes are retried. The queue is bounded, and dropped changes are counted.
package writebehind
