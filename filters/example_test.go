package filters_test

import (
	"fmt"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/filters"
)

// Pack the filters for all events of 250 repositories into few requests, for a relay that allows ten
// filters and 64 KiB per message.
func ExamplePack() {
	var refs []graspsync.RepoRef
	for i := range 250 {
		refs = append(refs, graspsync.RepoRef{Owner: graspsync.PubKey{1}, Identifier: fmt.Sprint("repo", i)})
	}
	live := []nostr.Filter{filters.Live(filters.Layer1())}
	for _, f := range filters.Repos(refs) {
		live = append(live, filters.Live(f))
	}
	reqs, _, tooLarge := filters.Pack(live, 64<<10, 10)
	for _, req := range reqs {
		fmt.Println(len(req), "filters")
	}
	fmt.Println(len(tooLarge), "that no request has room for")
	fmt.Println(reqs[0][0])
	// Output:
	// 9 filters
	// 6 filters
	// 0 that no request has room for
	// {"kinds":[30617,30618],"limit":0}
}

// Read all events of a relay that returns two per request.
func ExampleWalk() {
	page := func(f nostr.Filter) (ids []graspsync.EventID, times []nostr.Timestamp) { // newest first
		for at := nostr.Timestamp(105); at > 100 && len(ids) < 2; at-- {
			if f.Until == nil || at <= *f.Until {
				ids, times = append(ids, graspsync.EventID{byte(at)}), append(times, at)
			}
		}
		return ids, times
	}
	w := filters.NewWalk(nostr.Filter{Kinds: []int{graspsync.KindIssue}}, filters.WalkStart{})
	for !w.Done() {
		ids, times := page(w.Next())
		for i, id := range ids {
			if w.Saw(id, times[i]) {
				fmt.Print(times[i], " ")
			}
		}
		w.End(false, false) // EOSE
	}
	fmt.Println(w.Complete(), w.Gaps())
	// Output: 105 104 103 102 101 true []
}
