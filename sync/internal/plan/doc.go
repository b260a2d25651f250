// Package plan decides which requests are sent to which relay, and when. It is a pure state
// machine: [Plan.Step] takes an [Input] and the time, and returns [Effect] values for the caller.
// A Plan is not safe for concurrent use.
//
// The state has three indexes:
//
//	repoSyncIndex     wanted: repositories with their relays and root events
//	pendingSyncIndex  in flight: batches of a relay
//	relaySyncIndex    the relays, with connection, confirmed items and live subscriptions
//
// computeActions requests target - pending - confirmed of each relay. The difference is updated with
// each change, so that a change of one repository costs work in proportion to the change. A failed
// batch is repeated with its progress.
//
// Each file has one subject:
//
//	plan           a step: the targets of each relay from the wanted repositories, then its next requests
//	dialer         connections, with a dialQueue and ownerShares
//	historicsync   items that are fetched for the first time, or again in a daily pass
//	catchup        events that may have been missed
//	livesync       subscriptions and their packing; polling handles items without room in them
//	byid           events that are requested by id
//	deletions      deletions by author
//	audit          samples that reveal events that a relay hides
//	checkpoint     state that survives a restart
package plan
