// Package filters builds the filters of the four layers, packs filters into requests, reads the
// history of a filter page by page, and matches events with filters.
//
//	layer 1   [Layer1]      announcements and states, the same JSON for every relay
//	layer 2   [Repos]       events that tag a repository
//	layer 3   [Roots]       events that tag a patch, pull request or issue
//	layer 4   [Descendants] events that tag an event of layers 2, 3 and 4
//	          [Deletions]   deletions by the authors of stored events
//
// Builders return the same filters for the same set in any order, with at most [MaxValues] tag values
// in each:
//
//	fs := append(filters.Repos(refs), filters.Roots(ids)...)
//	for i := range fs {
//		fs[i] = filters.Live(fs[i])
//	}
//	reqs, _, tooLarge := filters.Pack(fs, maxMessageLength, maxFilters)
//
// A [Walk] reads the history of one filter. Its caller reports each received event, and gets the
// filter of the next page:
//
//	w := filters.NewWalk(f, filters.WalkStart{})
//	for !w.Done() {
//		// send w.Next(), call w.Saw for every EVENT, until EOSE
//		w.End(finish, more)
//	}
//	// w.Gaps() are the seconds that may hold more than the relay gave
//
// An empty list of values matches no event, but relays disagree about it, so builders never return one.
// [Pack], [Matcher] and [Walk] ignore such filters.
//
// Filters of builders share lists of values, so copy a filter before you change it.
package filters
