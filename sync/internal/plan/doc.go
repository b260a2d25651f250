// Package plan decides what to ask of which relay, and when. It is a pure state
// machine: [Plan.Step] takes what happened and the time, changes its own state
// and returns [Effect] values for the caller to carry out. It has no clock, no
// goroutine and does no I/O, so that a run can be repeated exactly.
//
// Its state is the four facts of the design:
//
//	want        which repository is followed on which relays, with its root events
//	in flight   relay -> batches that are being fetched
//	confirmed   relay -> what was fetched once and is only followed live now
//	live        relay -> the filters of the standing subscriptions
//
// and one rule, applied per relay and nowhere else: what is asked for next is
// want - in flight - confirmed. The difference is kept up to date as the facts
// change, so that a change in one repository costs work in proportion to that
// change.
//
// What a relay has no room for live is followed by its kinds or polled, whichever
// costs less ([LiveMethod]); root events beyond those tracked are asked about in
// rotation. What is confirmed can be taken over a restart: [Plan.Kept], [Restore].
//
// What descends from repositories and root events is no item: it has what these leave, see
// [DescendantChange]. Each descendant is asked about once from the start, without a since, and
// is then followed live where there is room, or in rotation, since [Config].Overlap
// before its last turn.
//
// A Plan routes what happens to its parts, each with fields of its own and calls in one
// direction. For each relay a part keeps a state, such as historyState, in the relay:
//
//	want         which items there are, and the filters that ask for them
//	targets      which relays each item is wanted of; owners: what a relay may claim
//	dialer       which relays are connected
//	history      items that are fetched for the first time, or again in a daily pass
//	catchUp      what may have been missed of items that were fetched; after an absence
//	             that is too long (longAbsent) history begins anew instead
//	live         the standing subscriptions; polling: what finds no room in them
//	descendants  answers to answers, which have what all others leave
//	byID         events that are asked for by their ids
//	rotation     root events beyond those tracked
//	deletions    deletions by authors
//	audit        samples that show whether a relay holds something back
//	checkpoints  what survives a restart
//
// Those that fetch are askers: they share the batches that a relay may be asked for at once,
// in the order in which New lists them.
//
// A Plan is not safe for concurrent use; the event loop of the SyncManager owns it.
package plan
