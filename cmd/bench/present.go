package main

import (
	"fmt"

	"github.com/graspsync/graspsync/sync/memstore"
)

// measurePresent measures our client with NIP-77 and a relay that has few or no new events. The
// client reads the Store as after a restart. The cost of a daily comparison without restart is
// printed separately.
func measurePresent(r *run) error {
	d, err := openDataset(r.cache, r.pick(100_000, quickEvents))
	if err != nil {
		return err
	}
	whole, err := measureAll(r, first(oursNIP77, d))
	if err != nil {
		return err
	}
	for _, part := range []struct {
		what   string
		but    int // every but-th event is missing
		resync bool
	}{
		{"99 % present", 100, false},
		{"100 % present", 0, false},
		{"100 % present, without a restart", 0, true},
	} {
		var samples []sample
		for range max(1, r.count) {
			s := memstore.New()
			missing, err := fill(r.ctx, s, d, part.but)
			if err != nil {
				return err
			}
			a := first(oursNIP77, d)
			a.store, a.resync = newStore(s, missing), part.resync
			m, err := a.run(r)
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
		r.atMost(part.what+": CPU", m.cpu.Seconds(), "s", 0.2)
		if part.but == 0 {
			r.atMost(part.what+": CPU : first catch-up", ratio(m.cpu, whole[0].cpu), "", 0.01)
		}
		r.figure(part.what+": CPU until it dials, for it reads its Store first", m.read.Seconds(), "s")
		r.explain(part.what, m)
	}
	r.explain("first catch-up", whole[0])
	return nil
}
