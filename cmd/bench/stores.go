package main

import (
	"fmt"
	"os"
	"runtime"
	"time"

	"github.com/dgraph-io/badger/v4"
	eventbadger "github.com/fiatjaf/eventstore/badger"

	"github.com/graspsync/graspsync"
	eventstoreadapter "github.com/graspsync/graspsync/adapter/eventstore"
	"github.com/graspsync/graspsync/internal/cputime"
	"github.com/graspsync/graspsync/nip34"
)

// backend is a database configuration of some server.
type backend struct {
	name    string
	options func(badger.Options) badger.Options
	config  func() (eventstoreadapter.Config, error)
}

func backends() []backend {
	return []backend{
		{
			"badger", func(o badger.Options) badger.Options { return o.WithLogger(nil) },
			func() (eventstoreadapter.Config, error) { return eventstoreadapter.Config{}, nil },
		},
		{ // configuration of cmd/graspserver and its adapters
			"the store of graspserver", func(o badger.Options) badger.Options { return o.WithLogger(nil).WithSyncWrites(true) },
			func() (c eventstoreadapter.Config, err error) {
				c.Identity, err = nip34.ParseIdentity(ourHost)
				return c, err
			},
		},
	}
}

// open opens an empty database. end closes it, which writes delayed data.
func (b backend) open(within string) (s *eventstoreadapter.Store, end func() error, err error) {
	cfg, err := b.config()
	if err != nil {
		return nil, nil, err
	}
	db, end, err := b.database(within)
	if err != nil {
		return nil, nil, err
	}
	s, err = eventstoreadapter.New(db, cfg)
	return s, end, err
}

func (b backend) database(within string) (db *eventbadger.BadgerBackend, end func() error, err error) {
	dir, err := os.MkdirTemp(within, "")
	if err != nil {
		return nil, nil, err
	}
	db = &eventbadger.BadgerBackend{Path: dir, BadgerOptionsModifier: b.options}
	return db, func() error {
		db.Close()
		return os.RemoveAll(dir)
	}, db.Init()
}

// measureStores compares our catch-up into databases with only writing the same events in batches.
func measureStores(r *run) error {
	d, relays, err := startHub(r, r.pick(20_000, 500), 1)
	if err != nil {
		return err
	}
	defer relays.close()
	for _, b := range backends() {
		if err := b.measure(r, d, relays); err != nil {
			return fmt.Errorf("%s: %w", b.name, err)
		}
	}
	return nil
}

func (b backend) measure(r *run, d *dataset, relays *remote) error {
	var bare, alone, caughtUp []sample
	for range max(1, r.count) {
		m, err := b.writeBare(r, d)
		if err != nil {
			return fmt.Errorf("writing without us: %w", err)
		}
		bare = append(bare, m)
		m, err = b.writeAlone(r, d)
		if err != nil {
			return fmt.Errorf("writing: %w", err)
		}
		alone = append(alone, m)
		if m, err = b.catchUp(r, d, relays); err != nil {
			return fmt.Errorf("catching up: %w", err)
		}
		caughtUp = append(caughtUp, m)
	}
	x, y, z := medianOf(caughtUp), medianOf(alone), medianOf(bare)
	what := b.name
	r.atMost(what+": catch-up : writing alone, time until all is saved", ratio(x.saved, y.saved), "", 1.5)
	r.atMost(what+": catch-up : writing alone, CPU, with closing the database", ratio(x.cpu, y.cpu), "", 1.5)
	r.figure(fmt.Sprintf("%s: writing alone, %d at a time: until all is saved", what, saveBatch), y.saved.Seconds(), "s")
	r.figure(what+": writing alone: CPU an event", perEvent(y.cpu, len(d.ids)), "us")
	r.figure(what+": its SaveEvent, one after the other and without us: until all is saved", z.saved.Seconds(), "s")
	r.figure(what+": its SaveEvent: CPU an event", perEvent(z.cpu, len(d.ids)), "us")
	r.figure(what+": catch-up: until all is saved", x.saved.Seconds(), "s")
	r.figure(what+": catch-up: CPU an event", perEvent(x.cpu, len(d.ids)), "us")
	return nil
}

func (b backend) writeAlone(r *run, d *dataset) (m sample, err error) {
	s, end, err := b.open(r.dir)
	if err != nil {
		return m, err
	}
	var batches [][]graspsync.Incoming
	for ev, err := range d.events() {
		if err != nil {
			return m, err
		}
		if last := len(batches) - 1; last >= 0 && len(batches[last]) < saveBatch {
			batches[last] = append(batches[last], graspsync.Incoming{Event: ev})
			continue
		}
		batches = append(batches, []graspsync.Incoming{{Event: ev}})
	}
	runtime.GC()
	start, used := time.Now(), cputime.Used()
	for _, batch := range batches {
		if err := saveAll(r.ctx, s, batch); err != nil {
			return m, err
		}
	}
	m.saved, m.cpu = time.Since(start), cputime.Used()-used
	if err := check(r.ctx, s, d); err != nil {
		return m, err
	}
	used = cputime.Used()
	err = end()
	m.cpu += cputime.Used() - used
	return m, err
}

// writeBare saves events from memory with the database alone.
func (b backend) writeBare(r *run, d *dataset) (m sample, err error) {
	db, end, err := b.database(r.dir)
	if err != nil {
		return m, err
	}
	var events []graspsync.Event
	for ev, err := range d.events() {
		if err != nil {
			return m, err
		}
		events = append(events, ev)
	}
	runtime.GC()
	start, used := time.Now(), cputime.Used()
	for _, ev := range events {
		if err := db.SaveEvent(r.ctx, ev.Event); err != nil {
			return m, err
		}
	}
	m.saved = time.Since(start)
	err = end()
	m.cpu = cputime.Used() - used
	return m, err
}

func (b backend) catchUp(r *run, d *dataset, relays *remote) (m sample, err error) {
	s, end, err := b.open(r.dir)
	if err != nil {
		return m, err
	}
	a := first(oursNIP77.atCanned(), d)
	a.store, a.work = newStore(s, len(d.ids)), "stores "+b.name
	if m, err = a.run(r, relays); err != nil {
		return m, err
	}
	used := cputime.Used()
	err = end()
	m.cpu += cputime.Used() - used
	return m, err
}
