// Package syncqueue decides which clone URL is asked for the missing git data of which repository, and
// when. It is pure: [SyncQueue.Step] takes an input and returns effects. It has no clock, no goroutine and no
// network.
//
// An attempt asks the clone URLs of the members of a repository, one after another, and a second one on
// another host if the first takes long. A URL whose domain is throttled waits for its domain, so that the
// attempt can end. URLs that only pull requests name always wait that way, one request at a time.
//
// All requests share [Config.MaxHunts] places. Owners of repositories are served round-robin, and have at
// most half of the places each.
package syncqueue
