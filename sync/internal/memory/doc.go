// Package memory persists the state of a SyncManager in a [state.Store]: the health of relays and
// hosts, learned limits, values that relays refuse, and the confirmed items of relays with their
// times. It also stores chunks of bytes for other packages.
//
// [Memory.Load] reads everything at the start. Implausible values are dropped and counted. After that [Memory.Run] is the only writer. Changes are queued without blocking, and the newest value of a key is written a few seconds later. Only [Memory.SaveHealth], [Memory.SaveChunks] and [Memory.Flush] wait until values are durable.
//
// A Memory without a store stores nothing.
package memory
