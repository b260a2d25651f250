package main

import "time"

const quickEvents = 1_000

// measureCatchUp compares first catch-ups from a khatru relay by our client and by go-nostr.
func measureCatchUp(r *run) error {
	d, relays, err := startHub(r, r.pick(100_000, quickEvents))
	if err != nil {
		return err
	}
	defer relays.close()
	var all []attempt
	for _, c := range append(ourClients, theirClients...) {
		a := first(c, d)
		if !c.theirs {
			a.work = "catchup " + c.name
		}
		all = append(all, a)
	}
	taken, err := measureAll(r, relays, all...)
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

func startHub(r *run, n int) (*dataset, *remote, error) {
	d, err := openDataset(r.cache, n)
	if err != nil {
		return nil, nil, err
	}
	relays, err := startRemote(r.ctx, d, 0)
	return d, relays, err
}

func measureCanned(r *run) error {
	d, relays, err := startHub(r, r.pick(100_000, quickEvents))
	if err != nil {
		return err
	}
	defer relays.close()
	var all []attempt
	for _, c := range ourClients {
		a := first(c.atCanned(), d)
		a.work = "canned " + c.name
		all = append(all, a)
	}
	taken, err := measureAll(r, relays, all...)
	if err != nil {
		return err
	}
	for i, a := range all {
		r.atMost(a.client.name+": CPU an event", perEvent(taken[i].cpu, len(d.ids)), "us", 45)
		r.explain(a.client.name, taken[i])
		r.explainTraffic(a.client.name, taken[i].usage.Traffic)
	}
	return nil
}

func perEvent(t time.Duration, events int) float64 {
	return float64(t) / float64(time.Microsecond) / float64(events)
}

func (r *run) explainTraffic(what string, t traffic) {
	r.figure(what+": REQ for what is stored", float64(t["REQ"].Messages), "")
	r.figure(what+": REQ for what comes", float64(t[labelLive].Messages), "")
	r.figure(what+": of these, to the relays", float64(t[labelLive].Bytes)/1e6, "MB")
	if t["NEG-OPEN"].Messages > 0 {
		r.figure(what+": NEG-OPEN", float64(t["NEG-OPEN"].Messages), "")
	}
	r.figure(what+": EVENT", float64(t["EVENT"].Messages), "")
}
