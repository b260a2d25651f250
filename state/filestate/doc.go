// Package filestate is a [state.Store] in a folder: what was written is on the disk
// when CompareAndSwap or Delete returns nil, whatever ends the process or the power.
//
//	store, err := filestate.Open("/var/lib/relay/state", filestate.Config{Logger: log})
//	if err != nil {
//		return err
//	}
//	defer store.Close()
//
// All keys and values are in memory as well; reading never waits for the disk.
//
// # Format
//
// The folder holds one append-only log, state.log, of records that carry their
// length, a sequence number (which is the version) and CRC32C sums. Writers that
// come together share one fsync. A log that is twice as long as what is in it is
// written anew beside itself, synced, and renamed over the old one.
//
// # Damage
//
// Open cuts a torn end off. Records in the middle that can't be read are set aside:
// they are counted and logged, the old log is kept as state.log.damaged, and
// everything else is used; a key whose newest record is among them has the value
// that it had before. After a failed write or fsync the log is never written
// to again: the next write puts everything that is in memory into a new one. So a
// full disk makes writes fail until there is room, and nothing else.
//
// # Life cycle and concurrency
//
// A [Store] is safe for concurrent use, by one process: a lock on the folder keeps
// a second one out, on systems that have flock. Close writes what is queued.
package filestate
