package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/cputime"
	"github.com/graspsync/graspsync/internal/fieldhub"
	"github.com/graspsync/graspsync/nip34"
	relaysync "github.com/graspsync/graspsync/sync"
	"github.com/graspsync/graspsync/sync/memstore"
	"github.com/graspsync/graspsync/sync/relaytest"
	"github.com/graspsync/graspsync/sync/wire"
)

// Properties of the hub: the name of the syncing server, the time of the newest event, which makes
// the events reproducible, and the time after which a sync counts as hung.
const (
	fieldServer = "grasp.example"
	fieldLimit  = 5 * time.Minute
)

var fieldNow = time.Date(2026, time.January, 1, 0, 0, 0, 0, time.UTC)

// The target is a third of the REQs for a hub of this size before REQs were counted.
const fieldREQs = 5296 / 3

// field is a hub's relay and the relays around it, as stored on disk.
type field struct {
	Host   string
	Events []*nostr.Event
	Relays []*fieldhub.Relay
	Wanted []string // ids
}

// fieldRow measures a first sync with a hub like the largest GRASP server of November 2026, among
// 200 relays of which few answer, for two hub programs. The relays are in memory in this process,
// so that their CPU is included. Most of the time is pauses between dials and between requests to a
// relay that limits their rate.
func fieldRow(r *run) error {
	f, err := loadField(r)
	if err != nil {
		return err
	}
	models := []struct {
		name  string
		relay func() relaytest.Behavior
	}{
		{"rust-nostr", relaytest.LocalRelay},
		{"ngit-grasp", relaytest.GraspRelay},
	}
	if r.quick { // mostly pauses
		models = models[:1]
	}
	for _, model := range models {
		if err := f.sync(r, "a hub of "+model.name, model.relay()); err != nil {
			return fmt.Errorf("a hub of %s: %w", model.name, err)
		}
	}
	return nil
}

func loadField(r *run) (*field, error) {
	size := fieldhub.Production.Part(r.pick(1, 25))
	text, err := json.Marshal(size)
	if err != nil {
		return nil, err
	}
	path := filepath.Join(r.cache, fmt.Sprintf("field-%d.json", size.Repositories))
	var kept struct {
		Size  string // another size is another hub
		Field *field
	}
	if data, err := os.ReadFile(path); err == nil && json.Unmarshal(data, &kept) == nil && kept.Size == string(text) {
		return kept.Field, nil
	}
	h := fieldhub.New(fieldhub.Config{Size: size, Server: fieldServer, Now: fieldNow, Key: relaytest.NewKey})
	kept.Size, kept.Field = string(text), &field{Host: h.Host, Events: h.Events, Relays: h.Relays}
	for _, ev := range h.Wanted {
		kept.Field.Wanted = append(kept.Field.Wanted, ev.ID)
	}
	data, err := json.Marshal(kept)
	if err != nil {
		return nil, err
	}
	return kept.Field, keep(path, data)
}

// keep writes a file atomically.
func keep(path string, data []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		return err
	}
	if err := os.WriteFile(path+".new", data, 0o666); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

func (f *field) sync(r *run, what string, behavior relaytest.Behavior) error {
	net := relaytest.NewNetwork()
	there := make(map[string]bool)
	var relays []*relaytest.Relay
	add := func(url string, b relaytest.Behavior, events []*nostr.Event) {
		relay := net.Add(url, b)
		relay.Publish(events...)
		relays = append(relays, relay)
		for _, ev := range events {
			if b.DialError == nil && (b.MaxEvent == 0 || len(ev.String()) <= b.MaxEvent) {
				there[ev.ID] = true
			}
		}
	}
	add("wss://"+f.Host, behavior, f.Events)
	for _, around := range f.Relays {
		b := relaytest.Behavior{}
		if !around.Answers {
			b.DialError = errors.New("connection refused")
		}
		add(around.URL, b, around.Events)
	}
	var wanted []graspsync.EventID
	for _, text := range f.Wanted {
		id, err := graspsync.ParseEventID(text)
		if err != nil {
			return err
		}
		if there[text] {
			wanted = append(wanted, id)
		}
	}
	cpu, took, err := f.follow(r.ctx, net, wanted)
	if err != nil {
		return err
	}
	requests := make(map[wire.RequestType]int)
	var asked, answered float64
	for _, relay := range relays {
		for _, req := range relay.Requests() {
			requests[req.Type]++
		}
		t := relay.Traffic()
		asked, answered = asked+float64(t.BytesReceived)/1e6, answered+float64(t.BytesSent)/1e6
	}
	r.figure(what+": events that are wanted", float64(len(wanted)), "")
	r.atMost(what+": CPU, that of the relays included", cpu.Seconds(), "s", 6)
	r.atMost(what+": REQs, to all relays", float64(requests[wire.TypeReq]), "", fieldREQs)
	r.figure(what+": reconciliations", float64(requests[wire.TypeNegOpen]), "")
	r.figure(what+": asked", asked, "MB")
	r.figure(what+": answered", answered, "MB")
	r.figure(what+": time, mostly pauses", took.Seconds(), "s")
	return nil
}

func (f *field) follow(ctx context.Context, net *relaytest.Network, wanted []graspsync.EventID) (cpu, took time.Duration, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, fieldLimit, fmt.Errorf("not all is here after %s", fieldLimit))
	defer cancel()
	identity, err := nip34.ParseIdentity(fieldServer)
	if err != nil {
		return 0, 0, err
	}
	first, err := graspsync.ParseRelayURL("wss://" + f.Host)
	if err != nil {
		return 0, 0, err
	}
	store := memstore.New(memstore.WithIdentity(identity))
	m, err := relaysync.New(store, net, identity, relaysync.Config{Bootstrap: []graspsync.RelayURL{first}})
	if err != nil {
		return 0, 0, err
	}
	used, began := cputime.Used(), time.Now()
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	running.Go(func() {
		if err := m.Run(ctx); err != nil {
			cancel()
		}
	})
	if err := arrive(ctx, store, wanted); err != nil {
		return 0, 0, err
	}
	return cputime.Used() - used, time.Since(began), nil
}
