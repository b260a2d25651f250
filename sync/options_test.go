package sync_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/internal/racetest"
	relaysync "github.com/graspsync/graspsync/sync"
	"github.com/graspsync/graspsync/sync/memstore"
	"github.com/graspsync/graspsync/sync/relaytest"
	"github.com/graspsync/graspsync/sync/wire"
)

// The first relays are followed. This server counts as the last one here. Further relays are
// counted.
func TestMaxRelaysPerRepo(t *testing.T) {
	for most, c := range map[int]struct{ known, dropped int }{0: {16, 9}, 3: {3, 22}, 20: {20, 5}, 64: {24, 0}} {
		t.Run(fmt.Sprint(most), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				owner := relaytest.NewCheapKey("owner")
				var hosts []string
				for i := range 24 {
					hosts = append(hosts, fmt.Sprintf("r%d.example", i))
				}
				ev := owner.Hosted(at(time.Hour), "repo", append(hosts, us)...)
				r := &rig{t: t, store: memstore.New()}
				r.save(ev)
				r = start(t, relaytest.NewNetwork(), r.store, relaysync.Config{Limits: relaysync.Limits{MaxRelaysPerRepo: most}})
				defer r.stop()
				after(time.Minute)
				status := r.manager.Status()
				require.Len(t, status.Relays, c.known)
				require.Equal(t, "wss://r0.example", r.relay("wss://r0.example").URL.String())
				require.Equal(t, uint64(c.dropped), status.Events.Dropped["relays_listed"])
			})
		})
	}
}

// Rejected events are not fetched again by passes while they are remembered.
func TestRejectedFor(t *testing.T) {
	racetest.Amounts(t)
	for keep, times := range map[time.Duration]uint64{0: 1, time.Hour: 3} {
		t.Run(keep.String(), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				net := relaytest.NewNetwork()
				a := net.Add("wss://a.example", relaytest.Behavior{})
				a.Publish(relaytest.NewCheapKey("stranger").Hosted(at(time.Hour), "theirs", "elsewhere.example"))
				r, _ := hosted(t, net, relaysync.Config{}.With(relaysync.Fixed{RejectedFor: keep}), "a.example")
				defer r.stop()
				after(51 * time.Hour) // and two more passes
				var rejected uint64
				for _, n := range r.manager.Status().Events.Rejected {
					rejected += n
				}
				require.Equal(t, times, rejected)
			})
		})
	}
}

func TestPageLimit(t *testing.T) {
	for limit, want := range map[int]int{0: 500, 20: 20} {
		t.Run(fmt.Sprint(limit), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				net := relaytest.NewNetwork()
				a := net.Add("wss://a.example", relaytest.Behavior{Negentropy: relaytest.NegNotice})
				owner := relaytest.NewCheapKey("owner")
				var issues []*nostr.Event
				for i := range 100 { // 13 of them in one second
					issues = append(issues, owner.Issue(at(time.Duration(max(12, i))*time.Minute), owner.Ref("repo"), fmt.Sprint(i)))
				}
				a.Publish(issues...)
				r, _ := hosted(t, net, relaysync.Config{}.With(relaysync.Fixed{PageLimit: limit}), "a.example")
				defer r.stop()
				after(10 * time.Minute)
				for _, ev := range issues {
					require.True(t, r.has(ev))
				}
				pages := 0
				for _, req := range a.Requests(wire.TypeReq) {
					for _, f := range req.Filters {
						if f.Limit > 0 && f.IDs == nil {
							pages++
							require.Equal(t, want, f.Limit)
						}
					}
				}
				require.Positive(t, pages)
			})
		})
	}
}

// A relay that sends useless messages is disconnected when these exceed the allowance and its
// refill.
func TestRefill(t *testing.T) {
	for refill, dials := range map[int64]int{0: 1, 1 << 10: 2} {
		t.Run(fmt.Sprint(refill), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				net := relaytest.NewNetwork()
				a := net.Add("wss://a.example", relaytest.Behavior{})
				r, _ := hosted(t, net, relaysync.Config{}.With(relaysync.Fixed{Unproductive: 200_000, Refill: refill}), "a.example")
				defer r.stop()
				for range 100 * 60 {
					after(time.Second)
					a.Broadcast(wire.Message{Type: wire.TypeNotice, Text: strings.Repeat("hello ", 100)})
				}
				require.Len(t, a.Dials(), dials, "an hour's rest after it was cut")
				require.Equal(t, dials > 1, r.manager.Status().Events.Dropped["unproductive"] > 0)
			})
		})
	}
}

// A relay that is not followed for a repository does not count as lacking its events.
func TestMaxRelaysPerRepo_NothingIsLacked(t *testing.T) {
	for most, lacks := range map[int]int{0: 1, 2: 0} {
		t.Run(fmt.Sprint(most), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				net := relaytest.NewNetwork()
				a := net.Add("wss://a.example", relaytest.Behavior{})
				net.Add("wss://b.example", relaytest.Behavior{})
				owner := relaytest.NewCheapKey("owner")
				first := owner.Hosted(at(24*time.Hour), "first", us, "a.example")
				a.Publish(first)
				r := &rig{t: t, store: memstore.New()}
				r.save(first, owner.Hosted(at(24*time.Hour), "second", us, "b.example", "a.example"))
				r = start(t, net, r.store, relaysync.Config{Limits: relaysync.Limits{MaxRelaysPerRepo: most}})
				defer r.stop()
				after(10 * time.Minute)
				require.EqualValues(t, lacks, r.relay("wss://a.example").Lacks)
			})
		})
	}
}
