package main

import (
	"context"
	"errors"
	"flag"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/fieldhub"
	"github.com/graspsync/graspsync/nip34"
	relaysync "github.com/graspsync/graspsync/sync"
	"github.com/graspsync/graspsync/sync/memstore"
	"github.com/graspsync/graspsync/sync/relaytest"
	"github.com/graspsync/graspsync/sync/wire"
)

var fieldPart = flag.Int("part", 10, "the generated hub is this part of the largest of November 2026")

// BenchmarkHubOfTheField has ours sync for the first time with a hub like the largest GRASP
// server of November 2026, among 200 relays few of which answer. The relays are in memory and
// in the same process, so cpu-s is theirs as well: what is asked and sent is the figure. Its time is
// mostly pauses: between dials, and between requests to a relay that counts them.
func BenchmarkHubOfTheField(b *testing.B) {
	for _, model := range []struct {
		name  string
		relay func() relaytest.Behavior
	}{
		{"of rust-nostr", relaytest.LocalRelay},
		{"of ngit-grasp", relaytest.GraspRelay},
	} {
		b.Run(model.name, func(b *testing.B) {
			hub := fieldhub.New(fieldhub.Config{Size: fieldhub.Production.Part(*fieldPart), Server: ourHost, Now: time.Now().Add(-time.Hour)})
			for b.Loop() {
				syncWithField(b, hub, model.relay())
			}
		})
	}
}

// syncWithField ends when all is here that can be had.
func syncWithField(b *testing.B, hub *fieldhub.Hub, behavior relaytest.Behavior) {
	b.StopTimer()
	net := relaytest.NewNetwork()
	relay := net.Add("wss://"+hub.Host, behavior)
	there := make(map[string]bool)
	publish := func(at *relaytest.Relay, of *fieldhub.Relay) {
		at.Publish(of.Events...)
		for _, ev := range of.Events {
			there[ev.ID] = there[ev.ID] || of.Answers
		}
	}
	publish(relay, &fieldhub.Relay{Answers: true, Events: hub.Events})
	for _, r := range hub.Relays {
		around := relaytest.Behavior{}
		if !r.Answers {
			around.DialError = errors.New("connection refused")
		}
		publish(net.Add(r.URL, around), r)
	}
	var ids []graspsync.EventID
	for _, ev := range hub.Wanted {
		id, err := graspsync.ParseEventID(ev.ID)
		require.NoError(b, err)
		if there[ev.ID] && (behavior.MaxEvent == 0 || len(ev.String()) <= behavior.MaxEvent) {
			ids = append(ids, id)
		}
	}
	identity, err := nip34.ParseIdentity(ourHost)
	require.NoError(b, err)
	first, err := graspsync.ParseRelayURL("wss://" + hub.Host)
	require.NoError(b, err)
	store := memstore.New(memstore.WithIdentity(identity))
	m, err := relaysync.New(store, net, identity, relaysync.Config{
		Bootstrap: []graspsync.RelayURL{first}, Verifier: relaytest.CheapVerifier{},
	})
	require.NoError(b, err)
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	ended := make(chan error, 1)
	cpu := cpuTime()
	b.StartTimer()
	go func() { ended <- m.Run(ctx) }()
	missing := len(ids)
	for missing > 0 && ctx.Err() == nil {
		time.Sleep(100 * time.Millisecond)
		here, err := store.Has(ctx, ids)
		require.NoError(b, err)
		missing = 0
		for _, is := range here {
			if !is {
				missing++
			}
		}
	}
	b.StopTimer()
	require.Zero(b, missing, "events that are not here after 10 minutes")
	b.ReportMetric((cpuTime() - cpu).Seconds(), "cpu-s")
	count := make(map[wire.RequestType]int)
	for _, r := range relay.Requests() {
		count[r.Type]++
	}
	b.ReportMetric(float64(count[wire.TypeReq]), "REQ")
	b.ReportMetric(float64(count[wire.TypeNegOpen]), "NEG-OPEN")
	b.ReportMetric(float64(relay.Traffic().BytesReceived)/1e6, "MB-asked")
	b.ReportMetric(float64(relay.Traffic().BytesSent)/1e6, "MB-answered")
	b.ReportMetric(float64(len(ids)), "events")
	cancel()
	<-ended
	b.StartTimer()
}
