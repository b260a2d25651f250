// Package pending remembers verified events that are not stored. [RejectedIndex] has their ids, and as
// [PendingEvent] the whole events that are judged again: they wait for another event, for room, or for a few
// minutes. A [Key] stands for a dependency. [Known] has the ids of stored and held events.
package pending
