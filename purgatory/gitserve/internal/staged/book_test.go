package staged_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory/gitserve/internal/staged"
	"github.com/graspsync/graspsync/sync/relaytest"
)

var (
	alice = relaytest.NewKey("alice").Ref("x")
	bob   = relaytest.NewKey("bob").Ref("x")
	limit = staged.Limits{Hold: 20 * time.Minute, All: 4 << 30, PerRepo: 1 << 30, PerClient: 256 << 20}
	began = time.Unix(1_700_000_000, 0)
)

// neighbours has all clients in one network.
func neighbours(string) string { return "" }

func event(n int) graspsync.EventID {
	id, _ := graspsync.ParseEventID(fmt.Sprintf("%064x", n+1))
	return id
}

func tip(n int) nip34.ObjectID {
	id, _ := nip34.ParseObjectID(fmt.Sprintf("%040x", n+1))
	return id
}

// keep is one upload of some bytes for some events.
func keep(t *testing.T, b *staged.Book, name string, now time.Time, repo graspsync.RepoRef, client string, bytes int64, ids ...graspsync.EventID) ([]string, error) {
	t.Helper()
	g, err := b.Begin(repo, client, ids)
	if err != nil {
		return nil, err
	}
	if err := b.Charge(g, bytes); err != nil {
		b.End(g)
		return nil, err
	}
	tips := make(map[graspsync.EventID]nip34.ObjectID)
	for i, id := range ids {
		tips[id] = tip(i)
	}
	return b.Keep(g, staged.Upload{Name: name, Tips: tips, Since: now}), nil
}

// 10,000 uploads within an hour for events that never come, of as many clients as like:
// never more than the quotas is here, what has no room is refused and not thrown away
// later, and 20 minutes after the last one nothing is left.
func TestTenThousandUploadsInAnHour(t *testing.T) {
	limits := limit
	limits.All, limits.PerRepo, limits.PerClient, limits.Network = 300<<20, 200<<20, 20<<20, neighbours
	b := staged.New(limits)
	here := make(map[string]time.Time)
	refused := 0
	r := rand.New(rand.NewPCG(1, 2))
	most, mostBytes := 0, int64(0)
	for i := range 10_000 {
		now := began.Add(time.Duration(i) * time.Hour / 10_000)
		for _, name := range b.Due(now) {
			require.Equal(t, limits.Hold, now.Sub(here[name]).Truncate(time.Second))
			delete(here, name)
		}
		name := fmt.Sprint(i)
		repo := []graspsync.RepoRef{alice, bob}[r.IntN(2)]
		if _, err := keep(t, b, name, now, repo, fmt.Sprint(r.IntN(50)), r.Int64N(200<<10), event(i)); err != nil {
			refused++
		} else {
			here[name] = now
		}
		require.Equal(t, len(here), b.Len())
		require.LessOrEqual(t, b.Bytes(), limits.All)
		most, mostBytes = max(most, b.Len()), max(mostBytes, b.Bytes())
	}
	t.Logf("%d refused; at most %d here, %d MiB", refused, most, mostBytes>>20)
	require.Positive(t, refused)
	last, ok := b.Next()
	require.True(t, ok)
	require.True(t, last.Before(began.Add(time.Hour+limits.Hold)))
	require.Len(t, b.Due(began.Add(time.Hour+limits.Hold)), len(here))
	require.Zero(t, b.Bytes())
	require.Zero(t, b.Len())
	_, ok = b.Next()
	require.False(t, ok)
	// All that was taken is free again: everybody can have as much as at first.
	g, err := b.Begin(alice, "1", []graspsync.EventID{event(1)})
	require.NoError(t, err)
	require.NoError(t, b.Charge(g, limits.PerClient))
	g, err = b.Begin(alice, "", []graspsync.EventID{event(1)})
	require.NoError(t, err)
	require.Equal(t, limits.PerRepo-limits.PerClient-staged.Least, b.Left(g))
}

// Whose room it is that something has none of: what one client takes is missing for
// nobody else, but for those in the same network who have pushed to the same repository.
func TestQuotas(t *testing.T) {
	limits := staged.Limits{Hold: time.Minute, All: 30 * staged.Least, PerRepo: 20 * staged.Least, PerClient: 10 * staged.Least, Network: neighbours}
	b := staged.New(limits)
	_, err := keep(t, b, "a", began, alice, "eve", 10*staged.Least+1, event(1))
	require.ErrorIs(t, err, staged.ErrClient)
	require.Zero(t, b.Bytes())
	_, err = keep(t, b, "a", began, alice, "eve", 10*staged.Least, event(1))
	require.NoError(t, err)
	_, err = keep(t, b, "b", began, bob, "eve", 1, event(1))
	require.ErrorIs(t, err, staged.ErrClient, "wherever she pushes")
	_, err = keep(t, b, "b", began, alice, "", 10*staged.Least+1, event(1))
	require.ErrorIs(t, err, staged.ErrRepo, "nobody's")
	_, err = keep(t, b, "b", began, alice, "", 10*staged.Least, event(1))
	require.NoError(t, err)
	_, err = keep(t, b, "c", began, alice, "carol", 1, event(2))
	require.ErrorIs(t, err, staged.ErrRepo)
	_, err = keep(t, b, "c", began, bob, "carol", 10*staged.Least, event(2))
	require.NoError(t, err)
	_, err = keep(t, b, "d", began, bob, "dave", 1, event(2))
	require.ErrorIs(t, err, staged.ErrAll)
	// A push for many events counts for each of them.
	b.Remove("a")
	ids := []graspsync.EventID{event(10), event(11), event(12)}
	_, err = keep(t, b, "e", began, alice, "eve", 1, ids...)
	require.NoError(t, err)
	require.Equal(t, int64(23*staged.Least), b.Bytes())
	require.Empty(t, b.Strike(alice, ids[0]))
	require.Empty(t, b.Of(alice, ids[0]))
	require.Len(t, b.Of(alice, ids[1]), 1)
	require.Empty(t, b.Strike(alice, ids[1]))
	require.Equal(t, []string{"e"}, b.Strike(alice, ids[2]))
	require.Equal(t, int64(20*staged.Least), b.Bytes())
}

// 256 addresses of one network filled the room of everybody, or of a repository, for as
// long as they liked: nobody else could push before his event. Now whoever has less has as
// much of that as the network has.
func TestOneNetworkKeepsNobodyOut(t *testing.T) {
	for name, set := range map[string]func(*staged.Limits){
		"all":        func(l *staged.Limits) { l.All = 100 * staged.Least },
		"repository": func(l *staged.Limits) { l.PerRepo = 100 * staged.Least },
	} {
		t.Run(name, func(t *testing.T) {
			limits := limit
			limits.Network = func(client string) string { n, _, _ := strings.Cut(client, "/"); return n }
			set(&limits)
			b := staged.New(limits)
			refusedEve, refusedHonest, displaced, honest := 0, 0, 0, 0
			for i := range 5_000 {
				now := began.Add(time.Duration(i) * time.Second / 10)
				if _, err := keep(t, b, fmt.Sprint("eve", i), now, alice, fmt.Sprint("eve/", i%256), 1, event(i)); err != nil {
					refusedEve++
				}
				if i%100 == 99 { // one of five others pushes 5 times the least
					if _, err := keep(t, b, fmt.Sprint("honest", i), now, alice, fmt.Sprint("honest", i/100%5), 5*staged.Least, event(10_000+i)); err != nil {
						refusedHonest++
					}
					honest++
				}
				for _, gone := range b.Displaced() {
					require.True(t, strings.HasPrefix(gone, "eve"), gone)
					displaced++
				}
				require.LessOrEqual(t, b.Bytes(), int64(100*staged.Least))
				if i%100 == 99 { // who has pushed has published a moment later
					b.Remove(fmt.Sprint("honest", i))
				}
			}
			t.Logf("of 5,000 pushes of one network %d were refused and %d displaced; of %d of others %d", refusedEve, displaced, honest, refusedHonest)
			require.Zero(t, refusedHonest)
			require.Positive(t, refusedEve)
		})
	}
}

// Eight addresses of one network kept the author of an event out that they knew of, and all
// others with him.
func TestOneNetworkDoesNotTakeAnEvent(t *testing.T) {
	limits := limit
	limits.Network = func(client string) string { n, _, _ := strings.Cut(client, "/"); return n }
	b := staged.New(limits)
	for i := range staged.PerEvent {
		_, err := keep(t, b, fmt.Sprint("eve", i), began.Add(time.Duration(i)), alice, fmt.Sprint("eve/", i), 1, event(1))
		require.NoError(t, err)
	}
	_, err := keep(t, b, "more", began, alice, "eve/more", 1, event(1))
	require.ErrorIs(t, err, staged.ErrEvent)
	require.Empty(t, b.Displaced())
	for i := range staged.PerEvent - 1 {
		name := fmt.Sprint("author", i)
		_, err = keep(t, b, name, began.Add(time.Hour), alice, name, 1, event(1), event(2+i))
		require.NoError(t, err)
		require.Equal(t, []string{fmt.Sprint("eve", i)}, b.Displaced(), "the oldest")
	}
	_, err = keep(t, b, "last", began, alice, "last", 1, event(1))
	require.ErrorIs(t, err, staged.ErrEvent, "nobody has more than one")
	require.Len(t, b.Of(alice, event(1)), staged.PerEvent)
	require.Equal(t, int64(1+2*(staged.PerEvent-1))*staged.Least, b.Bytes())
}

// What others can be made to give up is what a push is told that it may bring, to the
// byte, however the room is spread.
func TestWhatIsLeftIsThere(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for round := range 300 {
		limits := staged.Limits{Hold: time.Hour, All: 60 * staged.Least, PerRepo: 40 * staged.Least, PerClient: 30 * staged.Least}
		b := staged.New(limits)
		for i := range 40 {
			_, _ = keep(t, b, fmt.Sprint(i), began, []graspsync.RepoRef{alice, bob}[r.IntN(2)], fmt.Sprint(r.IntN(6)), r.Int64N(12*staged.Least), event(i))
		}
		g, err := b.Begin(alice, fmt.Sprint(r.IntN(8)), []graspsync.EventID{event(1000)})
		if err != nil {
			continue
		}
		left := b.Left(g)
		if round%2 == 0 {
			require.Error(t, b.Charge(g, g.Bytes()+left+1))
		}
		had := g.Bytes()
		require.NoError(t, b.Charge(g, had+left))
		require.LessOrEqual(t, b.Bytes(), limits.All)
		b.End(g)
		for i := range 40 {
			b.Remove(fmt.Sprint(i))
		}
		require.Zero(t, b.Bytes())
		g, err = b.Begin(bob, "", []graspsync.EventID{event(1)})
		require.NoError(t, err)
		require.Equal(t, limits.PerRepo-staged.Least, b.Left(g), "nothing is counted that is not here")
	}
}

// Those who push for one event at once count as those who have, and a client once.
func TestPushesForOneEventAreBounded(t *testing.T) {
	b := staged.New(limit)
	ids := []graspsync.EventID{event(1)}
	var grants []*staged.Grant
	for i := range staged.PerEvent {
		g, err := b.Begin(alice, fmt.Sprint(i), ids)
		require.NoError(t, err)
		grants = append(grants, g)
	}
	_, err := b.Begin(alice, "", ids)
	require.ErrorIs(t, err, staged.ErrEvent)
	b.End(grants[0])
	b.End(grants[0])
	_, err = b.Begin(alice, "1", ids)
	require.ErrorIs(t, err, staged.ErrEvent, "one at a time")
	g, err := b.Begin(alice, "", ids)
	require.NoError(t, err)
	require.Empty(t, b.Keep(g, staged.Upload{Name: "nobody", Tips: map[graspsync.EventID]nip34.ObjectID{ids[0]: tip(1)}}))
	for i := 1; i < staged.PerEvent; i++ {
		b.Keep(grants[i], staged.Upload{Name: fmt.Sprint(i), Tips: map[graspsync.EventID]nip34.ObjectID{ids[0]: tip(i)}})
	}
	require.Len(t, b.Of(alice, ids[0]), staged.PerEvent)
	gone, err := keep(t, b, "new", began, alice, "3", 1, ids...)
	require.NoError(t, err, "in place of the old one")
	require.Equal(t, []string{"3"}, gone)
	require.Equal(t, int64(staged.PerEvent*staged.Least), b.Bytes())
	require.Empty(t, b.Of(bob, ids[0]))
	require.Len(t, b.To(func(ref graspsync.RepoRef) bool { return ref == alice }), staged.PerEvent)
}

// Those whom nobody knows apart are not taken for one: none of them keeps another one out,
// or has what another one has pushed thrown away.
func TestClientsWithoutNames(t *testing.T) {
	b := staged.New(limit)
	ids := []graspsync.EventID{event(1)}
	first, err := b.Begin(alice, "", ids)
	require.NoError(t, err)
	second, err := b.Begin(alice, "", ids)
	require.NoError(t, err)
	for name, g := range map[string]*staged.Grant{"first": first, "second": second} {
		require.Empty(t, b.Keep(g, staged.Upload{Name: name, Tips: map[graspsync.EventID]nip34.ObjectID{ids[0]: tip(1)}}))
	}
	require.Len(t, b.Of(alice, ids[0]), 2)
}

// What has gone is not remembered until the oldest goes.
func TestMemoryIsBounded(t *testing.T) {
	b := staged.New(limit)
	_, err := keep(t, b, "oldest", began, alice, "", 1, event(1))
	require.NoError(t, err)
	for i := range 1000 {
		_, err := keep(t, b, fmt.Sprint(i), began, alice, "", 1, event(2))
		require.NoError(t, err)
		require.Len(t, b.Strike(alice, event(2)), 1)
	}
	require.Less(t, b.Ordered(), 200)
}

// Who gives way, and who has no room, is what looking through all of them in turn says.
func TestWhoGivesWayIsTheOldestOfTheLargest(t *testing.T) {
	type upload struct {
		name, network string
		bytes         int64
	}
	r := rand.New(rand.NewPCG(5, 6))
	displaced, refused := 0, 0
	for range 40 {
		limits := staged.Limits{Hold: time.Hour, All: 60 * staged.Least, PerRepo: 1 << 40, PerClient: 1 << 40}
		b := staged.New(limits)
		var all []upload
		sums := func() (sum int64, of map[string]int64) {
			of = make(map[string]int64)
			for _, u := range all {
				sum += u.bytes
				of[u.network] += u.bytes
			}
			return sum, of
		}
		// charge has a network take so much more than it has in uploads and on its way.
		charge := func(network string, coming, more int64) (gone []string, fits bool) {
			sum, of := sums()
			after := sum + coming + more
			for other, has := range of {
				if other != network {
					after -= max(0, has-of[network]-coming-more)
				}
			}
			if after > limits.All {
				return nil, false
			}
			for sum+coming+more > limits.All {
				largest := ""
				for other, has := range of {
					if other != network && (largest == "" || has > of[largest] || has == of[largest] && other < largest) {
						largest = other
					}
				}
				i := slices.IndexFunc(all, func(u upload) bool { return u.network == largest })
				gone = append(gone, all[i].name)
				all = slices.Delete(all, i, i+1)
				sum, of = sums()
			}
			return gone, true
		}
		for i := range 150 {
			if len(all) > 0 && r.IntN(5) == 0 {
				j := r.IntN(len(all))
				b.Remove(all[j].name)
				all = slices.Delete(all, j, j+1)
			}
			network, bytes := fmt.Sprint(r.IntN(8)), staged.Least+r.Int64N(6*staged.Least)
			gone, fits := charge(network, 0, staged.Least)
			g, err := b.Begin(alice, network, []graspsync.EventID{event(i)})
			require.Equal(t, fits, err == nil)
			require.Equal(t, gone, b.Displaced())
			displaced += len(gone)
			if err != nil {
				refused++
				continue
			}
			gone, fits = charge(network, staged.Least, bytes-staged.Least)
			err = b.Charge(g, bytes)
			require.Equal(t, fits, err == nil)
			require.Equal(t, gone, b.Displaced())
			if displaced += len(gone); err != nil {
				refused++
				b.End(g)
				continue
			}
			b.Keep(g, staged.Upload{Name: fmt.Sprint(i), Tips: map[graspsync.EventID]nip34.ObjectID{event(i): tip(i)}})
			all = append(all, upload{fmt.Sprint(i), network, bytes})
			sum, _ := sums()
			require.Equal(t, sum, b.Bytes())
		}
	}
	t.Log(displaced, "displaced,", refused, "refused")
	require.Positive(t, displaced)
	require.Positive(t, refused)
}

// What each event counts for, and how many may push for one, are numbers that who pushes meets.
func TestNumbersOfTheBook(t *testing.T) {
	limits := limit
	limits.PerRepo = 3 * 65536
	b := staged.New(limits)
	g, err := b.Begin(alice, "a", []graspsync.EventID{event(1), event(2)})
	require.NoError(t, err)
	require.EqualValues(t, 2*65536, g.Bytes())
	require.NoError(t, b.Charge(g, 2*65536+1))
	require.EqualValues(t, 2*65536+1, g.Bytes())
	_, err = b.Begin(alice, "b", []graspsync.EventID{event(1)})
	require.ErrorIs(t, err, staged.ErrRepo, "a byte too much")
	require.NoError(t, b.Charge(g, 0))
	_, err = b.Begin(alice, "b", []graspsync.EventID{event(1)})
	require.NoError(t, err)
	b = staged.New(limit)
	for i := range 8 {
		_, err := b.Begin(bob, fmt.Sprint(i), []graspsync.EventID{event(1)})
		require.NoError(t, err)
	}
	_, err = b.Begin(bob, "8", []graspsync.EventID{event(1)})
	require.ErrorIs(t, err, staged.ErrEvent)
}

// What an earlier process has kept has the room that it would have if it were pushed now: of one
// client or network what is older stays, and who has more of a room gives way to who has less.
func TestRestoredWithinTheLimitsOfNow(t *testing.T) {
	limits := limit
	limits.All, limits.PerRepo, limits.PerClient = 10, 6, 4
	b := staged.New(limits)
	n := 0
	restore := func(repo graspsync.RepoRef, client string, bytes int64) error {
		n++
		return b.Restore(staged.Upload{
			Name: fmt.Sprint("u", n), Repo: repo, Client: client, Bytes: bytes, Since: began.Add(time.Duration(n)),
			Tips: map[graspsync.EventID]nip34.ObjectID{event(n): tip(n)},
		})
	}
	require.NoError(t, restore(alice, "eve", 2))
	require.NoError(t, restore(alice, "eve", 2))
	require.ErrorIs(t, restore(alice, "eve", 1), staged.ErrClient)
	require.NoError(t, restore(alice, "bob", 2), "what each takes up is what it took up")
	require.Empty(t, b.Displaced())
	require.NoError(t, restore(alice, "carol", 2))
	require.Equal(t, []string{"u1"}, b.Displaced())
	require.ErrorIs(t, restore(alice, "carol", 1), staged.ErrRepo, "she would have more than the others")
	require.NoError(t, restore(bob, "dave", 4))
	require.ErrorIs(t, restore(bob, "erin", 5), staged.ErrClient)
	require.ErrorIs(t, restore(bob, "erin", 4), staged.ErrRepo)
	require.EqualValues(t, 10, b.Bytes())
	require.NoError(t, restore(bob, "erin", 2))
	require.Equal(t, []string{"u7"}, b.Displaced())
	require.Len(t, b.Of(alice, event(2)), 1)
	require.Empty(t, b.Of(alice, event(3)))
	require.EqualValues(t, 8, b.Bytes())
}
