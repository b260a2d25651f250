package purgatory

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/eventtest"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory/internal/resolve"
	"github.com/graspsync/graspsync/state"
)

// scales is a relay that serves one repository, and git that has it, as far as what refs take
// up is concerned: no object needs another one.
type scales struct {
	GitFetcher
	ref       graspsync.RepoRef
	announces *nip34.Announcement
	states    []*nip34.State
	stored    []*nip34.PullRequest
	refs      map[nip34.RefName]nip34.ObjectID
	sizes     map[nip34.ObjectID]int64
	here      map[nip34.ObjectID]bool
	takes     time.Duration // to weigh one
	fail      string        // what does, once
	err       error         // that weighing fails with
	done      Maintained
	said      []string
}

var errScales = errors.New("out of order")

func (s *scales) fails(what string) error {
	if s.fail != what {
		return nil
	}
	s.fail = ""
	return fmt.Errorf("%s: %w", what, errScales)
}

func (s *scales) say(format string, args ...any) {
	s.said = append(s.said, fmt.Sprintf(format, args...))
}

func (s *scales) Save(context.Context, graspsync.Event) error { return s.fails("save") }

func (s *scales) Events(_ context.Context, f nostr.Filter) iter.Seq2[graspsync.Event, error] {
	var events []*nostr.Event
	var err error
	switch {
	case len(f.IDs) > 0:
	case slices.Contains(f.Kinds, graspsync.KindState):
		for _, state := range s.states {
			events = append(events, state.Event)
		}
		err = s.fails("states")
	case slices.Contains(f.Kinds, graspsync.KindPullRequest):
		s.say("lists")
		for _, pr := range s.stored {
			events = append(events, pr.Event)
		}
		err = s.fails("pulls")
	case !slices.Contains(f.Kinds, graspsync.KindAnnouncement) || len(f.Authors) > 0:
	case len(f.Tags) == 0:
		events, err = append(events, s.announces.Event), s.fails("identifiers")
	default:
		events, err = append(events, s.announces.Event), s.fails("announcements")
	}
	return func(yield func(graspsync.Event, error) bool) {
		if err != nil {
			yield(graspsync.Event{}, err)
			return
		}
		for _, ev := range events {
			if !yield(eventtest.Of(ev), nil) {
				return
			}
		}
	}
}

func (s *scales) Lists(*nip34.Announcement) bool { return true }

func (s *scales) Deleted(context.Context, graspsync.Event) (bool, error) { return false, nil }

func (s *scales) Lock(context.Context, graspsync.RepoRef) (string, func(), error) {
	return "dir", func() {}, s.fails("lock")
}

func (s *scales) Create(context.Context, graspsync.RepoRef, nip34.ObjectFormat) error { return nil }

func (s *scales) Remove(context.Context, graspsync.RepoRef) error { return nil }

func (s *scales) Depart(context.Context, graspsync.RepoRef) error { return nil }

func (s *scales) Erase(context.Context, graspsync.RepoRef) error { return nil }

func (s *scales) Sweep(context.Context, time.Time) error { return nil }

func (s *scales) Owned(context.Context, graspsync.PubKey) iter.Seq2[graspsync.RepoRef, error] {
	return func(func(graspsync.RepoRef, error) bool) {}
}

func (s *scales) Staged(graspsync.RepoRef, graspsync.EventID) []Upload { return nil }

func (s *scales) Unstage(graspsync.RepoRef, graspsync.EventID) {}

func (s *scales) Reserve(context.Context, graspsync.RepoRef, bool, int64, func(graspsync.PubKey) int64) (func(), error) {
	return func() {}, nil
}

func (s *scales) Refs(context.Context, string) (Refs, error) {
	return Refs{At: maps.Clone(s.refs), Format: nip34.SHA1}, s.fails("refs")
}

func (s *scales) UpdateRefs(_ context.Context, _ string, changes []RefChange, _ nip34.RefName) error {
	if err := s.fails("align"); err != nil {
		return err
	}
	var gone []string
	for _, c := range changes {
		gone = append(gone, s.short(c.Name))
		delete(s.refs, c.Name)
	}
	slices.Sort(gone)
	s.say("go: %v", gone)
	return nil
}

func (s *scales) Cleanup(context.Context, string) error { return nil }

func (s *scales) Repair(context.Context, string) error { return nil }

func (s *scales) Probe(_ context.Context, _ string, ids []nip34.ObjectID) (map[nip34.ObjectID]ObjectKind, string, error) {
	kinds := make(map[nip34.ObjectID]ObjectKind)
	for _, id := range ids {
		if s.here[id] {
			kinds[id] = Commit
		}
	}
	return kinds, "", s.fails("probe")
}

func (s *scales) Weigh(ctx context.Context, _ string, ids, but []nip34.ObjectID) (int64, error) {
	if s.takes > 0 {
		left, _ := ctx.Deadline()
		s.say("weighs %v, %d others, deadline %v", tips(ids), len(but), !left.IsZero())
		select {
		case <-time.After(s.takes):
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		}
	}
	if s.err != nil {
		return 0, s.err
	}
	if err := s.fails("weigh"); err != nil {
		return 0, err
	}
	sum := int64(0)
	for _, id := range ids {
		if !slices.Contains(but, id) {
			sum += s.sizes[id]
		}
	}
	return sum, nil
}

func (s *scales) Maintain(ctx context.Context, how Maintenance) (Maintained, error) {
	_, unlock, err := how.Lock(ctx)
	if err != nil {
		return Maintained{}, err
	}
	unlock()
	keep, err := how.Keep(ctx)
	if err != nil {
		return Maintained{}, err
	}
	until, _ := ctx.Deadline()
	s.say("maintains: now %v, prune %v, grace %v, remember %v, for %v, keep %v",
		how.Now, how.Prune, how.Grace, how.Remember, time.Until(until), tips(keep))
	time.Sleep(s.done.Locked)
	return s.done, s.fails("maintain")
}

func tips(ids []nip34.ObjectID) (out []string) {
	for _, id := range ids {
		out = append(out, id.String()[38:])
	}
	slices.Sort(out)
	return out
}

// short is a name that can be read.
func (s *scales) short(name nip34.RefName) string {
	if id, ok := resolve.EventOf(name); ok {
		return id.String()[:6]
	}
	return name.String()
}

func eventBy(author graspsync.PubKey, at int64, kind int, tags ...nostr.Tag) *nostr.Event {
	ev := &nostr.Event{PubKey: author.String(), CreatedAt: nostr.Timestamp(at), Kind: kind, Tags: tags, Sig: strings.Repeat("0", 128)}
	ev.ID = ev.GetID()
	return ev
}

func objectOf(n int) nip34.ObjectID {
	id, _ := nip34.ParseObjectID(fmt.Sprintf("f%039x", n))
	return id
}

// rationed is one drawn world of pull requests that come by pushes, fetches and looks, and go.
type rationed struct {
	*scales
	t     *testing.T
	rng   *rand.Rand
	p     *Purgatory
	ctx   context.Context
	pulls []*nip34.PullRequest
	log   bytes.Buffer
	began time.Time
}

func newRationed(t *testing.T, seed uint64) *rationed {
	rng := rand.New(rand.NewPCG(seed, 77))
	owner := graspsync.PubKey{1}
	s := &scales{
		ref:  graspsync.RepoRef{Owner: owner, Identifier: "r"},
		refs: make(map[nip34.RefName]nip34.ObjectID), sizes: make(map[nip34.ObjectID]int64), here: make(map[nip34.ObjectID]bool),
	}
	w := &rationed{scales: s, t: t, rng: rng, ctx: t.Context(), began: time.Now()}
	var err error
	at := w.began.Unix()
	s.announces, err = nip34.ParseAnnouncement(eventtest.Of(eventBy(owner, at-1000, graspsync.KindAnnouncement, nostr.Tag{"d", "r"})))
	require.NoError(t, err)
	w.refs[mainBranch()] = objectOf(1)
	for n := range 14 {
		author := graspsync.PubKey{byte(1 + rng.IntN(5))}
		ev := eventBy(author, at-500+int64(rng.IntN(600)), graspsync.KindPullRequest,
			nostr.Tag{"a", s.ref.String()}, nostr.Tag{"c", objectOf(10 + n).String()}, nostr.Tag{"x", fmt.Sprint(n)})
		pr, err := nip34.ParsePullRequest(eventtest.Of(ev))
		require.NoError(t, err)
		w.pulls = append(w.pulls, pr)
		s.sizes[pr.Tip] = []int64{0, 1, 15, 16, 17, 120, 300, 511, 512, 513, 900, 1023, 1024, 1025}[rng.IntN(14)]
	}
	w.open(s, s, seed%11 == 4)
	return w
}

func mainBranch() nip34.RefName {
	name, _ := nip34.ParseRefName("refs/heads/main")
	return name
}

func (w *rationed) open(relay Relay, git GitFetcher, unmaintained bool) {
	timeless := func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}
	log := slog.New(slog.NewTextHandler(&w.log, &slog.HandlerOptions{Level: slog.LevelDebug, ReplaceAttr: timeless}))
	var err error
	w.p, err = Open(w.ctx, relay, w.scales, git, state.NewMemory(), Config{
		Limits: Limits{MaxPullBytes: 1024}, Logger: log, Times: Times{Hold: 2_000 * time.Hour}, fixed: constants{MaxHold: 10_000 * time.Hour}, NoMaintenance: unmaintained,
	})
	require.NoError(w.t, err)
}
