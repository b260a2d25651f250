package main

import "fmt"

// measureNegentropy measures the reconciliation with a set that differs in 10,000 ids, on the asking
// side. The answers of the peer are recorded.
func measureNegentropy(r *run) error {
	n := r.pick(1_000_000, 100_000)
	// One processor, so that the time includes garbage collection.
	found, err := r.benchmark("sync/internal/negentropy", fmt.Sprintf("^Benchmark(NewSet|OurSide)$/^(random|sorted|newest|ours)$/^%d$", n),
		"-cpu", "1", "-benchtime", "3x", "-count", fmt.Sprint(r.pick(5, 2)))
	if err != nil {
		return err
	}
	seconds := func(name string) float64 { return found[fmt.Sprintf("%s/%d", name, n)]["ns/op"] / 1e9 }
	r.atMost("our side of it, beyond sealing", seconds("OurSide/ours"), "s", 0.1)
	r.atMost("sealing, ids in any order", seconds("NewSet/random"), "s", 0.1)
	r.atMost("sealing, ids as a store gives them, newest first", seconds("NewSet/newest"), "s", 0.1)
	r.figure("sealing, ids in the order of the protocol", seconds("NewSet/sorted"), "s")
	shared, err := r.benchmark("sync", "^BenchmarkSetOfManyRelays$", "-benchtime", "1x")
	if err != nil {
		return err
	}
	r.atMost("sets sealed for 100 relays", shared["SetOfManyRelays"]["sets/op"], "", 1)
	return nil
}
