// Package graspsync contains the types that all packages of this module share.
//
//	[Event]                  a signed event with its id and author parsed
//	[EventID], [PubKey]      the id of an event; the public key of its author
//	[RepoRef], [Address]     a repository; any addressable event (NIP-01)
//	[RelayURL], [CloneURL]   a relay; a Git server; [URL] and [HostPort] are their parts
//	[EventKey]               creation time and id, the order of versions and of NIP-77
//	[Source]                 the way by which an event came
//	[Outcome], [Result]      the answer of a Store
//	[Verdict], [Dependency]  the answer of a Policy; a reason to judge an event again
//
// # Packages
//
// Pure functions and state, without network, disk and clock:
//
//	filters   builders of the filters that are sent to relays
//	nip34     events of Git over Nostr, and the members of a repository
//	health    when a relay may be dialed
//	limit     fair sharing among strangers
//
// The two halves of a server in sync:
//
//	sync       events: SyncManager, with the interfaces Store, Transport and Policy
//	purgatory  Git data: Purgatory holds events until their objects have arrived, with the
//	           interfaces Relay, Repositories and GitFetcher
//	egress     the guarded dialer of both
//	state      records that survive a restart
//	rules      the operator's blocks and exceptions
//
// Implementations and adapters:
//
//	sync/wstransport, sync/memstore, sync/batchverify   Transport, Store and Verifier
//	purgatory/gitfetch, purgatory/gitserve              GitFetcher; repositories over smart HTTP
//	adapter/khatru, adapter/eventstore, adapter/remote  relays and event stores
//	adapter/purgatory, adapter/gate, adapter/grasp      purgatory for sync; limits for clients; a whole server
//	adapter/control, adapter/admin                      commands of the operator; the same over HTTP
//	adapter/explain, adapter/statuspage, adapter/pages  reasons in sentences; a page for operators; public pages
//	adapter/nostrlib                                    adapters for fiatjaf.com/nostr
//
// Start with adapter/grasp, or with package sync for a relay of your own.
package graspsync
