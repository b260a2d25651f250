package sync

import (
	"fmt"
	"time"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/eventtest"
	"github.com/graspsync/graspsync/sync/internal/pending"
)

func testNote(n int, deps ...graspsync.Dependency) pending.Note {
	u, err := graspsync.ParseRelayURL(fmt.Sprintf("wss://r%d.example", n%3))
	if err != nil {
		panic(err)
	}
	return pending.Note{
		Incoming: graspsync.Incoming{Event: eventtest.Of(testEvent(n, graspsync.KindState, n, nostr.Timestamp(n))), Source: graspsync.Source{Kind: graspsync.Live, Relay: u}},
		ID:       testID(n), Size: 100, Deps: pending.KeysOf(deps),
	}
}

func testAbsent(most, waiting int, waitingBytes int64) *pending.RejectedIndex {
	return pending.NewRejectedIndex(pending.Config{
		Most: most, Waiting: waiting, WaitingBytes: waitingBytes, KeepFor: 7 * 24 * time.Hour, WholeFor: 2 * time.Minute,
	})
}
