package main

import (
	"fmt"
	"math"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"time"

	"github.com/graspsync/graspsync/sync/memstore"
)

// measureMemory says what a first catch-up holds at most beyond what its Store does.
func measureMemory(r *run) error {
	d, relays, err := startHub(r, r.pick(100_000, quickEvents), 1)
	if err != nil {
		return err
	}
	defer relays.close()
	// What is alive is known after each collection only. These are frequent here; no time
	// is measured.
	defer debug.SetGCPercent(debug.SetGCPercent(10))
	stored, err := heapOfStore(r, d)
	if err != nil {
		return err
	}
	r.figure("what the Store alone holds", float64(stored)/1e6, "MB")
	for _, c := range ourClients {
		a := first(c, d)
		a.store = newStore(memstore.New(), len(d.ids))
		w := watchHeap(a.store, len(d.ids), stored)
		_, err := a.run(r, relays)
		w.end()
		if err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
		r.atMost(c.name+": peak heap beyond the Store", float64(w.peak)/(1<<20), "MiB", 64)
		r.figure(c.name+": collections during it", float64(w.collections), "")
	}
	return nil
}

// liveHeap returns what was alive at the last collection, and how many there were.
func liveHeap() (bytes int64, collections uint64) {
	samples := []metrics.Sample{{Name: "/gc/heap/live:bytes"}, {Name: "/gc/cycles/total:gc-cycles"}}
	metrics.Read(samples)
	return int64(samples[0].Value.Uint64()), samples[1].Value.Uint64()
}

// liveNow is what is alive when nothing more goes: what is measured before leaves pools, finalizers and goroutines that end.
func liveNow() int64 {
	for last := int64(math.MaxInt64); ; time.Sleep(50 * time.Millisecond) {
		runtime.GC()
		bytes, _ := liveHeap()
		if bytes > last-last/100 {
			return bytes
		}
		last = bytes
	}
}

// heapOfStore returns what a Store holds that has nothing but a data set.
func heapOfStore(r *run, d *dataset) (int64, error) {
	before := liveNow()
	s := memstore.New()
	if _, err := fill(r.ctx, s, d, 0); err != nil {
		return 0, err
	}
	held := liveNow() - before
	runtime.KeepAlive(s)
	return held, nil
}

// heapWatch looks at the heap until end is called.
type heapWatch struct {
	stop, stopped chan struct{}
	peak          int64 // beyond what the Store holds of what it has by then
	collections   uint64
}

const heapEvery = 2 * time.Millisecond

// watchHeap starts one for a Store that holds stored bytes when it has all of n events.
func watchHeap(s *store, n int, stored int64) *heapWatch {
	w := &heapWatch{stop: make(chan struct{}), stopped: make(chan struct{})}
	before := liveNow()
	go func() {
		defer close(w.stopped)
		look := time.NewTicker(heapEvery)
		defer look.Stop()
		_, last := liveHeap()
		for ended := false; !ended; {
			select {
			case <-look.C:
			case <-w.stop:
				ended = true
			}
			here := int64(n) - s.left.Load() // what comes while it is collected is not alive for it, or just so
			live, cycle := liveHeap()
			if cycle == last {
				continue
			}
			last = cycle
			w.collections++
			w.peak = max(w.peak, live-before-stored*here/int64(n))
		}
	}()
	return w
}

func (w *heapWatch) end() {
	close(w.stop)
	<-w.stopped
}
