// Package syncqueue decides which clone URL is asked for the missing git data of which repository,
// and when. It is pure: [SyncQueue.Step] takes an input and returns effects. It has no clock,
// goroutine or network.
//
// An attempt asks the clone URLs of the members of a repository, one after another, and a second one
// if the first takes long. A URL whose domain is throttled is queued, so that the attempt can end.
// URLs that only pull requests name are always queued, with one request at a time.
//
// All requests share [Config.MaxFetchJobs] slots. Owners of repositories get slots in turn, each at
// most half of them.
package syncqueue
