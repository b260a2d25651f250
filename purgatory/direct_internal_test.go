package purgatory

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/eventtest"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory/internal/ledger"
	"github.com/graspsync/graspsync/state"
)

// held has pull requests wait.
func (w *rationed) held(pulls ...*nip34.PullRequest) {
	for _, pr := range pulls {
		answer, err := w.p.Submit(w.ctx, eventtest.Of(pr.Event), graspsync.Source{Kind: graspsync.CatchUp})
		require.NoError(w.t, err)
		require.Equal(w.t, Held, answer.Decision)
	}
}

// Whoever asks what waits is told of that, and of nothing else; an error of the relay is told.
func TestWhatWaitsCanBeAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newRationed(t, 0)
		p, now := w.p, time.Now().Unix()
		pr, other := w.pulls[0], w.pulls[1]
		require.Zero(t, p.entries.waiting.event(pr.ID))
		w.held(pr)
		_, err := p.Submit(t.Context(), eventtest.Of(other.Event), graspsync.Source{})
		require.NoError(t, err)
		require.Equal(t, eventtest.Of(pr.Event), p.entries.waiting.event(pr.ID))
		require.Equal(t, pr, p.entries.waiting.pullRequest(pr.ID))
		require.Nil(t, p.entries.waiting.pullRequest(graspsync.EventID{1}))
		for _, c := range []struct {
			id            graspsync.EventID
			byUser, waits bool
		}{{pr.ID, false, true}, {other.ID, true, true}, {graspsync.EventID{1}, false, false}} {
			byUser, waits := p.entries.waiting.submitted(c.id)
			require.Equal(t, []bool{c.byUser, c.waits}, []bool{byUser, waits})
		}
		var own []graspsync.Event
		for _, x := range []*nip34.PullRequest{pr, other} {
			if x.Author == pr.Author {
				own = append(own, eventtest.Of(x.Event))
			}
		}
		require.ElementsMatch(t, own, p.entries.waiting.eventsOf(pr.Author))
		require.Empty(t, p.entries.waiting.eventsOf(graspsync.PubKey{99}))

		a, members, err := p.reader.announcement(t.Context(), w.ref)
		require.NoError(t, err)
		require.Equal(t, w.announces, a)
		require.Equal(t, map[graspsync.PubKey]struct{}{w.ref.Owner: {}}, members)
		waiting := eventBy(graspsync.PubKey{8}, now, graspsync.KindAnnouncement, nostr.Tag{"d", "r"})
		_, err = p.Submit(t.Context(), eventtest.Of(waiting), graspsync.Source{Kind: graspsync.CatchUp})
		require.NoError(t, err)
		theirs := graspsync.RepoRef{Owner: graspsync.PubKey{8}, Identifier: "r"}
		a, members, err = p.reader.announcement(t.Context(), theirs)
		require.NoError(t, err)
		require.Equal(t, waiting, a.Event)
		require.Equal(t, map[graspsync.PubKey]struct{}{{8}: {}}, members)
		a, _, err = p.reader.announcement(t.Context(), graspsync.RepoRef{Owner: graspsync.PubKey{9}, Identifier: "r"})
		require.NoError(t, err)
		require.Nil(t, a)
		for _, what := range []string{"announcements", "states"} {
			w.fail = what
			_, _, err = p.reader.announcement(t.Context(), w.ref)
			require.ErrorIs(t, err, errScales)
			w.fail = what
			_, err = p.Authorised(t.Context(), w.ref)
			require.ErrorIs(t, err, errScales)
		}
	})
}

// Entries that wait again are not struck off for having made place, nor is what was pushed.
func TestStrikeLeavesWhatWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newRationed(t, 0)
		p, pr := w.p, w.pulls[0]
		kept := func() bool {
			_, err := p.entries.keep.Get(t.Context(), keyEntry+pr.ID.String())
			return err == nil
		}
		w.held(pr)
		e, _ := p.entries.waiting.ledger.Get(pr.ID)
		require.NoError(t, p.entries.strike(t.Context(), e))
		require.True(t, kept())
		p.entries.waiting.ledger.Remove(pr.ID)
		require.NoError(t, p.entries.rewrite(t.Context(), pr.ID))
		require.NoError(t, p.entries.strike(t.Context(), e))
		require.False(t, kept())
		require.NoError(t, p.entries.rewrite(t.Context(), pr.ID))
		require.False(t, kept(), "it does not wait")
		require.NoError(t, p.entries.forget(t.Context(), e, Released))
		require.Zero(t, p.Status().Released)
	})
}

// A pull request that is had again after it expired waits, though that it had can't be forgotten:
// that is told.
func TestSubmittedAgainOnABrokenDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newRationed(t, 0)
		p, pr := w.p, w.pulls[0]
		w.held(pr)
		e, _ := p.entries.waiting.ledger.Get(pr.ID)
		require.NoError(t, p.entries.expireForGood(t.Context(), e))
		answer, err := p.Submit(t.Context(), eventtest.Of(pr.Event), graspsync.Source{Kind: graspsync.CatchUp})
		require.NoError(t, err)
		require.Equal(t, Answer{Refused, reasonExpired}, answer)
		fails := &failing{Store: p.entries.keep, prefix: keyExpired}
		p.entries.keep = fails
		p.entries.remembered.keep = p.entries.keep
		w.log.Reset()
		answer, err = p.Submit(t.Context(), eventtest.Of(pr.Event), graspsync.Source{})
		require.NoError(t, err)
		require.Equal(t, Held, answer.Decision)
		require.Contains(t, w.log.String(), "ids could not be forgotten")
	})
}

// failing is a store in which nothing under a prefix can be dropped.
type failing struct {
	state.Store
	prefix string
}

func (f *failing) Delete(ctx context.Context, keys ...string) error {
	if slices.ContainsFunc(keys, func(key string) bool { return strings.HasPrefix(key, f.prefix) }) {
		return errScales
	}
	return f.Store.Delete(ctx, keys...)
}

// What is there is about as large as its text and its tags.
func TestSizeOf(t *testing.T) {
	require.Equal(t, 512, sizeOf(&nostr.Event{}))
	require.Equal(t, 512+5+(1+16)+(3+16)+16, sizeOf(&nostr.Event{Content: "hello", Tags: nostr.Tags{{"a", "abc"}, {""}, {}}}))
}

// relatives is a relay that knows announcements of repositories that are not ours.
type relatives struct {
	*scales
	all []*nip34.Announcement
}

func (r relatives) Events(ctx context.Context, f nostr.Filter) iter.Seq2[graspsync.Event, error] {
	if len(f.Authors) == 0 || !slices.Contains(f.Kinds, graspsync.KindAnnouncement) {
		return r.scales.Events(ctx, f)
	}
	return func(yield func(graspsync.Event, error) bool) {
		if err := r.fails("relatives"); err != nil {
			yield(graspsync.Event{}, err)
			return
		}
		for _, a := range r.all {
			if !yield(eventtest.Of(a.Event), nil) {
				return
			}
		}
	}
}

func (r relatives) Lists(a *nip34.Announcement) bool {
	return !slices.ContainsFunc(r.all, func(o *nip34.Announcement) bool { return o.ID == a.ID })
}

// Who agrees to maintain counts though their own repository is not here, as long as they say so;
// that it can't be asked for is an error.
func TestRelativesHaveASay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newRationed(t, 0)
		now := time.Now().Unix()
		lists := func(by, whom graspsync.PubKey, until int64) *nip34.Announcement {
			tags := nostr.Tags{{"d", "r"}, {"maintainers", whom.String()}}
			if until > 0 {
				tags = append(tags, nostr.Tag{"expiration", fmt.Sprint(until)})
			}
			a, err := nip34.ParseAnnouncement(eventtest.Of(eventBy(by, now-10, graspsync.KindAnnouncement, tags...)))
			require.NoError(t, err)
			return a
		}
		bob := graspsync.PubKey{6}
		w.announces = lists(w.ref.Owner, bob, 0)
		with := &relatives{scales: w.scales}
		w.open(with, w.scales, false)
		members := func() int {
			_, members, err := w.p.reader.announcement(t.Context(), w.ref)
			require.NoError(t, err)
			return len(members)
		}
		require.Equal(t, 1, members())
		with.all = []*nip34.Announcement{lists(bob, w.ref.Owner, now+60)}
		require.Equal(t, 2, members())
		time.Sleep(time.Minute)
		require.Equal(t, 1, members(), "they do not say so any more")
		w.fail = "relatives"
		_, _, err := w.p.reader.announcement(t.Context(), w.ref)
		require.ErrorIs(t, err, errScales)
		require.ErrorContains(t, err, "announcements of others")
	})
}

// What is being ended must not give way, nor a state or an announcement that a look goes by.
func TestWhatMustNotGiveWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newRationed(t, 0).p
		ref := graspsync.RepoRef{Owner: graspsync.PubKey{4}, Identifier: "x"}
		for _, class := range []ledger.Class{ledger.Announcement, ledger.State, ledger.PullRequest} {
			e := ledger.Entry{ID: graspsync.EventID{byte(class)}, Class: class, Repos: []graspsync.RepoRef{ref}}
			pull := class == ledger.PullRequest
			require.False(t, p.entries.pins.isFixed(e))
			p.entries.pins.pinned[e.ID] = 1
			require.Equal(t, !pull, p.entries.pins.isFixed(e))
			delete(p.entries.pins.pinned, e.ID)
			p.entries.pins.ending[e.ID] = struct{}{}
			require.True(t, p.entries.pins.isFixed(e))
			delete(p.entries.pins.ending, e.ID)
		}
	})
}

// The engine looks up at the first of all that is due, in an hour if nothing is, and not at once
// again.
func TestNextWake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newRationed(t, 0).p
		e, now := p.engine, time.Now()
		require.Equal(t, now.Add(time.Hour), e.nextWake(now))
		for i, at := range []map[graspsync.RepoRef]retry{
			{{Identifier: "x"}: {at: now.Add(50 * time.Minute)}}, {{Identifier: "x"}: {}}, {{Identifier: "x"}: {at: now.Add(2 * time.Hour)}},
		} {
			e.retries = at
			require.Equal(t, now.Add([]time.Duration{50 * time.Minute, time.Hour, time.Hour}[i]), e.nextWake(now))
		}
		e.surveys.retries["x"] = retry{at: now.Add(40 * time.Minute)}
		require.Equal(t, now.Add(40*time.Minute), e.nextWake(now))
		p.entries.waiting.ledger.Put(ledger.Entry{
			ID: graspsync.EventID{1}, Class: ledger.State, Repos: []graspsync.RepoRef{{Identifier: "x"}}, Deadline: now.Add(30 * time.Minute),
		})
		require.Equal(t, now.Add(30*time.Minute), e.nextWake(now))
		for n := range p.cfg.fixed.MaxLooks {
			require.Equal(t, now.Add(30*time.Minute), e.nextWake(now))
			e.expiring[graspsync.EventID{byte(n)}] = true
		}
		require.Equal(t, now.Add(40*time.Minute), e.nextWake(now), "all workers are at it")
		clear(e.expiring)
		for after, want := range map[time.Duration]time.Duration{
			-time.Hour: 10 * time.Millisecond, 9 * time.Millisecond: 10 * time.Millisecond, 10 * time.Millisecond: 10 * time.Millisecond,
			11 * time.Millisecond: 11 * time.Millisecond,
		} {
			e.surveys.retries["x"] = retry{at: now.Add(after)}
			require.Equal(t, now.Add(want), e.nextWake(now), after)
		}
	})
}

// Of the requests for a repository that are under way, the first counts.
func TestSinceOfRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newRationed(t, 0).p
		f, now := p.fetches, time.Now()
		ref := graspsync.RepoRef{Identifier: "x"}
		require.True(t, f.gatherings.since(ref).IsZero())
		require.False(t, f.gatherings.uses(ref))
		pl := f.gatherings.enter(ref)
		require.True(t, f.gatherings.uses(ref))
		require.True(t, f.gatherings.since(ref).IsZero())
		a := f.gatherings.gathering(pl, question{})
		b := f.gatherings.gathering(pl, question{})
		require.NotSame(t, a, b, "it is taken")
		c := f.gatherings.gathering(pl, question{several: true})
		f.gatherings.giveBack(pl, c)
		require.Len(t, pl.all, 2, "it has nothing")
		f.gatherings.began(b, now.Add(2))
		require.Equal(t, now.Add(2), f.gatherings.since(ref))
		f.gatherings.began(a, now.Add(1))
		require.Equal(t, now.Add(1), f.gatherings.since(ref))
		f.gatherings.began(a, now.Add(3))
		require.Equal(t, now.Add(2), f.gatherings.since(ref))
		f.gatherings.began(a, time.Time{})
		f.gatherings.began(b, time.Time{})
		require.True(t, f.gatherings.since(ref).IsZero())
		leave, free := f.gatherings.take(ref)
		require.True(t, free, "nobody fetches")
		leave()
		for _, g := range []*gathering{a, b} {
			f.gatherings.giveBack(pl, g)
		}
		require.Empty(t, pl.all)
	})
}
