package main

import (
	"fmt"
	"time"

	"github.com/graspsync/graspsync/internal/cputime"
	relaysync "github.com/graspsync/graspsync/sync"
)

func measureIdle(r *run) error {
	w := world{repos: r.pick(500, 12), issues: 1, relays: r.pick(500, 12), listed: 1}
	c, store, identity, err := w.start(r.ctx)
	if err != nil {
		return err
	}
	defer c.close()
	empty := inUse()
	f, err := startFollower(r.ctx, store, identity, relaysync.Config{MaxConnections: 2 * w.relays})
	if err != nil {
		return err
	}
	defer f.stop()
	if err := f.synced(r.ctx, w.relays, 5*time.Minute); err != nil {
		return err
	}
	sleep := func(d time.Duration) error {
		select {
		case <-time.After(d):
			return nil
		case <-r.ctx.Done():
			return r.ctx.Err()
		}
	}
	// After a minute a connection counts as stable, and the data of the comparison is freed.
	if err := sleep(time.Duration(r.pick(70, 1)) * time.Second); err != nil {
		return err
	}
	before, _, err := c.asked()
	if err != nil {
		return err
	}
	used, began := cputime.Used(), time.Now()
	if err := sleep(time.Duration(r.pick(300, 3)) * time.Second); err != nil {
		return err
	}
	share := float64(cputime.Used()-used) / float64(time.Since(began))
	requests, connections, err := c.asked()
	if err != nil {
		return err
	}
	if connections != w.relays {
		return fmt.Errorf("%d of %d relays are connected", connections, w.relays)
	}
	r.atMost("requests in that time, of all connections", float64(requests-before), "", 0)
	r.atMost("memory of a connection, with one repository on it", float64(inUse()-empty)/1e3/float64(w.relays), "kB", 40)
	r.atMost("CPU, of a core", share*100, "%", 1)
	return nil
}
