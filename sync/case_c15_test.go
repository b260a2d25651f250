package sync_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	relaysync "github.com/graspsync/graspsync/sync"
	"github.com/graspsync/graspsync/sync/memstore"
	"github.com/graspsync/graspsync/sync/relaytest"
)

// foreignAnnouncements returns n announcements for another service, one per second, the oldest at
// an age. Their authors are unrelated and list nobody.
func foreignAnnouncements(n int, oldest time.Duration) (events []*nostr.Event) {
	stranger := relaytest.NewCheapKey("stranger")
	for i := range n {
		events = append(events, stranger.Event(at(oldest-time.Duration(i)*time.Second), graspsync.KindAnnouncement, "",
			nostr.Tag{"d", fmt.Sprint("r", i)}, nostr.Tag{"clone", "https://elsewhere.example/r.git"}, nostr.Tag{"relays", "wss://elsewhere.example"}))
	}
	return events
}

// A hub without NIP-77 has thousands of newer announcements for other services. It is read at full
// speed: these announcements cost neither a signature check nor a wait, and the hub is not
// disconnected.
func TestCaseC15_HubFullOfForeignAnnouncements(t *testing.T) {
	for _, c := range []struct{ foreign, page int }{{2_000, 100}, {20_000, 500}} {
		t.Run(fmt.Sprint(c.foreign), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				const latency = 20 * time.Millisecond
				net := relaytest.NewNetwork()
				hub := net.Add("wss://hub.example", relaytest.Behavior{Negentropy: relaytest.NegNotice, Cap: c.page, Latency: latency})
				hub.Publish(foreignAnnouncements(c.foreign, 24*time.Hour)...)
				var ours []*nostr.Event
				for i := range 20 {
					ours = append(ours, relaytest.NewCheapKey(fmt.Sprint("owner", i)).Hosted(at(48*time.Hour), "repo", us, "hub.example"))
				}
				hub.Publish(ours...)
				began := time.Now()
				r := start(t, net, memstore.New(), relaysync.Config{Bootstrap: []graspsync.RelayURL{relayURL(t, "wss://hub.example")}})
				defer r.stop()
				for _, ev := range ours {
					for !r.has(ev) {
						require.Less(t, time.Since(began), time.Minute, "the hub is not read as fast as it serves")
						after(100 * time.Millisecond)
					}
				}
				pages := time.Duration(c.foreign/c.page) * latency
				require.Less(t, time.Since(began), 10*time.Second+5*pages)
				after(10 * time.Minute)
				s := r.manager.Status().Events
				require.LessOrEqual(t, s.Verified, uint64(len(ours)), "no signature of a foreign announcement is checked")
				require.Zero(t, s.Dropped["unproductive"])
				require.Len(t, hub.Dials(), 1)
			})
		})
	}
}

// The event that makes an announcement relevant may come later. Then the announcement is judged
// again and its signature is checked. An earlier copy with a forged signature does not exclude the
// valid one.
func TestCaseC15_ForeignAnnouncementIsWantedLater(t *testing.T) {
	for name, forged := range map[string]bool{"signed": false, "forged copy first": true} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				net := relaytest.NewNetwork()
				hub := net.Add("wss://hub.example", relaytest.Behavior{Negentropy: relaytest.NegNotice})
				lead, maintainer := relaytest.NewCheapKey("lead"), relaytest.NewCheapKey("maintainer")
				theirs := maintainer.Announcement(at(time.Hour), "repo", []string{"wss://elsewhere.example"}, []string{"https://elsewhere.example/repo.git"})
				if forged {
					bad := net.Add("wss://bad.example", relaytest.Behavior{Negentropy: relaytest.NegNotice})
					copied := *theirs
					copied.Sig = theirs.Sig[:126] + "00"
					bad.Publish(&copied)
				}
				cfg := relaysync.Config{Bootstrap: []graspsync.RelayURL{relayURL(t, "wss://hub.example")}}
				if forged {
					cfg.Bootstrap = append(cfg.Bootstrap, relayURL(t, "wss://bad.example"))
				}
				r := start(t, net, memstore.New(), cfg)
				defer r.stop()
				after(5 * time.Minute)
				hub.Publish(theirs)
				after(5 * time.Minute)
				require.False(t, r.has(theirs), "nobody lists its author")
				hub.Publish(lead.Hosted(at(0), "repo", us, "hub.example"))
				after(time.Minute)
				require.False(t, r.has(theirs))
				listing := lead.Hosted(at(0), "repo", us, "hub.example")
				listing.CreatedAt++
				listing.Tags = append(listing.Tags, nostr.Tag{"maintainers", maintainer.PubKey().String()})
				lead.Sign(listing)
				hub.Publish(listing)
				after(5 * time.Minute)
				require.True(t, r.has(listing))
				require.True(t, r.has(theirs), "its author is listed now")
			})
		})
	}
}
