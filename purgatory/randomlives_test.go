package purgatory_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"runtime"
	"sort"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/eventtest"
	"github.com/graspsync/graspsync/internal/goldentest"
	"github.com/graspsync/graspsync/internal/racetest"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory"
	"github.com/graspsync/graspsync/purgatory/fetchtest"
	"github.com/graspsync/graspsync/sync/relaytest"
)

// diary is all that is said at its time. What is said at the same time is in no order.
type diary struct {
	began time.Time
	mu    sync.Mutex
	lines []entry
}

type entry struct {
	at   time.Duration
	text string
}

func (d *diary) write(format string, args ...any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lines = append(d.lines, entry{time.Since(d.began).Round(time.Millisecond), fmt.Sprintf(format, args...)})
}

func (d *diary) Enabled(context.Context, slog.Level) bool { return true }
func (d *diary) WithAttrs([]slog.Attr) slog.Handler       { return d }
func (d *diary) WithGroup(string) slog.Handler            { return d }

func (d *diary) Handle(_ context.Context, r slog.Record) error {
	line := r.Level.String() + " " + r.Message
	r.Attrs(func(a slog.Attr) bool {
		if a.Value.Kind() == slog.KindTime {
			a.Value = slog.StringValue(a.Value.Time().UTC().String()) // the same wherever it is played
		}
		if a.Key != "stack" {
			line += " " + a.String()
		}
		return true
	})
	d.write("%s", line)
	return nil
}

func (d *diary) all() (out []string) {
	sort.SliceStable(d.lines, func(i, j int) bool {
		a, b := d.lines[i], d.lines[j]
		return a.at < b.at || a.at == b.at && a.text < b.text
	})
	for _, l := range d.lines {
		out = append(out, fmt.Sprint(l.at, " ", l.text))
	}
	return out
}

// drawnLife is a world in which all is drawn that comes from outside.
type drawnLife struct {
	*world
	diary
	rng    *rand.Rand
	seed   uint64
	events []*nostrEvent
	fails  string // what git fails at next; guarded by diary.mu
}

func (l *drawnLife) open() {
	cfg := l.cfg
	p, err := purgatory.OpenSeeded(l.t.Context(), l.relay, l.git, l.git, l.state, cfg, l.seed)
	require.NoError(l.t, err)
	l.p = p
	ctx, cancel := context.WithCancel(l.t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = p.Run(ctx)
	}()
	l.stop = func() {
		cancel()
		<-done
		require.Empty(l.t, p.Left())
	}
	synctest.Wait()
}

func (l *drawnLife) one(of ...string) string { return of[l.rng.IntN(len(of))] }

func (l *drawnLife) owner() *relaytest.Key {
	return []*relaytest.Key{alice, bob}[l.rng.IntN(2)]
}

func (l *drawnLife) servers() (tags []string) {
	for _, name := range []string{"a", "b", "c"} {
		if l.rng.IntN(2) == 0 {
			tags = append(tags, "https://"+name+".example/r.git")
		}
	}
	return tags
}

func (l *drawnLife) comes(ev *nostrEvent) {
	l.events = append(l.events, ev)
	byUser := l.rng.IntN(3) == 0
	src := submittedBy(byUser)
	if !byUser && l.rng.IntN(2) != 0 {
		src.Relay = relayAt(l.t, "wss://"+l.one("one", "two"))
	}
	answer, err := l.p.Submit(l.t.Context(), eventtest.Of(ev), src)
	l.write("comes %d %s: %d %s %v", ev.Kind, ev.ID[:6], answer.Decision, answer.Reason, err)
	if answer.Decision == purgatory.Pass {
		l.relay.put(ev)
		l.p.Arrived(eventtest.Of(ev))
	}
}

func (l *drawnLife) step() {
	rng := l.rng
	switch rng.IntN(16) {
	case 0, 1:
		tags := []nostrTag{{"d", "r"}, append(nostrTag{"clone"}, l.servers()...)}
		if rng.IntN(2) == 0 {
			tags = append(tags, nostrTag{"maintainers", bob.Hex()})
		}
		who := alice
		if !l.cfg.Membership.OneSided && rng.IntN(3) == 0 { // bob answers, or does not any more
			if who, tags = bob, tags[:2]; rng.IntN(3) > 0 {
				tags = append(tags, nostrTag{"maintainers", alice.Hex()})
			}
		}
		l.comes(who.Event(now()-nostrTime(rng.IntN(3)), graspsync.KindAnnouncement, "", tags...))
	case 2, 3, 4:
		var refs []any
		for _, name := range []string{"main", "dev"} {
			if rng.IntN(3) > 0 {
				refs = append(refs, name, 1+rng.IntN(9))
			}
		}
		l.comes(says(l.owner(), now()-nostrTime(rng.IntN(3)), refs...))
	case 5, 6:
		k := []*relaytest.Key{carol, dave, bob}[rng.IntN(3)]
		tags := []nostrTag{{"a", repoOf(alice).String()}, {"c", object(10 + rng.IntN(6)).String()}, append(nostrTag{"clone"}, l.servers()...)}
		if rng.IntN(4) == 0 {
			tags = append(tags, nostrTag{"a", repoOf(bob).String()})
		}
		if rng.IntN(6) == 0 {
			tags = append(tags, nostrTag{"expiration", fmt.Sprint(now() + nostrTime(rng.IntN(500)))})
		}
		ev := k.Event(now(), graspsync.KindPullRequest, fmt.Sprint(len(l.events)), tags...)
		if l.git.Has(repoOf(alice)) && rng.IntN(3) == 0 {
			tip := object(10 + rng.IntN(6))
			l.git.Stage(repoOf(alice), idOf(ev), tip, tip)
			wait(3 * time.Millisecond)
			l.p.Staged(repoOf(alice), []graspsync.EventID{idOf(ev)})
			wait(3 * time.Millisecond)
		}
		l.comes(ev)
		if rng.IntN(5) == 0 {
			wait(3 * time.Millisecond)
			l.comes(ev)
		}
	case 7, 8:
		u := clone(l.one("a", "b", "c") + ".example/r.git")
		s := fetchtest.Server{Delay: time.Duration(1+rng.IntN(20_000))*time.Millisecond + 7*time.Microsecond, Bytes: int64(rng.IntN(3) * 700)}
		for n := 1; n < 16; n++ {
			if rng.IntN(2) == 0 {
				s.Objects = append(s.Objects, object(n))
			}
		}
		switch rng.IntN(12) {
		case 0:
			s.Err = errors.New("cut off")
		case 1:
			s.Err = fmt.Errorf("slow down: %w", &purgatory.BusyError{After: time.Duration(rng.IntN(400)) * time.Second})
		case 2:
			s.Err = fmt.Errorf("no such name: %w", purgatory.ErrBroken)
		case 3:
			s.Err = fmt.Errorf("too much: %w", purgatory.ErrLimit)
		case 4:
			s.Err = fmt.Errorf("no such repository: %w", purgatory.ErrNotServed)
		}
		l.git.Serve(u, s)
	case 9, 10:
		ref := repoOf(alice)
		if !l.git.Has(ref) {
			return
		}
		if rng.IntN(2) == 0 {
			l.git.Push(ref, nil, object(1+rng.IntN(9)), object(1+rng.IntN(9)))
			l.write("pushed: %v", l.p.Pushed(l.t.Context(), ref, []nip34.RefName{branch("main")}))
			return
		}
		name, tip := junk(rng.IntN(4)), object(10+rng.IntN(6))
		if len(l.events) > 0 && rng.IntN(2) == 0 {
			name = refOf(l.events[rng.IntN(len(l.events))])
		}
		l.git.Push(ref, map[nip34.RefName]nip34.ObjectID{name: tip}, tip)
		l.write("pushed for an event: %v", l.p.Pushed(l.t.Context(), ref, []nip34.RefName{name}))
	case 11:
		if len(l.events) == 0 {
			return
		}
		ev := l.events[rng.IntN(len(l.events))]
		for _, k := range []*relaytest.Key{alice, bob, carol, dave} {
			if k.Hex() == ev.PubKey {
				l.relay.gone(ev)
				d := k.Event(now(), graspsync.KindDeletion, "", nostrTag{"e", ev.ID})
				l.relay.put(d)
				l.p.Arrived(eventtest.Of(d))
				wait(3 * time.Millisecond)
				l.p.Departed(eventtest.Of(ev))
				wait(3 * time.Millisecond)
			}
		}
		if rng.IntN(3) == 0 {
			v := alice.Event(now(), 62, "", nostrTag{"relay", "ALL_RELAYS"})
			l.p.Arrived(eventtest.Of(v))
		}
	case 12:
		what := l.one("create", "lock", "remove", "quarantine", "probe", "missing", "promote", "share", "refs", "align", "tidy", "depart", "weigh")
		l.diary.mu.Lock()
		l.fails = what
		l.diary.mu.Unlock()
	case 13:
		if rng.IntN(3) == 0 {
			done, err := l.p.Maintain(l.t.Context(), repoOf(alice))
			l.write("maintained: %+v %v", done, err)
		}
	case 14:
		if rng.IntN(3) == 0 {
			l.stop()
			time.Sleep(time.Second)
			l.open()
		}
	case 15:
		if rng.IntN(4) == 0 {
			l.write("removed: %v", l.p.RemoveRepository(l.t.Context(), repoOf(alice)))
		}
	}
}

func (l *drawnLife) all() {
	st := l.p.Status()
	l.write("waiting %d %d %d %d, %d bytes", st.Announcements, st.States, st.PullRequests, st.Placeholders, st.Bytes)
	for _, e := range st.Waiting {
		l.write("%s %s %v since %v until %v soft %v missing %d", e.Class, e.ID[:6], e.ByUser, e.Since.Sub(l.began), e.Deadline.Sub(l.began), e.Soft, e.Missing)
	}
	l.write("held %d released %d expired %d replaced %d deleted %d refused %d displaced %d", st.Held, st.Released, st.Expired, st.Replaced, st.Deleted, st.Refused, st.Displaced)
	l.write("fetches %d failed %d objects %d fetched %d dropped %v unreadable %d panics %v", st.Fetches, st.Failed, st.Objects, st.Fetched, st.Dropped, st.Unreadable, st.Panics)
	ref := repoOf(alice)
	l.write("refs %v %v %v, %d of pull requests", l.git.RefsOf(ref), tipsOf(l.git.Objects(ref)), l.git.Kept(ref), l.p.PullBytes(ref.Owner))
	l.write("%v", l.p.Sizes())
}

func tipsOf(ids []nip34.ObjectID) (out []string) {
	for _, id := range ids {
		out = append(out, id.String()[38:])
	}
	return out
}

func liveDrawn(t *testing.T, seed uint64) (out []string) {
	synctest.Test(t, func(t *testing.T) {
		rng := rand.New(rand.NewPCG(seed, 53))
		l := &drawnLife{world: newWorld(t, purgatory.Config{
			Membership: nip34.Membership{OneSided: seed%2 == 0 || seed == 1}, Times: purgatory.Times{
				Hold:     10 * time.Minute,
				Departed: 30 * time.Minute,
			}, NoMaintenance: true,
			Limits: purgatory.Limits{
				MaxRepoDay: []int64{4000, 1 << 30}[rng.IntN(2)],
				MaxEntries: []int{6, 1000}[rng.IntN(2)],
			},
		}.With(purgatory.Fixed{
			MaxHold:                time.Hour,
			PlaceholderHold:        3 * time.Minute,
			UserDelay:              time.Minute,
			MaxFetch:               512 << 20,
			SoftExpiry:             20 * time.Minute,
			Remember:               time.Hour,
			Check:                  100_000 * time.Hour,
			MaxPlaceholdersPerRepo: 2,
			MaxClones:              2,
			MaxLooks:               1,
		})), rng: rng, seed: seed | 1}
		l.began = time.Now()
		for n := 1; n < 16; n++ {
			l.git.Size(object(n), int64(rng.IntN(4)*150))
		}
		l.git.Needs(object(4), object(5))
		l.git.Needs(object(12), object(13), object(2))
		l.git.Kind(object(7), purgatory.Blob)
		l.cfg.Logger = slog.New(&l.diary)
		l.cfg.Observe = func(o purgatory.Observation) {
			switch o := o.(type) {
			case purgatory.Began:
				l.write("began %s %v %v", o.ID.String()[:6], o.ByUser, o.Deadline.Sub(l.began))
			case purgatory.Ended:
				l.write("ended %s %v %v", o.ID.String()[:6], o.Fate, o.Waited)
			case purgatory.Fetched:
				l.write("fetched %v %d of %d, %d bytes, %v", o.URL, o.Missing, o.Wanted, o.Bytes, o.Err)
			case purgatory.Incomplete:
				l.write("incomplete %d, next %v", o.Attempt, o.Next.Sub(l.began))
			}
		}
		l.relay.refuse = func(ev *nostrEvent) error {
			if ev.Kind != graspsync.KindAnnouncement && ev.ID[0] == '7' {
				return purgatory.ErrRefused
			}
			return nil
		}
		l.git.FailWith(func(op string) error {
			l.diary.mu.Lock()
			defer l.diary.mu.Unlock()
			if l.fails != op {
				return nil
			}
			l.fails = ""
			return fmt.Errorf("%s: %w", op, errDisk)
		})
		l.open()
		for range 60 {
			l.step()
			wait(time.Duration(rng.IntN(90_000))*time.Millisecond*time.Duration(rng.IntN(2)) + 13*time.Millisecond + 331*time.Microsecond)
			l.all()
		}
		wait(2 * time.Hour)
		l.all()
		l.stop()
		out = l.diary.all()
	})
	return out
}

// In drawn lives of events, pushes, servers of all sorts, failures and restarts, all that is said,
// told, fetched and moved is what it was before, and happens when it did.
func TestDrawnLives(t *testing.T) {
	racetest.Amounts(t)
	// What happens at the same time is in the order in which goroutines run: one at a time.
	procs := runtime.GOMAXPROCS(1)
	t.Cleanup(func() { runtime.GOMAXPROCS(procs) })
	sums := goldentest.NewSums(t, "testdata/lives.sum")
	for seed := range uint64(60) {
		if seed == 57 { // who is looked at first of two is drawn by lot
			continue
		}
		name, lines := fmt.Sprintf("life%02d", seed), liveDrawn(t, seed)
		if sums.Updating() {
			lines = usual(func() []string { return liveDrawn(t, seed) })
		}
		for range 10 { // a busy machine may still stop one goroutine for another
			if sums.Same(name, lines) {
				break
			}
			lines = liveDrawn(t, seed)
		}
		sums.Equal(t, name, lines)
	}
}

// usual returns what a function returns most often.
func usual(f func() []string) (most []string) {
	times := make(map[string]int)
	for range 15 {
		lines := f()
		text := strings.Join(lines, "\n")
		if times[text]++; times[text] > times[strings.Join(most, "\n")] || most == nil {
			most = lines
		}
	}
	return most
}
