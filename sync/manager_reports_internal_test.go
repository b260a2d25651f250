package sync

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/eventtest"
	"github.com/graspsync/graspsync/nip34"
)

// policyThatHolds is both.
type policyThatHolds interface {
	Policy
	Holder
}

// saidPolicy says what it is told to.
type saidPolicy struct {
	verdict       graspsync.Verdict
	err           error
	panics        bool
	byUser, held  bool
	announcements []*nip34.Announcement
	failAt        int // the announcement instead of which there is an error; 0: none
}

func (*saidPolicy) Authority(graspsync.RepoRef, View) *nip34.Authority { return nil }

func (*saidPolicy) Heard(string, View) map[graspsync.PubKey]bool { return nil }

func (p *saidPolicy) Judge(context.Context, graspsync.Event, graspsync.Source, View) (graspsync.Verdict, error) {
	if p.panics {
		panic("no policy")
	}
	return p.verdict, p.err
}
func (p *saidPolicy) Lists(*nip34.Announcement) bool { return true }

func (p *saidPolicy) Held(context.Context, nostr.Filter) ([]graspsync.Stamp, error) { return nil, nil }

func (p *saidPolicy) HeldForUser(graspsync.EventID) (byUser, held bool) { return p.byUser, p.held }

func (p *saidPolicy) HeldAnnouncements(context.Context) iter.Seq2[*nip34.Announcement, error] {
	return func(yield func(*nip34.Announcement, error) bool) {
		for i, a := range p.announcements {
			if p.failAt == i+1 {
				if p.panics {
					panic("no purgatory")
				}
				yield(nil, errDisk)
				return
			}
			if !yield(a, nil) {
				return
			}
		}
	}
}

// saidBench is a manager of which nothing runs, with all that it has told and logged.
type saidBench struct {
	*SyncManager
	log *bytes.Buffer
}

func newSaidBench(t *testing.T, policy policyThatHolds) *saidBench {
	t.Helper()
	identity, err := nip34.ParseIdentity("grasp.example")
	require.NoError(t, err)
	log := new(bytes.Buffer)
	m, err := New(&oddStore{}, &ownDouble{}, identity, Config{Policy: policy, Holder: policy, Logger: slog.New(slog.NewTextHandler(log, nil))})
	require.NoError(t, err)
	m.report.observer = &observer{queue: make(chan Observation, 1_000), counters: m.report.counters}
	return &saidBench{m, log}
}

// What is reported of an event that was released is counted and told if it was not stored,
// under the way by which it had come.
func TestNotReleased(t *testing.T) {
	for result := graspsync.Result(0); result <= graspsync.Failed+1; result++ {
		for _, known := range []string{"here", "user", "restart", ""} {
			policy := &saidPolicy{byUser: known == "user", held: known != ""}
			m := newSaidBench(t, policy)
			src := map[string]graspsync.SourceKind{"here": graspsync.Daily, "user": graspsync.Direct, "restart": graspsync.CatchUp, "": graspsync.Direct}[known]
			if known == "here" {
				m.ingest.holds.add(testID(1), heldEvent{source: graspsync.Source{Kind: graspsync.Daily}})
			}
			require.Equal(t, src, m.HeldFrom(testID(1)).Kind)
			m.NotReleased(testID(1), graspsync.Outcome{Result: result, Err: errDisk})
			counts := result == graspsync.Superseded || result == graspsync.Deleted || result == graspsync.Refused
			for r := graspsync.Stored; r <= graspsync.Failed; r++ {
				require.Equal(t, counts && r == result, m.report.results[r].Load() == 1)
			}
			rejected := told[EventRejected](m.SyncManager)
			if !counts {
				require.Empty(t, rejected)
				require.Empty(t, m.log.String())
				continue
			}
			require.Equal(t, []EventRejected{{ID: testID(1), Source: graspsync.Source{Kind: src}, Reason: "released and " + result.String()}}, rejected)
			require.Equal(t, result == graspsync.Refused, strings.Contains(m.log.String(), errDisk.Error()))
			require.Equal(t, known == "here", m.ingest.holds.has(testID(1)), "it is asked again")
		}
	}
}

// What the Policy has held since before our start is followed as far as it can be read.
func TestHeldSinceBeforeOurStart(t *testing.T) {
	for failAt := range 5 {
		for _, panics := range []bool{false, true} {
			policy := &saidPolicy{failAt: failAt, panics: panics}
			for i := range 4 {
				a, err := nip34.ParseAnnouncement(eventtest.Of(testAnnouncement(i, i, fmt.Sprint("repo", i), 1, "ours")))
				require.NoError(t, err)
				policy.announcements = append(policy.announcements, a)
			}
			m := newSaidBench(t, policy)
			m.followHeld(t.Context())
			read := 4
			if failAt > 0 {
				read = failAt - 1
			}
			require.Len(t, m.feed.take().held, read)
			require.Equal(t, failAt > 0, strings.Contains(m.log.String(), "held announcements could not be read"))
			require.Equal(t, failAt > 0 && panics, m.report.panics["policy"] == 1)
		}
	}
	m := newSaidBench(t, &holdingPolicy{}) // which knows of none
	m.followHeld(t.Context())
	require.Empty(t, m.log.String())
}

// What the Policy says of what a client submits is returned, counted if it is no, and
// remembered if it is held.
func TestJudgeOfASubmission(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now := nostr.Now()
		expired := nostr.Tags{{"expiration", fmt.Sprint(int64(now))}}
		future := now + 901 // more than is tolerated
		for _, c := range []struct {
			verdict graspsync.Verdict
			err     error
			panics  bool
			at      nostr.Timestamp
			tags    nostr.Tags
			want    graspsync.Verdict
			reason  string
			fails   string
		}{
			{verdict: graspsync.Verdict{Decision: graspsync.Accept}, want: graspsync.Verdict{Decision: graspsync.Accept}},
			{verdict: graspsync.Verdict{Decision: graspsync.Accept}, tags: expired, want: reject(reasonExpired), reason: reasonExpired},
			{verdict: graspsync.Verdict{Decision: graspsync.Hold}, tags: expired, want: reject(reasonExpired), reason: reasonExpired},
			{verdict: graspsync.Verdict{Decision: graspsync.Hold}, want: graspsync.Verdict{Decision: graspsync.Hold}},
			{verdict: reject("blocked: x"), want: reject("blocked: x"), reason: "blocked: x"},
			{verdict: graspsync.Verdict{Decision: graspsync.Later, Reason: "full"}, want: graspsync.Verdict{Decision: graspsync.Later, Reason: "full"}, reason: "full"},
			{verdict: graspsync.Verdict{Decision: graspsync.Depend}, want: graspsync.Verdict{Decision: graspsync.Depend, Reason: reasonDepends}, reason: reasonDepends},
			{verdict: graspsync.Verdict{Decision: graspsync.Accept}, at: future, want: graspsync.Verdict{Decision: graspsync.Later, Reason: reasonFuture}, reason: reasonFuture},
			{verdict: graspsync.Verdict{Decision: graspsync.Accept}, at: future - 1, want: graspsync.Verdict{Decision: graspsync.Accept}},
			{err: errDisk, fails: "disk on fire"},
			{verdict: reject("blocked: x"), err: errDisk, want: reject("blocked: x"), fails: "disk on fire"},
			{panics: true, fails: "policy panicked: no policy"},
		} {
			m := newSaidBench(t, &saidPolicy{verdict: c.verdict, err: c.err, panics: c.panics})
			ev := testAnnouncement(1, 1, "repo", now, "ours")
			ev.Tags = append(ev.Tags, c.tags...)
			if c.at > 0 {
				ev.CreatedAt = c.at
			}
			_, err := m.Judge(t.Context(), eventtest.Of(ev))
			require.ErrorIs(t, err, ErrNotReady)
			m.readable.set()
			v, err := m.Judge(t.Context(), eventtest.Of(ev))
			require.Equal(t, c.want, v)
			if c.fails != "" {
				require.EqualError(t, err, c.fails)
			} else {
				require.NoError(t, err)
			}
			want := map[string]uint64{}
			if c.reason != "" {
				want[c.reason] = 1
			}
			var s EventStatus
			m.report.reasons(&s)
			require.Equal(t, want, s.Rejected)
			held := c.want.Decision == graspsync.Hold
			require.Equal(t, held, m.ingest.holds.has(testID(1)))
			require.Len(t, m.feed.take().held, map[bool]int{true: 1}[held], "the states of what is held are followed")
		}
	})
}

// An event that is none, or that nobody has parsed, does no harm wherever it is reported, and one
// that is leaves what was known of it being held.
func TestReportsOfOddEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, report := range map[string]func(*SyncManager, graspsync.Event){
			"stored": (*SyncManager).Stored, "removed": (*SyncManager).Removed,
			"postponed": (*SyncManager).Postponed, "held": (*SyncManager).Held,
		} {
			m := newSaidBench(t, &saidPolicy{})
			report(m.SyncManager, graspsync.Event{})
			report(m.SyncManager, graspsync.Event{Event: testAnnouncement(1, 1, "repo", nostr.Now(), "ours")})
			require.Zero(t, m.report.sources[graspsync.Direct].Load(), name)
			require.Empty(t, m.feed.take().held)
			require.Zero(t, m.ingest.absences.rejected.Len())

			m.ingest.holds.add(testID(1), heldEvent{source: graspsync.Source{Kind: graspsync.Live}})
			report(m.SyncManager, eventtest.Of(testAnnouncement(1, 1, "repo", nostr.Now(), "ours")))
			m.submissions.takeIn() // as Run does
			require.Equal(t, name == "held", m.ingest.holds.has(testID(1)), name)
			require.Len(t, m.feed.take().held, map[bool]int{true: 1}[name == "held"])
			require.Equal(t, name == "stored", m.report.sources[graspsync.Live].Load() == 1)
			require.Equal(t, name == "removed" || name == "postponed", m.ingest.absences.rejected.Len() == 1, name)
			require.Equal(t, name == "postponed", m.ingest.news.later.Load())
		}
	})
}

// A relay can't be without a name, and each thing that is wrong is said at once.
func TestNewNamesAllThatIsWrong(t *testing.T) {
	own, err := graspsync.ParseRelayURL("wss://grasp.example")
	require.NoError(t, err)
	identity, err := nip34.ParseIdentity("grasp.example")
	require.NoError(t, err)
	_, err = New(nil, nil, nip34.Identity{}, Config{fixed: constants{MaxDials: -1}})
	require.ErrorIs(t, err, ErrConfig)
	for _, part := range []string{"store is nil", "transport is nil", "identity is empty", "MaxDials"} {
		require.ErrorContains(t, err, part)
	}
	_, err = New(&oddStore{}, &ownDouble{}, identity, Config{Bootstrap: []graspsync.RelayURL{own}})
	require.ErrorContains(t, err, "Bootstrap names our own relay, wss://grasp.example")
	require.False(t, errors.Is(err, ErrRunning))
	m, err := New(&oddStore{}, &ownDouble{}, identity, Config{})
	require.NoError(t, err)
	require.Equal(t, m.loop.env.conn.transport, m.cfg.OwnTransport)
	require.NotNil(t, m.cfg.Policy)
	require.Equal(t, 15*time.Minute, m.cfg.fixed.FutureTolerance)
}

// forgetful is a policy that panics where it is asked what it knows of something.
type forgetful struct{ saidPolicy }

func (*forgetful) HeldForUser(graspsync.EventID) (byUser, held bool) { panic("no idea") }

func (*forgetful) Authority(graspsync.RepoRef, View) *nip34.Authority { panic("no idea") }

// A policy that panics when it is asked what it holds, or who has a say, can't tell: what asks
// goes on.
func TestPolicyThatForgets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newSaidBench(t, &forgetful{})
		require.Equal(t, graspsync.Direct, m.HeldFrom(testID(1)).Kind)
		m.Stored(eventtest.Of(testEvent(1, graspsync.KindIssue, 1, nostr.Now())))
		m.submissions.takeIn() // as Run does
		require.Nil(t, m.ingest.policy.authority(testRepo(1, "x")))
		require.Equal(t, map[string]uint64{"policy": 3}, m.report.panics)
		require.EqualValues(t, 1, m.report.bySource()["direct"])
	})
}
