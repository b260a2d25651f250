package health_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/health"
	"github.com/graspsync/graspsync/state"
)

func Example() {
	tracker, err := health.NewTracker(health.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	relay, err := graspsync.ParseRelayURL("relay.example.com")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(tracker.Status(relay).State, "due now:", !time.Now().Before(tracker.NextAttempt(relay)))

	tracker.Attempt(relay)
	tracker.Failed(relay, errors.New("connection refused"))
	s := tracker.Status(relay)
	fmt.Println(s.State, "failures:", s.Failures, "due now:", !time.Now().Before(s.NextAttempt))

	tracker.Attempt(relay)
	tracker.Connected(relay)
	s = tracker.Status(relay)
	fmt.Println(s.State, "failures:", s.Failures, "connected:", s.Connected)
	// Output:
	// disconnected due now: true
	// degraded failures: 1 due now: false
	// degraded failures: 1 connected: true
}

// Health is kept over a restart in any [state.Store].
func ExampleRelayHealthTracker_Export() {
	const prefix = "health/"
	ctx := context.Background()
	store := state.NewMemory()

	save := func(tracker *health.RelayHealthTracker, relay graspsync.RelayURL) error {
		record, ok := tracker.Export(relay)
		if !ok {
			return nil
		}
		value, err := json.Marshal(record)
		if err != nil {
			return err
		}
		return store.Put(ctx, state.Record{Key: prefix + relay.String(), Value: value})
	}
	load := func(tracker *health.RelayHealthTracker) error {
		for r, err := range store.Each(ctx, prefix) {
			if err != nil {
				return err
			}
			relay, err := graspsync.ParseRelayURL(r.Key[len(prefix):])
			if err != nil {
				return err
			}
			var record health.Record
			if err := json.Unmarshal(r.Value, &record); err != nil {
				return err
			}
			tracker.Import(relay, record)
		}
		return nil
	}

	relay, err := graspsync.ParseRelayURL("relay.example.com")
	if err != nil {
		fmt.Println(err)
		return
	}
	before, err := health.NewTracker(health.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	before.Attempt(relay) // saved before the dial, during which the process dies
	if err := save(before, relay); err != nil {
		fmt.Println(err)
		return
	}

	after, err := health.NewTracker(health.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := load(after); err != nil {
		fmt.Println(err)
		return
	}
	s := after.Status(relay)
	fmt.Println(s.State, "failures:", s.Failures, "waits:", time.Until(s.NextAttempt).Round(time.Minute))
	// Output: degraded failures: 1 waits: 1m0s
}
