// Package filters decides what relays are asked for: the filters of the four layers, how
// filters are packed into requests, how a page that was cut is continued, and whether an event
// is one that was asked for.
//
//	layer 1   [Layer1]   announcements and states, the same JSON for every relay
//	layer 2   [Repos]    whatever tags a repository
//	layer 3   [Roots]    whatever tags a patch, pull request or issue
//	layer 4   [Descendants] whatever tags what was found by layers 2, 3 and 4
//	          [Deletions] deletions by the authors of what is stored
//
// Layer 1 may be narrowed to [Announcements]; [States] asks for states by identifier.
//
// Builders take sets in any order, with repetitions, and always give the same
// filters for the same set, of at most [MaxValues] tag values each:
//
//	fs := append(filters.Repos(refs), filters.Roots(ids)...)
//	for i := range fs {
//		fs[i] = filters.Live(fs[i])
//	}
//	reqs, tooLarge := filters.Pack(fs, maxMessageLength, maxFilters)
//
// The past of one filter is read with a [Walk], which is told what came and says
// what to ask next:
//
//	w := filters.NewWalk(f, filters.WalkStart{})
//	for step := filters.StepMore; step == filters.StepMore; {
//		// send w.Next(), call w.Saw for every EVENT, until EOSE
//		step = w.End(finish, more)
//	}
//	// w.Gaps() are the seconds that may hold more than the relay gave
//
// # An empty list of values
//
// A list of values that is there but empty matches no event, yet on the wire it
// means everything to some relays, nothing to others and an error to the rest. No
// builder makes one. [Pack] leaves such filters out, a [Walk] over one is over
// before it begins, and a [Matcher] matches nothing by it; [Empty] tells.
//
// # Purity
//
// Everything here is a value or a function of its arguments: no clock, no
// network, no goroutine. Functions and immutable values ([Matcher] among them)
// may be used concurrently; a [Walk] belongs to one goroutine at a time. The
// filters that builders return share lists of values with each other: to change
// one, take a copy of it first.
package filters
