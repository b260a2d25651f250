// Package plan decides which requests are sent to which relay, and when. It is a pure state
// machine: [Plan.Step] takes an [Input] and the time, changes the state and returns [Effect] values
// for the caller. It has no clock, no goroutine and no I/O, so that a run can be repeated exactly.
// A Plan is not safe for concurrent use.
//
// The state has three indexes:
//
//	repoSyncIndex     wanted: repositories with their relays and root events
//	pendingSyncIndex  in flight: batches per relay
//	relaySyncIndex    confirmed: items per relay, with the connection and the live subscriptions
//
// For each relay, one rule selects the next requests (computeActions):
//
//	target - pending - confirmed
//
// The difference is updated with each change, so that a change of one repository costs work in
// proportion to the change. If there are too many live filters, they are consolidated.
//
// Items without room in live subscriptions are followed by kinds or polled, whichever costs less
// ([LiveMethod]). Root events beyond MaxRoots are requested in rotation. Confirmed items survive a
// restart ([Plan.Kept], [Restore]). Descendants (layer 4) are not items: they use only the room
// that layers 1 to 3 leave, see [DescendantChange].
//
// The parts of a Plan call each other in one direction. Each part has a state per relay in
// relayState:
//
//	relayTargets   derives the targets of each relay from the wanted repositories
//	dialer         connections, with a dialQueue and ownerShares
//	historicSync   items that are fetched for the first time, or again in a daily pass
//	catchUp        events that may have been missed; after a long absence history starts again instead
//	liveSync       subscriptions; polling handles items without room in them
//	threads        layer 4
//	byID           events that are requested by id
//	rotation       root events beyond MaxRoots
//	deletions      deletions by author
//	audit          samples that reveal events that a relay hides
//	checkpoints    state that survives a restart
//
// Parts that fetch implement fetcher. They share the batches of a relay, in the order in which New
// lists them.
package plan
