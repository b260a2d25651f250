package main

const quickEvents = 1_000

// measureCatchUp compares first catch-ups from a khatru relay by our client and by go-nostr.
func measureCatchUp(r *run) error {
	d, err := openDataset(r.cache, r.pick(100_000, quickEvents))
	if err != nil {
		return err
	}
	var all []attempt
	for _, c := range append(ourClients, theirClients...) {
		all = append(all, first(c, d))
	}
	taken, err := measureAll(r, all...)
	if err != nil {
		return err
	}
	for i, a := range all {
		r.explain(a.client.name, taken[i])
	}
	for i, o := range all {
		for k, t := range all {
			if o.client.theirs || !t.client.theirs {
				continue
			}
			pair := o.client.name + " : " + t.client.name
			r.atMost(pair+", time until all is saved", ratio(taken[i].saved, taken[k].saved), "", 0.25)
			r.atMost(pair+", time until it says so", ratio(taken[i].done, taken[k].done), "", 0.25)
			r.atMost(pair+", CPU", ratio(taken[i].cpu, taken[k].cpu), "", 0.3)
		}
	}
	return nil
}
