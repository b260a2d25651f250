package sync_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/eventtest"
	"github.com/graspsync/graspsync/nip34"
	relaysync "github.com/graspsync/graspsync/sync"
	"github.com/graspsync/graspsync/sync/memstore"
	"github.com/graspsync/graspsync/sync/relaytest"
)

// dials is a Transport that records dials and never connects.
type dials struct {
	relaysync.Transport
	written chan string
}

func (d *dials) Dial(_ context.Context, relay graspsync.RelayURL) (relaysync.Conn, error) {
	d.written <- relay.URL().AsWritten()
	return nil, errors.New("nothing here")
}

// A listed relay and a bootstrap relay are dialed as written. Two spellings are one relay.
func TestCaseC7_ListedRelayIsDialedAsWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		identity, err := nip34.ParseIdentity(us)
		require.NoError(t, err)
		store, transport := memstore.New(memstore.WithIdentity(identity)), &dials{relaytest.NewNetwork(), make(chan string, 100)}
		m, err := relaysync.New(store, transport, identity, relaysync.Config{
			Verifier: relaytest.CheapVerifier{}, Bootstrap: []graspsync.RelayURL{relayURL(t, "wss://hub.example/nostr/")},
		})
		require.NoError(t, err)
		owner := relaytest.NewCheapKey("owner")
		ann := owner.Announcement(nostr.Now()-100, "repo", []string{"wss://" + us, "wss://listed.example/relay/", "wss://plain.example/relay", "wss://root.example/"},
			[]string{owner.CloneURL("wss://"+us, "repo")})
		_, err = store.Save(t.Context(), []graspsync.Incoming{{Event: eventtest.Of(ann)}})
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- m.Run(ctx) }()
		time.Sleep(time.Minute) // in the bubble: several attempts at each relay
		cancel()
		<-ended
		close(transport.written)
		seen := make(map[string]bool)
		for u := range transport.written {
			seen[u] = true
		}
		require.Equal(t, map[string]bool{
			"wss://hub.example/nostr/": true, "wss://listed.example/relay/": true, "wss://plain.example/relay": true, "wss://root.example": true,
		}, seen)
		require.Len(t, m.Status().Relays, 4)
	})
}

// Relays at .onion used up the room of others and were looked up in DNS. The explanation said that
// they are followed after the batch window.
func TestCaseC13_OnionTakesNoPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		identity, err := nip34.ParseIdentity(us)
		require.NoError(t, err)
		store, transport := memstore.New(memstore.WithIdentity(identity)), &dials{relaytest.NewNetwork(), make(chan string, 100)}
		m, err := relaysync.New(store, transport, identity, relaysync.Config{Verifier: relaytest.CheapVerifier{}})
		require.NoError(t, err)
		relays := []string{"wss://" + us}
		for i := range 20 {
			relays = append(relays, fmt.Sprintf("wss://%056d.onion", i))
		}
		owner := relaytest.NewCheapKey("owner")
		ann := owner.Announcement(nostr.Now()-100, "repo", append(relays, "wss://honest.example"), []string{owner.CloneURL("wss://"+us, "repo")})
		_, err = store.Save(t.Context(), []graspsync.Incoming{{Event: eventtest.Of(ann)}})
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- m.Run(ctx) }()
		require.Equal(t, "wss://honest.example", <-transport.written)
		onion := relayURL(t, relays[1])
		relay := m.RelayFollowState(onion)
		require.Equal(t, relaysync.RelayUnresolvable, relay.Is)
		cancel()
		<-ended
		close(transport.written)
		for u := range transport.written {
			require.Equal(t, "wss://honest.example", u)
		}
	})
}
