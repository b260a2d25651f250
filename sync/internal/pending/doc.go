// Package pending stores verified events that are not in the Store. [RejectedIndex] contains their
// ids, and as [PendingEvent] the whole events that are judged again: they wait for another event,
// for room, or for a few minutes. A [Key] is a hash of a dependency. [Known] contains the ids of
// stored and held events.
package pending
