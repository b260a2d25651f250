package main

import (
	"time"

	"github.com/graspsync/graspsync/internal/cputime"
	relaysync "github.com/graspsync/graspsync/sync"
)

func measureHubMemory(r *run) error {
	w := world{repos: r.pick(10_000, 200), issues: 50, relays: r.pick(500, 10), listed: 5}
	c, store, identity, err := w.start(r.ctx)
	if err != nil {
		return err
	}
	defer c.close()
	before := inUse()
	used := cputime.Used()
	f, err := startFollower(r.ctx, store, identity, relaysync.Config{MaxConnections: 2 * w.relays})
	if err != nil {
		return err
	}
	defer f.stop()
	if err := f.synced(r.ctx, w.relays, 10*time.Minute); err != nil {
		return err
	}
	took := cputime.Used() - used
	select { // until the data of the comparison is freed
	case <-time.After(time.Duration(r.pick(40, 1)) * time.Second):
	case <-r.ctx.Done():
		return r.ctx.Err()
	}
	after := inUse()
	r.atMost("beyond the store", float64(after-before)/1e6, "MB", 200)
	r.figure("of that, for each relay", float64(after-before)/1e3/float64(w.relays), "kB")
	r.figure("CPU until all was followed and fetched", took.Seconds(), "s")
	return nil
}
