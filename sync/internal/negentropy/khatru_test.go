package negentropy

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/fiatjaf/eventstore"
	"github.com/fiatjaf/eventstore/badger"
	"github.com/fiatjaf/eventstore/slicestore"
	"github.com/fiatjaf/khatru"
	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/require"
)

// khatruRelay serves the items as events from a relay of that kind. Nothing on the
// way looks at signatures, as they are put into the store behind its back.
func khatruRelay(t *testing.T, store eventstore.Store, items []Item) (url string) {
	t.Helper()
	require.NoError(t, store.Init())
	t.Cleanup(store.Close)
	for _, it := range items {
		require.NoError(t, store.SaveEvent(t.Context(), &nostr.Event{
			ID:        hex.EncodeToString(it.ID[:]),
			PubKey:    strings.Repeat("79", 32),
			Sig:       strings.Repeat("00", 64),
			CreatedAt: nostr.Timestamp(it.CreatedAt),
			Kind:      1617,
			Tags:      nostr.Tags{},
		}))
	}
	relay := khatru.NewRelay()
	relay.Negentropy = true
	relay.QueryEvents = append(relay.QueryEvents, store.QueryEvents)
	server := httptest.NewServer(relay)
	t.Cleanup(server.Close)
	return "ws" + strings.TrimPrefix(server.URL, "http")
}

// overWebsocket is a peer behind NIP-77.
func overWebsocket(t *testing.T, url string) peer {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	conn, _, err := websocket.Dial(ctx, url, nil)
	require.NoError(t, err)
	t.Cleanup(func() { conn.CloseNow() })
	conn.SetReadLimit(2<<20 + 4<<10)

	open := true
	return func(msg []byte) ([]byte, error) {
		frame := fmt.Sprintf(`["NEG-MSG","n","%x"]`, msg)
		if open {
			frame = fmt.Sprintf(`["NEG-OPEN","n",{"kinds":[1617]},"%x"]`, msg)
			open = false
		}
		answer, err := exchange(ctx, conn, frame)
		// khatru sends its first answer before it has noted the session, so that
		// a peer that is quick is told that there is none. It hasn't looked at the
		// message then, so the same one is sent again.
		for tries := 0; err == nil && slices.Equal(answer, []string{"NEG-ERROR", "n", "CLOSED"}) && tries < 1000; tries++ {
			answer, err = exchange(ctx, conn, frame)
		}
		if err != nil {
			return nil, err
		}
		if len(answer) != 3 || answer[0] != "NEG-MSG" || answer[1] != "n" {
			return nil, fmt.Errorf("unexpected %q", answer)
		}
		return hex.DecodeString(answer[2])
	}
}

func exchange(ctx context.Context, conn *websocket.Conn, frame string) (answer []string, err error) {
	if err := conn.Write(ctx, websocket.MessageText, []byte(frame)); err != nil {
		return nil, err
	}
	_, data, err := conn.Read(ctx)
	if err != nil {
		return nil, err
	}
	err = json.Unmarshal(data, &answer)
	return answer, err
}

func khatruItems(n int) []Item {
	r := newRand(77)
	items := make([]Item, n)
	for i := range items {
		// About 40 in a second here and there.
		items[i] = Item{1_700_000_000 + uint64(i)/uint64(1+i/500%2*40), randomID(r)}
	}
	return items
}

func TestKhatruRelay(t *testing.T) {
	all := khatruItems(4000)
	remote := all[:3500]
	var most []Item
	for i, it := range all {
		if i%7 != 0 {
			most = append(most, it)
		}
	}
	// The store's own limit would cut the relay's set without a word.
	url := khatruRelay(t, &slicestore.SliceStore{MaxLimit: 1 << 20}, remote)
	tests := []struct {
		name   string
		ours   []Item
		limits Limits
		rounds int
	}{
		{"nothing local", nil, Limits{}, 1},
		{"everything local", remote, Limits{}, 1},
		{"some missing on both sides", most, Limits{}, 10},
		{"small frames", most, Limits{FrameSize: minFrame}, 64},
		{"1,500 missing at the end", all[:2000], Limits{}, 10},
		{"nothing in common", all[3500:], Limits{}, 10},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			cost := requireExact(t, slices.Clone(tt.ours), remote, tt.limits, overWebsocket(t, url))
			require.LessOrEqual(t, cost.rounds, tt.rounds)
		})
	}
}

func TestKhatruRelayOverBadger(t *testing.T) {
	all := khatruItems(1500)
	url := khatruRelay(t, &badger.BadgerBackend{Path: t.TempDir()}, all[:1400])
	cost := requireExact(t, all[100:], all[:1400], Limits{}, overWebsocket(t, url))
	require.LessOrEqual(t, cost.rounds, 10)
}
