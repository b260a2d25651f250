package sync_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/assert"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/sync/relaytest"
	"github.com/graspsync/graspsync/sync/wire"
)

const (
	simWatch     = 3 * time.Hour // time for which connections are measured after all events are stored
	simLook      = 5 * time.Minute
	simConnected = 80 // minimum percentage of that time
	simDeletions = 5  // number of measured deletions
)

// simFigures are measurements of the load on relays and on our store after all events are stored.
type simFigures struct {
	connected []float64 // connected part of the time, for each honest relay that forges nothing
	crowded   bool      // there were more relays than connections
	sent      int       // bytes of live requests to honest relays since root events were deleted
	sentTo    int       // number of relays times number of deletions
	questions int       // queries of our store for a stranger's deletion of unknown events
	tries     int       // attempts for the event that our store failed to save most often
}

// telemetry compares the measurements of all seeds with their limits.
func telemetry(t *testing.T, all []simFigures) {
	sent, sentTo, questions, tries := 0, 0, 0, 0
	connected := make(map[bool][]float64) // by whether it was crowded
	for _, f := range all {
		connected[f.crowded] = append(connected[f.crowded], f.connected...)
		sent, sentTo = sent+f.sent, sentTo+f.sentTo
		questions, tries = max(questions, f.questions), max(tries, f.tries)
	}
	for crowded, shares := range connected {
		sum := 0.0
		for _, c := range shares {
			sum += c
		}
		mean, worst := sum/float64(len(shares)), slices.Min(shares)
		t.Logf("honest relays connected for %.1f %% of the time, the worst for %.1f %%; crowded: %v", 100*mean, 100*worst, crowded)
		if crowded { // a relay without new events takes turns with others
			assert.Greater(t, mean, simConnected/100.)
			continue
		}
		assert.Greater(t, worst, simConnected/100.)
	}
	t.Logf("a deleted root sends %.1f bytes of live requests to a relay", float64(sent)/float64(max(1, sentTo)))
	assert.Less(t, sent, 20*max(1, sentTo), "bytes sent by a deletion: all that is followed is sent anew")
	t.Logf("a stranger's deletion of what is nowhere: at most %d questions to our store", questions)
	assert.Less(t, questions, 20)
	t.Logf("an event that can't be saved is tried at most %d times", tries)
	assert.Less(t, tries, 150)
}

// measure measures a converged simulation.
func (run *simRun) measure() (f simFigures) {
	f.crowded = run.w.crowded
	run.watch(&f)
	run.deleteRoots(&f)
	run.deleteNothing(&f)
	run.retire()
	return f
}

// watch measures the connected time of relays.
func (run *simRun) watch(f *simFigures) {
	known := make(map[graspsync.RelayURL]bool)
	for _, s := range run.rig.manager.Status().Relays {
		known[s.URL] = true
	}
	var honest []*simRelay
	for _, r := range run.w.relays {
		// A relay with too many wrong signatures is disconnected for an hour each day.
		if !r.hostile && !r.dead && !r.forges && known[r.URL()] {
			honest = append(honest, r)
		}
	}
	up := make([]int, len(honest))
	looks := int(simWatch / simLook)
	for range looks {
		after(simLook)
		for i, r := range honest {
			up[i] += min(1, r.Open())
		}
	}
	for i, n := range up {
		f.connected = append(f.connected, float64(n)/float64(looks))
		if n < looks*simConnected/100 {
			at := slices.Index(run.w.relays, honest[i])
			run.t.Logf("connected at %d of %d looks until %v: %s", n, looks, time.Since(run.w.start), run.w.about[at])
		}
	}
}

// deleteRoots deletes some root events through our relay, and measures the messages to connected
// relays.
func (run *simRun) deleteRoots(f *simFigures) {
	w := run.w
	var roots []*nostr.Event
	for _, r := range w.repos {
		for _, ev := range r.roots {
			if r.ours && !w.model.gone(ev) && run.rig.has(ev) {
				roots = append(roots, ev)
			}
		}
	}
	for _, ev := range roots[:min(len(roots), simDeletions)] {
		by := w.keys[slices.IndexFunc(w.keys, func(k *simKey) bool { return k.Hex() == ev.PubKey })]
		before, open := make(map[*simRelay]int), make(map[*simRelay]map[int]bool)
		for _, r := range w.relays {
			conns := make(map[int]bool)
			for _, s := range r.Subscriptions() {
				conns[s.Conn] = true
			}
			if !r.hostile && len(conns) > 0 {
				before[r], open[r] = len(r.Requests()), conns
			}
		}
		deletion := by.Deletion(max(ev.CreatedAt+1, w.now(by)), ev)
		w.model.publish(deletion)
		run.rig.save(deletion)
		after(time.Minute)
		for r, n := range before {
			f.sentTo++
			for _, seen := range r.Requests()[n:] {
				if open[r][seen.Conn] && seen.Type == wire.TypeReq && seen.Filters[0].LimitZero {
					f.sent += seen.Size
				}
			}
		}
	}
}

// deleteNothing publishes a stranger's deletion of a hundred unknown events.
func (run *simRun) deleteNothing(f *simFigures) {
	w := run.w
	anchor := w.repos[0]
	tags := nostr.Tags{{"a", anchor.owner.Ref(anchor.name).String()}}
	for i := range 100 {
		tags = append(tags, nostr.Tag{"e", fmt.Sprintf("%064x", 1_000+i)})
	}
	stranger := relaytest.NewCheapKey("deletes nothing")
	ev := stranger.Event(nostr.Now(), graspsync.KindDeletion, "", tags...)
	w.model.all[ev.ID] = ev
	before := run.store.questions.Load()
	firstHonest(anchor.relays).Publish(ev)
	after(10 * time.Second)
	f.questions = int(run.store.questions.Load() - before)
}

// retire publishes a state of a former maintainer, which must be rejected.
func (run *simRun) retire() {
	w := run.w
	for _, r := range w.repos {
		for _, k := range w.keys {
			if !r.ours || !w.model.ever[r.name][k.Hex()] || w.model.maintainers[r.name][k.Hex()] {
				continue
			}
			ev := k.State(nostr.Now(), r.name, map[string]string{"refs/heads/retired": fmt.Sprintf("%040x", 7)}, "")
			firstHonest(r.relays).Publish(ev)
			after(time.Minute)
			assert.False(run.t, run.rig.has(ev), "state of who was a maintainer of %s", r.name)
			return
		}
	}
}
