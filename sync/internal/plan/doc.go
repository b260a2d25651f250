// Package plan decides which requests are sent to which relay, and when. It is a pure state
// machine: [Plan.Step] takes an [Input] and the time, and returns [Effect] values for the caller.
// A Plan is not safe for concurrent use.
//
// The state has three indexes:
//
//	repoSyncIndex     wanted: repositories with their relays and root events
//	pendingSyncIndex  in flight: batches per relay
//	relaySyncIndex    confirmed: items per relay, with the connection and the live subscriptions
//
// computeActions requests target - pending - confirmed of each relay. The difference is updated with
// each change, so that a change of one repository costs work in proportion to the change.
//
// New items get further live subscriptions ([liveSync.addFilters]). If there are too many, all are
// consolidated. Items without room are followed by kinds or polled ([LiveMethod]).
//
// The parts of a Plan call each other in one direction and have a state per relay in relayState:
//
//	relayTargets   derives the targets of each relay from the wanted repositories
//	dialer         connections, with a dialQueue and ownerShares
//	historicSync   items that are fetched for the first time, or again in a daily pass
//	catchUp        events that may have been missed
//	liveSync       subscriptions; polling handles items without room in them
//	byID           events that are requested by id
//	deletions      deletions by author
//	audit          samples that reveal events that a relay hides
//	checkpoints    state that survives a restart
//
// Parts that fetch implement fetcher. [Plan.computeActions] asks them in order what is requested
// next of a relay.
package plan
