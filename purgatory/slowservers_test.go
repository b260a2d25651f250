package purgatory_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory"
	"github.com/graspsync/graspsync/purgatory/fetchtest"
	"github.com/graspsync/graspsync/sync/relaytest"
)

// Strangers whose servers take as long as they may, all of them, do not keep the one
// good server of somebody else from being asked in time.
func TestSlowServersDoNotStarveOthers(t *testing.T) {
	run(t, purgatory.Config{}, func(t *testing.T, w *world) {
		for i := range 40 {
			d := nostrTag{"d", fmt.Sprintf("s%d", i)}
			urls := nostrTag{"clone"}
			for j := range 16 {
				at := fmt.Sprintf("slow%d.example/s%d.git", 16*i+j, i)
				w.git.Serve(clone(at), fetchtest.Server{Err: errors.New("too slow"), Delay: 10 * time.Minute})
				urls = append(urls, "https://"+at)
			}
			mallory := relaytest.NewCheapKey("mallory")
			w.held(mallory.Event(now(), graspsync.KindAnnouncement, "", d, urls))
			w.held(mallory.Event(now(), graspsync.KindState, "", d, nostrTag{"refs/heads/main", object(1000 + i).String()}))
		}
		wait(time.Minute) // all places are taken
		w.git.Serve(clone("good.example/r.git"), fetchtest.Server{Objects: []nip34.ObjectID{object(1)}})
		w.held(announce(alice, now(), "good.example/r.git"))
		s := says(alice, now(), "main", 1)
		w.held(s)
		wait(12 * time.Minute)
		require.True(t, w.relay.has(s))
	})
}

// Nor do many strangers, once their servers were slow: a newcomer is hunted for at once.
func TestSlowStrangersGoBehind(t *testing.T) {
	run(t, purgatory.Config{Times: purgatory.Times{Hold: 24 * time.Hour}}, func(t *testing.T, w *world) {
		for i := range 60 {
			mallory := relaytest.NewCheapKey(fmt.Sprint("mallory", i))
			at := fmt.Sprintf("slow%d.example/r.git", i%30)
			w.git.Serve(clone(at), fetchtest.Server{Err: errors.New("too slow"), Delay: 10 * time.Minute})
			w.held(announce(mallory, now(), at))
			w.held(says(mallory, now(), "main", 1000+i))
		}
		wait(2 * time.Hour) // each had its turn
		w.git.Serve(clone("good.example/r.git"), fetchtest.Server{Objects: []nip34.ObjectID{object(1)}})
		d := nostrTag{"d", "honest"}
		w.held(alice.Event(now(), graspsync.KindAnnouncement, "", d, nostrTag{"clone", "https://good.example/r.git"}))
		s := alice.Event(now(), graspsync.KindState, "", d, nostrTag{"refs/heads/main", object(1).String()})
		w.held(s)
		wait(5 * time.Second)
		require.True(t, w.relay.has(s))
	})
}
