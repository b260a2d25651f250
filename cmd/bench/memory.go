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

// measureMemory measures the maximum memory of a first catch-up in addition to its Store.
func measureMemory(r *run) error {
	d, relays, err := startHub(r, r.pick(100_000, quickEvents))
	if err != nil {
		return err
	}
	defer relays.close()
	// Live memory is only known after a collection, so collections are frequent. No time is
	// measured.
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

// liveHeap returns the live bytes at the last collection and the number of collections.
func liveHeap() (bytes int64, collections uint64) {
	samples := []metrics.Sample{{Name: "/gc/heap/live:bytes"}, {Name: "/gc/cycles/total:gc-cycles"}}
	metrics.Read(samples)
	return int64(samples[0].Value.Uint64()), samples[1].Value.Uint64()
}

// liveNow returns the live bytes after pools, finalizers and ending goroutines have freed theirs.
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

// heapWatch measures the heap until end is called.
type heapWatch struct {
	stop, stopped chan struct{}
	peak          int64 // in addition to the Store with its current events
	collections   uint64
}

const heapEvery = 2 * time.Millisecond

// watchHeap starts a heapWatch for a Store that takes stored bytes with all n events.
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
			here := int64(n) - s.left.Load() // events that arrive during a collection hardly count as live
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
