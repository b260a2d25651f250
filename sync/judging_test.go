package sync_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync/atomic"
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
	"github.com/graspsync/graspsync/sync/wire"
)

// An older version of a replaceable event was counted as stored, and broadcast.
func TestTrapH9_OlderVersion(t *testing.T) {
	bubble(t, func(t *testing.T) {
		net := relaytest.NewNetwork()
		a := net.Add("wss://a.example", relaytest.Behavior{})
		r, owner := hosted(t, net, relaysync.Config{}, "a.example")
		defer r.stop()
		newer := owner.State(at(time.Hour), "repo", map[string]string{"refs/heads/main": strings.Repeat("a", 40)}, "")
		older := owner.State(at(2*time.Hour), "repo", nil, "")
		r.save(newer)
		after(time.Minute)
		stored := r.manager.Status().Events.Stored
		a.Publish(older)
		after(time.Minute)
		require.False(t, r.has(older))
		require.True(t, r.has(newer))
		require.Equal(t, stored, r.manager.Status().Events.Stored)
		require.Equal(t, uint64(1), r.manager.Status().Events.Superseded)
	})
}

// countingVerifier counts the signatures it checks.
type countingVerifier struct{ n atomic.Int64 }

func (v *countingVerifier) Verify(events []*nostr.Event) []error {
	v.n.Add(int64(len(events)))
	return relaytest.CheapVerifier{}.Verify(events)
}

// The signature of one event from n relays was checked n times.
func TestTrapH10_OneCheckPerEvent(t *testing.T) {
	bubble(t, func(t *testing.T) {
		net := relaytest.NewNetwork()
		var hosts []string
		var relays []*relaytest.Relay
		for i := range 8 {
			hosts = append(hosts, fmt.Sprintf("r%d.example", i))
			relays = append(relays, net.Add("wss://"+hosts[i], relaytest.Behavior{Negentropy: relaytest.NegNotice}))
		}
		verifier := &countingVerifier{}
		r, owner := hosted(t, net, relaysync.Config{Verifier: verifier}, hosts...)
		defer r.stop()
		for i := range 50 {
			issue := owner.Issue(at(time.Duration(i)*time.Minute), owner.Ref("repo"), fmt.Sprint(i))
			for _, rel := range relays {
				rel.Publish(issue)
			}
		}
		foreign := owner.Hosted(at(time.Hour), "foreign", "elsewhere.example")
		for _, rel := range relays {
			rel.Publish(foreign)
		}
		after(5 * time.Minute)
		status := r.manager.Status()
		require.Equal(t, uint64(50), status.Events.Stored)
		for i, rel := range status.Relays {
			sent := relays[i].Traffic()
			require.Equal(t, "wss://"+hosts[i], rel.URL.String())
			require.Equal(t, sent.BytesSent, int64(rel.Bytes)) //nolint:gosec // small
			// An event on a subscription that was just closed is not an answer.
			require.LessOrEqual(t, int(rel.Events), sent.EventsSent) //nolint:gosec // small
			require.GreaterOrEqual(t, rel.Events, uint64(51))
		}
		require.Equal(t, int64(50), verifier.n.Load(), "a foreign announcement is rejected without")
	})
}

// A forged copy that comes first must not exclude the real event, and counts against its relay.
func TestForgedCopyComesFirst(t *testing.T) {
	for _, f := range []relaytest.Forgery{relaytest.ForgeSignature, relaytest.ForgeContent, relaytest.ForgeID} {
		bubble(t, func(t *testing.T) {
			net := relaytest.NewNetwork()
			liar := net.Add("wss://liar.example", relaytest.Behavior{Hostility: relaytest.Hostility{Forge: f}, Negentropy: relaytest.NegNotice})
			honest := net.Add("wss://honest.example", relaytest.Behavior{Latency: time.Second, Negentropy: relaytest.NegNotice})
			r, owner := hosted(t, net, relaysync.Config{}, "liar.example", "honest.example")
			defer r.stop()
			var issues []*nostr.Event
			for i := range 20 {
				issues = append(issues, owner.Issue(at(time.Duration(i)*time.Minute), owner.Ref("repo"), fmt.Sprint(i)))
			}
			liar.Publish(issues...)
			honest.Publish(issues...)
			after(5 * time.Minute)
			for _, ev := range issues {
				require.True(t, r.has(ev))
			}
			require.NotZero(t, r.manager.Status().Events.Forged)
			require.Equal(t, "disconnected", r.relay("wss://liar.example").Phase)
			require.Greater(t, time.Until(r.relay("wss://liar.example").NextAttempt), 50*time.Minute)
			require.Less(t, time.Since(r.relay("wss://liar.example").LastAttempt), 10*time.Minute)
			require.Equal(t, "live", r.relay("wss://honest.example").Phase)
		})
	}
}

// badAnswers is a policy and verifier whose first answers are invalid.
type badAnswers struct {
	relaysync.Policy
	relaysync.Verifier
	verdict                graspsync.Verdict
	judgements, signatures atomic.Int32
}

func (b *badAnswers) Judge(ctx context.Context, ev graspsync.Event, src graspsync.Source, view relaysync.View) (graspsync.Verdict, error) {
	if b.judgements.Add(-1) >= 0 {
		return b.verdict, nil
	}
	return b.Policy.Judge(ctx, ev, src, view)
}

func (b *badAnswers) Verify(events []*nostr.Event) []error {
	if b.signatures.Add(-1) >= 0 {
		return nil
	}
	return b.Verifier.Verify(events)
}

// An invalid answer of the embedder's code is neither a verdict about the event nor a proof against
// the relay.
func TestInvalidAnswers(t *testing.T) {
	for name, b := range map[string]*badAnswers{
		"no decision":        {},
		"depends on nothing": {verdict: graspsync.Verdict{Decision: graspsync.Depend}},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				identity, err := nip34.ParseIdentity(us)
				require.NoError(t, err)
				b.Policy, b.Verifier = relaysync.NewGRASPPolicy(identity), relaytest.CheapVerifier{}
				net := relaytest.NewNetwork()
				a := net.Add("wss://a.example", relaytest.Behavior{})
				r, owner := hosted(t, net, relaysync.Config{Policy: b, Verifier: b}, "a.example")
				defer r.stop()
				after(time.Minute)
				b.judgements.Store(1)
				b.signatures.Store(1)
				issue := owner.Issue(at(time.Minute), owner.Ref("repo"), "x")
				a.Publish(issue)
				a.Cut() // the next catch-up fetches the event that the verifier dropped
				after(5 * time.Minute)
				require.True(t, r.has(issue))
				require.Zero(t, r.relay("wss://a.example").Strikes)
			})
		})
	}
}

// Events removed by moderation came back with the next pass.
func TestRemovedStaysAway(t *testing.T) {
	bubble(t, func(t *testing.T) {
		net := relaytest.NewNetwork()
		a := net.Add("wss://a.example", relaytest.Behavior{})
		r, owner := hosted(t, net, relaysync.Config{}, "a.example")
		defer r.stop()
		after(time.Minute)
		spam := owner.Issue(at(time.Hour), owner.Ref("repo"), "spam")
		r.manager.NotifyRemoved(eventtest.Of(spam)) // it was stored before and not received since
		a.Publish(spam)
		after(30 * time.Hour)
		require.False(t, r.has(spam))
	})
}

// No event can be judged before the Store was read.
func TestJudgeBeforeTheScan(t *testing.T) {
	bubble(t, func(t *testing.T) {
		owner := relaytest.NewCheapKey("owner")
		r := &rig{t: t, store: memstore.New()}
		r.save(owner.Hosted(at(24*time.Hour), "repo", us))
		issue := owner.Issue(at(time.Hour), owner.Ref("repo"), "x")
		identity, err := nip34.ParseIdentity(us)
		require.NoError(t, err)
		m, err := relaysync.New(r.store, relaytest.NewNetwork(), identity, relaysync.Config{})
		require.NoError(t, err)
		_, err = m.Judge(t.Context(), eventtest.Of(issue))
		require.ErrorIs(t, err, relaysync.ErrNotReady)
		r = start(t, relaytest.NewNetwork(), r.store, relaysync.Config{})
		defer r.stop()
		synctest.Wait()
		v, err := r.manager.Judge(t.Context(), eventtest.Of(issue))
		require.NoError(t, err)
		require.Equal(t, graspsync.Accept, v.Decision)
	})
}

// Seconds beyond the range of time.Time were treated as before all others.
func TestJudgeTimesBeyondAllClocks(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r, owner := hosted(t, relaytest.NewNetwork(), relaysync.Config{})
		defer r.stop()
		synctest.Wait()
		ref := nostr.Tag{"a", owner.Ref("repo").String()}
		v, err := r.manager.Judge(t.Context(), eventtest.Of(owner.Event(math.MaxInt64, 1621, "at the end of time", ref)))
		require.NoError(t, err)
		require.Equal(t, graspsync.Later, v.Decision)
		v, err = r.manager.Judge(t.Context(), eventtest.Of(owner.Event(at(time.Hour), 1621, "for ever", ref,
			nostr.Tag{"expiration", fmt.Sprint(math.MaxInt64)})))
		require.NoError(t, err)
		require.Equal(t, graspsync.Accept, v.Decision)
	})
}

// A submitted event that the Policy accepts is rejected if it has expired, like events from relays.
// If the Policy does not accept it, the reason of the Policy is used.
func TestSubmittedWhenExpired(t *testing.T) {
	bubble(t, func(t *testing.T) {
		net := relaytest.NewNetwork()
		net.Add("wss://a.example", relaytest.Behavior{})
		r, owner := hosted(t, net, relaysync.Config{}, "a.example")
		defer r.stop()
		after(time.Minute)
		decide := func(repo string, tags ...nostr.Tag) graspsync.Verdict {
			tags = append(tags, nostr.Tag{"a", owner.Ref(repo).String()})
			v, err := r.manager.Judge(t.Context(), eventtest.Of(owner.Event(at(time.Hour), 1621, "x", tags...)))
			require.NoError(t, err)
			return v
		}
		over, ahead := nostr.Tag{"expiration", fmt.Sprint(at(time.Minute))}, nostr.Tag{"expiration", fmt.Sprint(at(-time.Minute))}
		require.Equal(t, graspsync.Accept, decide("repo").Decision)
		require.Equal(t, graspsync.Accept, decide("repo", ahead).Decision)
		v := decide("repo", over)
		require.Equal(t, graspsync.Reject, v.Decision)
		require.Contains(t, v.Reason, "expired")
		require.Equal(t, graspsync.Reject, decide("other", over).Decision, "whatever it belongs to")
	})
}

// breathless is a relay that sends its last messages together and disconnects.
type breathless struct {
	relaysync.Transport
	last  int
	dials atomic.Int64
}

type breathlessConn struct {
	relaysync.Conn
	last int
	said []wire.Message
	over bool
}

func (b *breathless) Dial(ctx context.Context, u graspsync.RelayURL) (relaysync.Conn, error) {
	if b.dials.Add(1) > 1 {
		return nil, errors.New("gone for good")
	}
	c, err := b.Transport.Dial(ctx, u)
	if err != nil {
		return nil, err
	}
	return &breathlessConn{Conn: c, last: b.last}, nil
}

func (c *breathlessConn) Receive(ctx context.Context) (wire.Message, error) {
	for !c.over {
		msg, err := c.Conn.Receive(ctx)
		if err != nil || msg.Event.IsZero() || msg.Event.Content != "last" {
			return msg, err
		}
		c.said = append(c.said, msg)
		c.over = len(c.said) == c.last
	}
	if len(c.said) == 0 {
		return wire.Message{}, relaysync.ErrClosed
	}
	msg := c.said[0]
	c.said = c.said[1:]
	return msg, nil
}

// Messages that a relay sent before its connection ended count, although the end is known before
// all are processed.
func TestLastWordsCount(t *testing.T) {
	for range 20 {
		bubble(t, func(t *testing.T) {
			net := relaytest.NewNetwork()
			a := net.Add("wss://a.example", relaytest.Behavior{})
			r, owner := hostedOver(t, net, &breathless{Transport: net, last: 12}, relaysync.Config{}, "a.example")
			defer r.stop()
			after(time.Minute)
			var last []*nostr.Event
			for i := range 12 {
				last = append(last, owner.Event(at(0), 1621, "last", nostr.Tag{"a", owner.Ref("repo").String()}, nostr.Tag{"n", fmt.Sprint(i)}))
			}
			a.Publish(last...)
			after(time.Minute)
			for i, ev := range last {
				require.True(t, r.has(ev), "number %d", i)
			}
			require.Equal(t, "disconnected", r.manager.Status().Relays[0].Phase)
		})
	}
}
