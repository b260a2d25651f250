package khatruadapter

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fiatjaf/khatru"
	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/adapter/internal/embedding"
	"github.com/graspsync/graspsync/internal/eventtest"
	"github.com/graspsync/graspsync/nip34"
	relaysync "github.com/graspsync/graspsync/sync"
	"github.com/graspsync/graspsync/sync/relaytest"
)

const saidNoRoom = "WARN disk is nearly full, storing no events"

const roomPeriod = time.Second // time for which free space is cached

// drive is a disk with free space set by a test.
type drive struct{ free atomic.Uint64 }

func (d *drive) Free() (uint64, error) { return d.free.Load(), nil }

// Clients filled the disk until the database was killed and did not start again. Now they receive a
// temporary error, nothing is stored, and the policy is not asked, because it could hold the event
// and fetch its git data. Deletions are stored.
func TestClientsWithoutRoom(t *testing.T) {
	for name, holds := range map[string]relaysync.Holder{
		"a policy that holds": holder{}, "one that does not": nil,
	} {
		t.Run(name, func(t *testing.T) {
			relay := khatru.NewRelay()
			synctest.Test(t, func(t *testing.T) {
				var d drive
				d.free.Store(1 << 30)
				expectLog(t, saidNoRoom, "ERROR judging an event failed")
				s, _, m := embed(t, relay, newSlice(t), Config{ApplyPolicyToClients: true, Free: d.Free, Sync: relaysync.Config{Holder: holds}})
				publish := func(e *nostr.Event) error {
					_, err := relay.AddEvent(t.Context(), e)
					return err
				}
				m.verdict = graspsync.Verdict{Decision: graspsync.Accept}
				here, refused := event(alice, 1, start), event(alice, 1, start)
				require.NoError(t, publish(here), "there is a GiB")
				d.free.Store(1<<30 - 1)
				time.Sleep(roomPeriod)
				require.EqualError(t, publish(refused), embedding.MsgRoom)
				require.True(t, strings.HasPrefix(embedding.MsgRoom, "error: no room on the disk"), "by which a client knows that it passes")
				require.EqualError(t, publish(event(alice, 30617, start, nostr.Tag{"d", "repo"})), embedding.MsgRoom)
				require.Equal(t, 1, m.judged)
				require.NoError(t, publish(event(alice, 20001, start)), "it is not stored")
				deletion := event(alice, 5, start, nostr.Tag{"e", here.ID})
				require.NoError(t, publish(deletion))
				require.Equal(t, []string{deletion.ID}, content(t, s.Store()))
				d.free.Store(1 << 30)
				time.Sleep(roomPeriod)
				require.NoError(t, publish(refused))

				m.err = ErrRoom // filled up after the hooks ran
				require.EqualError(t, publish(event(alice, 1, start)), embedding.MsgRoom)
				m.err = errors.New("boom")
				require.EqualError(t, publish(event(alice, 1, start)), embedding.MsgJudge)
				require.ElementsMatch(t, []string{deletion.ID, refused.ID}, content(t, s.Store()))
			})
		})
	}
}

// A held event is released only when there is room again.
func TestReleaseWithoutRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var d drive
		expectLog(t, saidNoRoom)
		s, _, m := embed(t, &khatru.Relay{}, newSlice(t), Config{Free: d.Free, MinFree: 10})
		e := event(alice, 1, start)
		for _, free := range []uint64{9, 10} {
			d.free.Store(free)
			time.Sleep(roomPeriod)
			o, err := s.Release(t.Context(), eventtest.Of(e))
			require.NoError(t, err)
			require.Equal(t, free == 10, o.Result == graspsync.Stored)
			require.Equal(t, free != 10, o.Result == graspsync.Failed && errors.Is(o.Err, ErrRoom))
		}
		require.Equal(t, []string{e.ID}, m.stored)
	})
}

// A synced event is retried until there is room. In the meantime hooks still refuse events, and
// deletions are stored.
func TestSyncWithoutRoom(t *testing.T) {
	identity, err := nip34.ParseIdentity("grasp.example.com")
	require.NoError(t, err)
	relay := khatru.NewRelay()
	synctest.Test(t, func(t *testing.T) {
		net := relaytest.NewNetwork()
		a := net.Add("wss://a.example", relaytest.Behavior{})
		owner, spammer := relaytest.NewCheapKey("owner"), relaytest.NewCheapKey("spammer")
		at := nostr.Timestamp(time.Now().Add(-time.Hour).Unix())
		db := newSlice(t)
		announcement := owner.Hosted(at, "repo", "grasp.example.com", "a.example")
		old, early := owner.Issue(at, owner.Ref("repo"), "old"), owner.Issue(at+1, owner.Ref("repo"), "early")
		for _, e := range []*nostr.Event{announcement, old} {
			require.NoError(t, db.SaveEvent(t.Context(), e))
		}
		a.Publish(announcement, old, early)
		relay.RejectEvent = append(relay.RejectEvent, func(_ context.Context, e *nostr.Event) (bool, string) {
			return e.PubKey == spammer.Hex(), "blocked: spam"
		})
		var d drive
		d.free.Store(1 << 29)
		expectLog(t, saidNoRoom, "WARN saving events failed, will retry",
			"WARN hook refused a synced event, khatruadapter.IsSynced lets it accept such events")
		s, err := New(relay, db, identity, Config{Transport: net, Free: d.Free, Sync: relaysync.Config{
			Verifier: relaytest.CheapVerifier{}, Logger: logged(t),
		}})
		require.NoError(t, err)
		stop := run(t, s)
		time.Sleep(time.Minute)
		synctest.Wait()
		late, spam := owner.Issue(at+2, owner.Ref("repo"), "late"), spammer.Issue(at, owner.Ref("repo"), "spam")
		deletion := owner.Event(at+3, graspsync.KindDeletion, "", nostr.Tag{"e", old.ID})
		a.Publish(late, spam, deletion)
		time.Sleep(time.Hour)
		synctest.Wait()
		assert.ElementsMatch(t, []string{announcement.ID, deletion.ID}, content(t, s.Store()))
		assert.Positive(t, s.Manager().Status().Events.Failed)
		d.free.Store(1 << 30)
		time.Sleep(2 * time.Hour)
		synctest.Wait()
		assert.ElementsMatch(t, []string{announcement.ID, deletion.ID, early.ID, late.ID}, content(t, s.Store()))
		stop()
	})
}
