package main

import (
	"fmt"
	"time"
)

const quickEvents = 1_000

// measureCatchUp compares first catch-ups from a khatru relay by our client and by go-nostr.
func measureCatchUp(r *run) error {
	n := r.pick(100_000, quickEvents)
	d, relays, err := startHub(r, n, 1)
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
	if r.quick {
		return nil
	}
	return measureDefaultWindow(r, relays, d, taken[0])
}

// measureDefaultWindow measures the default BatchWindow. All other catch-ups use a short one.
func measureDefaultWindow(r *run, relays *remote, d *dataset, short sample) error {
	a := first(oursNIP77, d)
	a.window = 0
	m, err := a.run(r, relays)
	if err != nil {
		return err
	}
	what := fmt.Sprintf("%s with the default BatchWindow, 5 s in place of %v: ", a.client.name, batchWindow)
	r.figure(what+"until all is saved", m.saved.Seconds(), "s")
	r.figure(what+"CPU", m.cpu.Seconds(), "s")
	r.figure(what+"of the CPU with the short one", ratio(m.cpu, short.cpu), "")
	return nil
}

// measureLarger compares our first catch-ups of one and of five times the number of events.
func measureLarger(r *run) error {
	const more = 5
	n := r.pick(100_000, quickEvents/5)
	var of [2][]sample
	for i, n := range []int{n, more * n} {
		d, relays, err := startHub(r, n, 1)
		if err != nil {
			return err
		}
		var all []attempt
		for _, c := range ourClients {
			a := first(c, d)
			a.work = fmt.Sprintf("larger %d %s", n, c.name)
			all = append(all, a)
		}
		if of[i], err = measureAll(r, relays, all...); err != nil {
			return fmt.Errorf("%d events: %w", n, err)
		}
		if err := relays.close(); err != nil {
			return err
		}
	}
	for i, c := range ourClients {
		one, five := of[0][i], of[1][i]
		what := fmt.Sprintf("%s, %d events : %d events", c.name, more*n, n)
		r.atMost(what+", time until all is saved", ratio(five.saved, one.saved), "", 5.5)
		r.atMost(what+", CPU", ratio(five.cpu, one.cpu), "", 5.5)
		r.explain(fmt.Sprintf("%s, %d events", c.name, n), one)
		r.explain(fmt.Sprintf("%s, %d events", c.name, more*n), five)
	}
	return nil
}

func startHub(r *run, n, listed int) (*dataset, *remote, error) {
	d, err := openDataset(r.cache, n, listed)
	if err != nil {
		return nil, nil, err
	}
	relays, err := startRemote(r.ctx, d, 0)
	return d, relays, err
}

func measureCanned(r *run) error {
	d, relays, err := startHub(r, r.pick(100_000, quickEvents), 1)
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

func measureRelays10(r *run) error {
	const many = 10
	n := r.pick(100_000, quickEvents)
	var of [2][]sample
	for i, listed := range []int{1, many} {
		d, relays, err := startHub(r, n, listed)
		if err != nil {
			return err
		}
		var all []attempt
		for _, c := range ourClients {
			a := first(c.atCanned(), d)
			if a.relays = listed; listed > 1 {
				a.work = "relays10 " + c.name
			}
			all = append(all, a)
		}
		if of[i], err = measureAll(r, relays, all...); err != nil {
			return fmt.Errorf("%d relays: %w", listed, err)
		}
		if err := relays.close(); err != nil {
			return err
		}
	}
	for i, c := range ourClients {
		one, ten := of[0][i], of[1][i]
		r.atMost(c.name+", ten relays : one, time until all is saved", ratio(ten.saved, one.saved), "", 1.3)
		r.atMost(c.name+", ten relays : one, time until it says so", ratio(ten.done, one.done), "", 1.3)
		r.atMost(c.name+", ten relays : one, CPU", ratio(ten.cpu, one.cpu), "", 1.3)
		for _, m := range []struct {
			what string
			of   sample
		}{{" one relay", one}, {" ten relays", ten}} {
			each := float64(n)
			r.figure(c.name+m.what+": how often an event crossed the wire", float64(m.of.usage.Traffic["EVENT"].Messages)/each, "times")
			// Received counts every event that the pipeline got, including copies.
			r.figure(c.name+m.what+": was decoded", float64(m.of.state.Events.Received)/each, "times")
			r.figure(c.name+m.what+": had its signature checked", float64(m.of.state.Events.Verified)/each, "times")
			r.explain(c.name+m.what, m.of)
		}
	}
	return nil
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
