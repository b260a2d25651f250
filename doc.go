// Package graspsync has the words that all packages of this module share: the names of events,
// people, repositories, relays and git servers, each parsed once and spelled in one way, and
// what is said of an event on its way into a store. It imports no other package of the module,
// and everybody imports it.
//
//	[Event]                a signed event, with its id and author parsed: what everybody inside uses
//	[EventID], [PubKey]    the names of an event and of its author
//	[RepoRef], [Address]   a repository; any addressable event (NIP-01)
//	[RelayURL], [CloneURL] where a relay is, and a git server; [URL] and [HostPort] are their parts
//	[Stamp]                an event as NIP-77 knows it, and as its versions are ordered
//	[Source]               where an event came from
//	[Outcome], [Result]    what became of it in a Store
//	[Verdict], [Dependency]  what a Policy says of it, and what it waits for
//
// # The house
//
// What decides is pure, and knows nothing of networks, disks and clocks:
//
//	filters   what relays are asked for
//	nip34     what the events of Git over Nostr say, and who has a say in a repository
//	health    which relay may be dialed when
//
// What keeps a server in sync stands on that:
//
//	sync       events: SyncManager, behind the interfaces Store, Transport and Policy
//	purgatory  git data: events wait in it until what they name is here; behind the
//	           interfaces Relay, Repositories and GitFetcher
//	egress     the only way to the network, for both
//	state      what survives a restart, for both
//
// What joins them to others' programs:
//
//	sync/wstransport, sync/memstore, sync/batchverify   Transport, Store and Verifier
//	purgatory/gitfetch, purgatory/gitserve              GitFetcher; repositories over smart HTTP
//	adapter/khatru, adapter/eventstore, adapter/remote  relays, and stores of events
//	adapter/purgatory, adapter/gate, adapter/grasp      purgatory for sync; khatru's door; a whole server
//	adapter/control, adapter/admin                      what its operator has it do; over HTTP
//
// What helps to test:
//
//	sync/relaytest, sync/storetest, sync/syncmock
//	purgatory/fetchtest, purgatory/purgatorymock
//	state/statetest
//
// Most start with adapter/grasp, a GRASP server in one call, or with sync alone beside a relay
// that they have: examples shows both.
package graspsync
