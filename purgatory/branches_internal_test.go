package purgatory

import (
	"context"
	"fmt"
	"iter"
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
	"github.com/graspsync/graspsync/purgatory/internal/resolve"
	"github.com/graspsync/graspsync/purgatory/internal/stopwatch"
	"github.com/graspsync/graspsync/state"
)

// look reads what a look at the repository begins with.
func (w *rationed) look() (*resolve.Group, *repository) {
	g, err := w.p.reader.gather(w.ctx, w.ref, false)
	require.NoError(w.t, err)
	r := &repository{Repository: g.Repository(w.ref)}
	r.dir, r.until, r.watch = "dir", pullsShare, stopwatch.New(pullsShare, ErrCrowded)
	r.Refs = resolve.Refs{At: w.refs, Format: nip34.SHA1}
	return g, r
}

// What another repository has, and can't be weighed, does not come from there; that others have all
// places in which git may run ends the look.
func TestPullsOfOthersThatCanNotBeWeighed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newRationed(t, 0)
		p, pr := w.p, w.pulls[0]
		w.held(pr)
		w.sizes[pr.Tip] = 100
		room := func() (int64, bool, error) {
			g, r := w.look()
			return p.looker.pullWithRoom(t.Context(), g, r, "dir", pr.Tip, nil, 10)
		}
		bytes, has, err := room()
		require.NoError(t, err)
		require.True(t, has)
		require.EqualValues(t, 100, bytes)
		w.sizes[pr.Tip] = 1015
		_, has, err = room()
		require.NoError(t, err)
		require.False(t, has, "with what comes besides")
		dropped, _ := p.report.byName()
		require.EqualValues(t, 1, dropped["pull_refs"])
		w.err = errScales
		bytes, has, err = room()
		require.NoError(t, err)
		require.False(t, has)
		require.Zero(t, bytes)
		require.Contains(t, w.log.String(), "what another repository has could not be weighed")
		w.err = fmt.Errorf("busy: %w", ErrCrowded)
		_, has, err = room()
		require.ErrorIs(t, err, ErrCrowded)
		require.False(t, has)
		g, r := w.look()
		_, _, err = p.looker.withRoom(t.Context(), g, r, "dir", []nip34.ObjectID{pr.Tip})
		require.ErrorIs(t, err, ErrCrowded)
		w.err = nil
		w.fail = "probe"
		_, _, err = p.looker.withRoom(t.Context(), g, r, "dir", []nip34.ObjectID{pr.Tip})
		require.ErrorIs(t, err, errScales)
		w.sizes[pr.Tip] = 100
		ids, _, err := p.looker.withRoom(t.Context(), g, r, "dir", []nip34.ObjectID{objectOf(99), pr.Tip})
		require.NoError(t, err)
		require.Equal(t, []nip34.ObjectID{pr.Tip}, ids, "nothing names the other")
		require.True(t, r.more)
	})
}

// elusive are repositories of which none is ever there, or that are in use.
type elusive struct {
	*scales
	locks, creates int
	removes        error
	departed       []graspsync.RepoRef
}

func (e *elusive) Lock(context.Context, graspsync.RepoRef) (string, func(), error) {
	e.locks++
	return "", nil, ErrNoRepository
}

func (e *elusive) Create(context.Context, graspsync.RepoRef, nip34.ObjectFormat) error {
	e.creates++
	return e.fails("create")
}

func (e *elusive) Remove(context.Context, graspsync.RepoRef) error { return e.removes }

func (e *elusive) Depart(_ context.Context, ref graspsync.RepoRef) error {
	e.departed = append(e.departed, ref)
	return nil
}

// A repository that can't be made to be there is given up for now.
func TestRepositoryThatIsNeverThere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newRationed(t, 0)
		repos := &elusive{scales: w.scales}
		w.p.looker.repos = containedRepositories{repos, w.p.report}
		w.p.mover.repos = w.p.looker.repos
		_, r, err := w.p.looker.open(t.Context(), w.ref, false)
		require.ErrorIs(t, err, ErrNoRepository)
		require.Nil(t, r)
		require.Equal(t, []int{3, 3}, []int{repos.locks, repos.creates})
		w.fail = "create"
		_, _, err = w.p.looker.open(t.Context(), w.ref, false)
		require.ErrorIs(t, err, errScales)
		require.ErrorContains(t, err, "creating repository: ")
		w.fail = "announcements"
		_, _, err = w.p.looker.open(t.Context(), w.ref, false)
		require.ErrorIs(t, err, errScales)
		other := graspsync.RepoRef{Owner: graspsync.PubKey{77}, Identifier: "r"}
		_, r, err = w.p.looker.open(t.Context(), other, false)
		require.NoError(t, err)
		require.Nil(t, r, "it is not ours")
		require.Empty(t, w.p.entries.pins.pinned)
	})
}

// What is being fetched for is not made anew, nor removed.
func TestInUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newRationed(t, 0)
		p, f := w.p, w.p.fetches
		repos := &elusive{scales: w.scales}
		p.looker.repos = containedRepositories{repos, p.report}
		p.mover.repos, p.remover.repos, p.intake.repos = p.looker.repos, p.looker.repos, p.looker.repos
		require.NoError(t, p.intake.remake(t.Context(), w.ref, nip34.SHA1))
		require.NoError(t, p.looker.makeFor(t.Context(), w.ref, nip34.SHA1, false))
		require.NoError(t, p.remover.remove(t.Context(), w.ref))
		g, _ := w.look()
		pl := f.gatherings.enter(w.ref)
		pl.turns <- struct{}{}
		for name, err := range map[string]error{
			"remake": p.intake.remake(t.Context(), w.ref, nip34.SHA1), "make": p.looker.makeFor(t.Context(), w.ref, nip34.SHA1, false),
			"remove": p.remover.remove(t.Context(), w.ref),
		} {
			require.ErrorIs(t, err, ErrInUse, name)
		}
		require.Len(t, pl.turns, 1)
		require.Equal(t, 2, repos.creates)
		<-pl.turns
		f.gatherings.leave(w.ref, pl)
		require.Empty(t, f.gatherings.places)
		repos.removes = fmt.Errorf("it has refs: %w", ErrInUse)
		require.NoError(t, p.looker.leaves(t.Context(), g, w.ref), "it departs")
		require.Equal(t, []graspsync.RepoRef{w.ref}, repos.departed)
		repos.removes = errScales
		require.ErrorIs(t, p.looker.leaves(t.Context(), g, w.ref), errScales)
	})
}

// A pull request for several repositories waits for those of ours that could have its ref and have
// it not, and for no others.
func TestLackRef(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newRationed(t, 0)
		p := w.p
		_, r := w.look()
		other := graspsync.RepoRef{Owner: graspsync.PubKey{50}, Identifier: "r"}
		h := resolve.Pull{Pull: &nip34.PullRequest{Repos: []graspsync.RepoRef{w.ref, other}, Tip: objectOf(1)}}
		lacks := func(has ...graspsync.RepoRef) bool {
			out, err := p.reader.lackRef(t.Context(), r, h, setOf(has))
			require.NoError(t, err)
			return out
		}
		require.True(t, lacks())
		require.False(t, lacks(w.ref), "the other one is not ours")
		r.Refs.Format = nip34.SHA256
		require.False(t, lacks(), "it can't have it")
		p.entries.waiting.ledger.Put(ledger.Entry{ID: graspsync.EventID{1}, Class: ledger.Announcement, Repos: []graspsync.RepoRef{other}})
		require.True(t, lacks(), "it may be ours yet")
		p.entries.waiting.ledger.Put(ledger.Entry{ID: graspsync.EventID{1}, Class: ledger.Announcement, Repos: []graspsync.RepoRef{other}, Soft: true})
		require.False(t, lacks())
		r.Refs.Format = nip34.SHA1
		w.fail = "announcements"
		_, err := p.reader.lackRef(t.Context(), r, h, nil)
		require.ErrorIs(t, err, errScales)
	})
}

// A new state is a sign of life though relatives or announcements can't be read; that is told.
func TestSignOfLifeWithoutTheRelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newRationed(t, 0)
		with := &relatives{scales: w.scales}
		w.open(with, w.scales, false)
		p, now := w.p, time.Now()
		bob := graspsync.PubKey{6}
		a := eventBy(bob, now.Unix(), graspsync.KindAnnouncement, nostr.Tag{"d", "r"})
		_, err := p.Submit(t.Context(), eventtest.Of(a), graspsync.Source{Kind: graspsync.CatchUp})
		require.NoError(t, err)
		ref := graspsync.RepoRef{Owner: bob, Identifier: "r"}
		for _, what := range []string{"announcements", "relatives"} {
			time.Sleep(time.Minute)
			before, _ := p.entries.waiting.announcement(ref)
			w.log.Reset()
			w.fail = what
			p.intake.alive(t.Context(), ledger.Entry{Author: bob, Repos: []graspsync.RepoRef{ref}})
			after, _ := p.entries.waiting.announcement(ref)
			require.True(t, after.Deadline.After(before.Deadline), what)
			require.Equal(t, 1, strings.Count(w.log.String(), "reading announcements failed"), what)
			time.Sleep(time.Minute)
			p.intake.alive(t.Context(), ledger.Entry{Author: graspsync.PubKey{7}, Repos: []graspsync.RepoRef{ref}})
			same, _ := p.entries.waiting.announcement(ref)
			require.Equal(t, after.Deadline, same.Deadline, "a stranger's")
		}
		broken := &unwritable{Store: p.entries.keep}
		p.entries.keep = containedStore{broken, p.report}
		p.entries.remembered.keep = p.entries.keep
		w.log.Reset()
		time.Sleep(time.Minute)
		p.entries.sign(t.Context(), ref, false)
		require.Contains(t, w.log.String(), "a sign of life could not be kept")
	})
}

// What has made place and can't be struck off is told, and counted all the same.
func TestGaveWayOnABrokenDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newRationed(t, 0)
		p, pr := w.p, w.pulls[0]
		w.held(pr)
		e, _ := p.entries.waiting.ledger.Get(pr.ID)
		p.entries.waiting.ledger.Remove(pr.ID)
		p.entries.keep = containedStore{&failing{Store: p.entries.keep, prefix: keyEntry}, p.report}
		p.entries.remembered.keep = p.entries.keep
		w.log.Reset()
		p.entries.gaveWay(t.Context(), e)
		require.Contains(t, w.log.String(), "a displaced entry could not be struck off")
		dropped, _ := p.report.byName()
		require.EqualValues(t, 1, dropped["displaced"])
		require.EqualValues(t, 1, p.Status().Displaced)
		w.log.Reset()
		p.entries.strikeReplaced(t.Context(), e)
		require.Contains(t, w.log.String(), "a replaced entry could not be struck off")
		e.Soft = true
		p.entries.gaveWay(t.Context(), e)
		require.EqualValues(t, 1, p.Status().Displaced, "it was told when it expired softly")
		items, _ := p.inbox.take()
		require.Equal(t, news{identifier: "r"}, items[len(items)-1])
		e.Class = ledger.Announcement
		p.entries.gaveWay(t.Context(), e)
		items, _ = p.inbox.take()
		require.Equal(t, []any{news{identifier: "r", why: resolve.Reasons{Left: map[graspsync.RepoRef]bool{w.ref: true}}}}, items)
		require.Contains(t, p.findings.touched["r"], w.ref)
	})
}

// unwritable is a store that can't be written.
type unwritable struct{ state.Store }

func (unwritable) Put(_ context.Context, _ ...state.Record) error {
	return errScales
}

// Who deletes something has what waits by them looked at, once.
func TestWhoDeletesHasTheirsLookedAt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newRationed(t, 0)
		e := w.p.engine
		e.handle(t.Context(), arrived{eventtest.Of(eventBy(graspsync.PubKey{6}, 1, graspsync.KindDeletion))})
		require.Equal(t, map[graspsync.PubKey]bool{{6}: true}, e.leavers)
		e.leave(t.Context())
		require.Empty(t, e.leavers)
		require.True(t, e.leaving)
		e.wg.Wait()
	})
}

// A repository that was touched again since a look began stays touched.
func TestTouchedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newRationed(t, 0)
		p := w.p
		p.findings.touch(w.ref)
		number := p.findings.looking(w.ref)
		p.findings.touch(w.ref)
		p.findings.mu.Lock()
		defer p.findings.mu.Unlock()
		p.findings.untouch(w.ref, number)
		require.Contains(t, p.findings.touched[w.ref.Identifier], w.ref)
		p.findings.untouch(w.ref, p.findings.touched[w.ref.Identifier][w.ref])
		require.Empty(t, p.findings.touched)
	})
}

// A repository in which refs could not be put back is not taken for mended.
func TestMendingThatFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newRationed(t, 0)
		p := w.p
		other, err := nip34.ParseRefName("refs/heads/other")
		require.NoError(t, err)
		j := newJournal(w.ref, resolve.Refs{}, []resolve.RefChange{{Name: mainBranch(), New: objectOf(1)}, {Name: other, New: objectOf(1)}}, nip34.RefName{})
		for _, what := range []string{"refs", "align"} {
			p.mover.doubt(w.ref, j)
			w.fail = what
			require.ErrorIs(t, p.mover.mend(t.Context(), w.ref, "dir"), errScales, what)
			require.Contains(t, p.mover.doubted, w.ref, what)
		}
		require.NoError(t, p.mover.mend(t.Context(), w.ref, "dir"))
		require.Empty(t, p.mover.doubted)
		require.NotContains(t, w.refs, mainBranch())
	})
}

// A push, which locks a repository by itself, mends one that is doubted before refs of pull
// requests make room for it: what is to be taken back is not lost by that, nor its record.
func TestPushToARepositoryInDoubt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newRationed(t, 0)
		p := w.p
		other, err := nip34.ParseRefName("refs/heads/other")
		require.NoError(t, err)
		j := newJournal(w.ref, resolve.Refs{}, []resolve.RefChange{{Name: mainBranch(), New: objectOf(1)}, {Name: other, New: objectOf(1)}}, nip34.RefName{})
		key := keyAligning + hashed(w.ref)
		require.NoError(t, p.mover.keep.Put(t.Context(), state.Record{Key: key, Value: []byte("{}")}))
		p.mover.doubt(w.ref, j)
		id, err := graspsync.ParseEventID(fmt.Sprintf("%064x", 7))
		require.NoError(t, err)
		ref := nip34.EventRef(id)
		w.refs[ref] = objectOf(1)
		gone := resolve.RefChange{Name: ref, Old: objectOf(1)}
		for what, moves := range map[string]func() error{
			"push": func() error {
				_, err := p.quota.forPush(t.Context(), w.ref, "dir", w.pulls[:1], 0)
				return err
			},
			"remove": func() error { return p.mover.remove(t.Context(), w.ref, "dir", []resolve.RefChange{gone}) },
		} {
			w.fail = "align" // nothing can be moved, nor taken back
			require.ErrorIs(t, moves(), errScales, what)
			require.Equal(t, j, p.mover.doubted[w.ref], what)
			_, err = p.mover.keep.Get(t.Context(), key)
			require.NoError(t, err, what)
		}
		_, err = p.quota.forPush(t.Context(), w.ref, "dir", w.pulls[:1], 0)
		require.NoError(t, err)
		require.NotContains(t, w.refs, mainBranch(), "taken back")
		require.Empty(t, p.mover.doubted)
		_, err = p.mover.keep.Get(t.Context(), key)
		require.ErrorIs(t, err, state.ErrNotFound)
	})
}

// released is a relay that is read just before what waits is released.
type released struct {
	*scales
	after func()
}

func (r *released) Events(context.Context, nostr.Filter) iter.Seq2[graspsync.Event, error] {
	r.after()
	return func(func(graspsync.Event, error) bool) {}
}

// An announcement that was released while what is stored and what waits was read was in neither,
// and its repository not hunted for any more.
func TestReleasedWhileItIsRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newRationed(t, 0)
		p, ref := w.p, graspsync.RepoRef{Owner: graspsync.PubKey{4}, Identifier: "x"}
		ev := eventBy(ref.Owner, time.Now().Unix(), graspsync.KindAnnouncement, nostr.Tag{"d", "x"})
		answer, err := p.Submit(t.Context(), eventtest.Of(ev), graspsync.Source{Kind: graspsync.CatchUp})
		require.NoError(t, err)
		require.Equal(t, Held, answer.Decision)
		p.reader.stored.relay.relay = &released{w.scales, func() {
			for _, e := range p.entries.waiting.ledger.Announcements("x", false) {
				p.entries.waiting.ledger.Remove(e.ID)
			}
		}}
		g, err := p.reader.announced(t.Context(), "x", false)
		require.NoError(t, err)
		require.True(t, g.IsOurs(ref))
	})
}
