package main

import (
	"fmt"

	"github.com/graspsync/graspsync/sync/memstore"
)

// measurePresent measures our client with NIP-77 and a relay that has few or no new events. The
// client reads the Store as after a restart. The cost of a daily comparison without restart is
// printed separately.
func measurePresent(r *run) error {
	d, relays, err := startHub(r, r.pick(100_000, quickEvents))
	if err != nil {
		return err
	}
	defer relays.close()
	client := oursNIP77.atCanned()
	whole, err := measureAll(r, relays, first(client, d))
	if err != nil {
		return err
	}
	for _, part := range []struct {
		what, work string
		but        int // every but-th event is missing
		resync     bool
	}{
		{"99 % present", "present 99", 100, false},
		{"100 % present", "present 100", 0, false},
		{"100 % present, without a restart", "present again", 0, true},
	} {
		var samples []sample
		for range max(1, r.count) {
			s := memstore.New()
			missing, err := fill(r.ctx, s, d, part.but)
			if err != nil {
				return err
			}
			a := first(client, d)
			a.store, a.work, a.resync = newStore(s, missing), part.work, part.resync
			m, err := a.run(r, relays)
			if err != nil {
				return fmt.Errorf("%s: %w", part.what, err)
			}
			samples = append(samples, m)
		}
		m := medianOf(samples)
		if part.resync {
			r.atMost(part.what+": CPU of comparing everything once more", m.pass.Seconds(), "s", 0.2)
			continue
		}
		live := m.usage.Traffic[labelLive].Bytes
		r.atMost(part.what+": CPU", m.cpu.Seconds(), "s", 0.2)
		r.figure(part.what+": bytes without live subscriptions", float64(m.usage.In+m.usage.Out-live)/1e6, "MB")
		if part.but == 0 {
			r.atMost(part.what+": time until the last answer : first catch-up", ratio(m.last, whole[0].saved), "", 0.01)
			r.atMost(part.what+": CPU : first catch-up", ratio(m.cpu, whole[0].cpu), "", 0.01)
		}
		r.figure(part.what+": CPU until it dials, for it reads its Store first", m.read.Seconds(), "s")
		r.figure(part.what+": until the last answer", m.last.Seconds(), "s")
		r.explain(part.what, m)
		r.explainTraffic(part.what, m.usage.Traffic)
	}
	r.explain("first catch-up", whole[0])
	return nil
}
