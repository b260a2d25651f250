package sync_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/racetest"
	"github.com/graspsync/graspsync/nip34"
	relaysync "github.com/graspsync/graspsync/sync"
	"github.com/graspsync/graspsync/sync/relaytest"
)

// fullOf has no room for a stranger's events, which all refer to hosted repositories.
type fullOf struct {
	relaysync.Policy
	answer graspsync.Decision
}

const spam = "spam"

func (p fullOf) Judge(ctx context.Context, ev graspsync.Event, src graspsync.Source, view relaysync.View) (graspsync.Verdict, error) {
	if strings.HasPrefix(ev.Content, spam) {
		return graspsync.Verdict{Decision: p.answer, Reason: "rate-limited: no room"}, nil
	}
	return p.Policy.Judge(ctx, ev, src, view)
}

// Events about hosted repositories that were rejected for lack of room stopped the reading of the
// relay after they had used up an allowance. After one hour of such pull requests, honest issues
// came a quarter of an hour late, with growing delay.
func TestLiveEventsDoNotWaitBehindWhatIsRefusedOfOurs(t *testing.T) {
	racetest.Amounts(t)
	identity, err := nip34.ParseIdentity(us)
	require.NoError(t, err)
	fresh := 0
	newcomer := func() *relaytest.Key { fresh++; return relaytest.NewCheapKey(fmt.Sprint("newcomer", fresh)) }
	one := relaytest.NewCheapKey("stranger")
	pad := strings.Repeat("x", 64<<10)
	pull := func(k *relaytest.Key, repo graspsync.RepoRef, text string) *nostr.Event {
		return k.Event(at(0), graspsync.KindPullRequest, text, nostr.Tag{"a", repo.String()}, nostr.Tag{"subject", text[:min(20, len(text))]})
	}
	cases := map[string]struct {
		every    time.Duration
		spam     func(repo graspsync.RepoRef, i int) *nostr.Event
		anyKinds bool
		lasts    time.Duration
		answer   graspsync.Decision
	}{
		"one key": {lasts: 20 * time.Minute, answer: graspsync.Later, every: time.Second / 15, spam: func(repo graspsync.RepoRef, i int) *nostr.Event {
			return pull(one, repo, fmt.Sprint(spam, i))
		}},
		"one key, large": {lasts: time.Hour, answer: graspsync.Later, every: 1400 * time.Millisecond, spam: func(repo graspsync.RepoRef, i int) *nostr.Event {
			return pull(one, repo, fmt.Sprint(spam, i, pad))
		}},
		"a key each": {lasts: 8 * time.Minute, answer: graspsync.Reject, every: time.Second / 45, spam: func(repo graspsync.RepoRef, i int) *nostr.Event {
			return pull(newcomer(), repo, fmt.Sprint(spam, i))
		}},
		"a key each, no room": {lasts: 8 * time.Minute, answer: graspsync.Later, every: time.Second / 45, spam: func(repo graspsync.RepoRef, i int) *nostr.Event {
			return pull(newcomer(), repo, fmt.Sprint(spam, i))
		}},
		"a key each, of many kinds": {lasts: 8 * time.Minute, answer: graspsync.Reject, every: time.Second / 45, anyKinds: true, spam: func(repo graspsync.RepoRef, i int) *nostr.Event {
			kind := []int{graspsync.KindPullRequest, graspsync.KindIssue, graspsync.KindPatch, 2000 + i%1000}[i%4]
			return newcomer().Event(at(0), kind, fmt.Sprint(spam, i), nostr.Tag{"a", repo.String()})
		}},
	}
	for _, name := range racetest.Some(2, slices.Sorted(maps.Keys(cases))) {
		c := cases[name]
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				net := relaytest.NewNetwork()
				a := net.Add("wss://a.example", relaytest.Behavior{})
				r, owner := hosted(t, net, relaysync.Config{Policy: fullOf{relaysync.NewGRASPPolicy(identity), c.answer}}, "a.example")
				defer r.stop()
				after(5 * time.Minute)
				repo, began, n := owner.Ref("repo"), time.Now(), 0
				honest := map[*nostr.Event]time.Time{}
				slowest := time.Duration(0)
				look := func() {
					for ev, at := range honest {
						if r.has(ev) {
							slowest = max(slowest, time.Since(at))
							delete(honest, ev)
						}
					}
				}
				var others []*nostr.Event
				for i := 0; time.Since(began) < c.lasts; i++ {
					if i%10 == 0 { // by a known author, and by an unknown one
						for j, by := range []*relaytest.Key{owner, newcomer()} {
							ev := by.Issue(at(0), repo, fmt.Sprint("honest", i, j))
							a.Publish(ev)
							if j == 0 || !c.anyKinds {
								honest[ev] = time.Now()
							} else {
								others = append(others, ev)
							}
						}
						ev := pull(newcomer(), repo, fmt.Sprint("honest", i))
						a.Publish(ev)
						others = append(others, ev)
					}
					for until := time.Now().Add(2 * time.Second); time.Now().Before(until); n++ {
						a.Publish(c.spam(repo, n))
						time.Sleep(c.every)
					}
					look()
				}
				look()
				for ev := range honest {
					slowest = max(slowest, time.Since(honest[ev]))
				}
				missing := 0
				for _, ev := range others {
					if !r.has(ev) {
						missing++
					}
				}
				s, ended := r.manager.Status().Events, time.Now()
				t.Logf("%d refused ones: the slowest took %v, %d of %d others are left out; %d verified, dropped %v",
					n, slowest, missing, len(others), s.Verified, s.Dropped)
				assert.Less(t, slowest, 10*time.Second)
				for range 18 {
					after(10 * time.Minute)
					others = slices.DeleteFunc(others, r.has)
					if len(others) == 0 {
						break
					}
				}
				assert.Empty(t, others, "nothing is lost; it is %v since the flood ended", time.Since(ended))
			})
		})
	}
}
