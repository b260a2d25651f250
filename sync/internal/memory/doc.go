// Package memory is what a SyncManager keeps over a restart, in a [state.Store]: the
// health of relays and hosts, what was learned about them, which values they choke on, up to
// when what was confirmed of them is complete, and chunks of bytes that others
// account for.
//
// [Memory.Load] reads all of it at the start; whatever the store holds, implausible
// things are left out and counted. After that [Memory.Run] is the one writer. Changes
// are told without waiting; of several for one key the newest is written, a few
// seconds later and together with others. Only [Memory.SaveHealth] and
// [Memory.Flush] wait until something is durable.
//
// A Memory without a store keeps nothing and has no other effect.
package memory
