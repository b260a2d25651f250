package purgatory_test

import (
	"context"
	"fmt"
	"iter"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/eventtest"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory"
	"github.com/graspsync/graspsync/purgatory/fetchtest"
	"github.com/graspsync/graspsync/purgatory/internal/gitops"
	"github.com/graspsync/graspsync/state"
	"github.com/graspsync/graspsync/sync/relaytest"
)

func TestMain(m *testing.M) {
	if os.Getenv(envFolder) != "" { // this is the process to be killed
		if err := victim(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// relay is the relay of held events.
type relay struct {
	mu     sync.Mutex
	events []*nostr.Event
	saves  int
	fail   error
	refuse func(ev *nostr.Event) error
	before func(ev *nostr.Event) // called before each Save
	after  func()                // called before each reply to Events

	notListing []*nostr.Event // announcements that do not list this service
}

func (r *relay) Save(_ context.Context, ev graspsync.Event) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.fail != nil {
		return r.fail
	}
	if r.refuse != nil {
		if err := r.refuse(ev.Event); err != nil {
			return err
		}
	}
	if r.before != nil {
		r.before(ev.Event)
	}
	r.saves++
	if !slices.ContainsFunc(r.events, func(o *nostr.Event) bool { return o.ID == ev.Event.ID }) {
		r.events = append(r.events, ev.Event)
	}
	return nil
}

func (r *relay) put(evs ...*nostr.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, evs...)
}

func (r *relay) has(ev *nostr.Event) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.ContainsFunc(r.events, func(o *nostr.Event) bool { return o.ID == ev.ID })
}

// asks describes a filter by its purpose.
func asks(f nostrFilter) string {
	switch {
	case len(f.IDs) > 0:
		return "has"
	case slices.Contains(f.Kinds, graspsync.KindState):
		return "states"
	case slices.Contains(f.Kinds, graspsync.KindPullRequest):
		return "pulls"
	case !slices.Contains(f.Kinds, graspsync.KindAnnouncement):
		return "standings"
	case len(f.Tags) == 0:
		return "identifiers"
	case len(f.Authors) > 0:
		return "authors"
	}
	return "announcements"
}

func (r *relay) Events(_ context.Context, f nostrFilter) iter.Seq2[graspsync.Event, error] {
	return func(yield func(graspsync.Event, error) bool) {
		r.mu.Lock()
		var out []*nostr.Event
		for _, ev := range slices.Concat(r.events, r.notListing) {
			if f.Matches(ev) {
				out = append(out, ev)
			}
		}
		after := r.after
		r.mu.Unlock()
		if after != nil && len(f.IDs) > 0 {
			after()
		}
		for _, ev := range newestOf(out) {
			if !yield(eventtest.Of(ev), nil) {
				return
			}
		}
	}
}

// Lists implements [purgatory.Relay].
func (r *relay) Lists(a *nip34.Announcement) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return !slices.ContainsFunc(r.notListing, func(ev *nostr.Event) bool { return ev.ID == a.ID.String() })
}

// announcements returns the announcements with an identifier.
func (r *relay) announcements(identifier string) (out []*nip34.Announcement) {
	for ev := range r.Events(context.Background(), nostrFilter{Kinds: []int{graspsync.KindAnnouncement}}) {
		if a, err := nip34.ParseAnnouncement(ev); err == nil && a.Ref.Identifier == identifier {
			out = append(out, a)
		}
	}
	return out
}

// states returns the states with an identifier.
func (r *relay) states(identifier string) (out []*nip34.State) {
	for ev := range r.Events(context.Background(), nostrFilter{Kinds: []int{graspsync.KindState}}) {
		if s, err := nip34.ParseState(ev); err == nil && s.Ref.Identifier == identifier {
			out = append(out, s)
		}
	}
	return out
}

// newestOf returns the newest version of each address, as a relay serves them.
func newestOf(all []*nostr.Event) (out []*nostr.Event) {
	version := func(ev *nostr.Event) graspsync.EventKey {
		id, _ := graspsync.ParseEventID(ev.ID)
		return graspsync.EventKey{CreatedAt: ev.CreatedAt, ID: id}
	}
	for _, x := range all {
		if !nostr.IsAddressableKind(x.Kind) || !slices.ContainsFunc(all, func(y *nostr.Event) bool {
			return y.Kind == x.Kind && y.PubKey == x.PubKey && y.Tags.GetD() == x.Tags.GetD() && version(y).Newer(version(x))
		}) {
			out = append(out, x)
		}
	}
	return out
}

func (r *relay) Deleted(_ context.Context, ev graspsync.Event) (bool, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, d := range r.events {
		if d.Kind != nostr.KindDeletion {
			continue
		}
		ids, _ := nip34.DeletionTargets(eventtest.Of(d))
		for _, id := range ids {
			if d.PubKey == ev.Event.PubKey && id == ev.ID {
				return true, nil
			}
		}
	}
	return false, nil
}

// world is a purgatory with its environment.
type world struct {
	t     *testing.T
	p     *purgatory.Purgatory
	relay *relay
	git   *fetchtest.Fake
	state state.Store
	cfg   purgatory.Config
	stop  func()
	seen  []purgatory.Observation

	brought int // number of events from relays

	// used instead of relay and git if set
	host    purgatory.Relay
	repos   purgatory.Repositories
	fetcher interface {
		gitops.Operations
		purgatory.GitFetcher
	}
	observe func(purgatory.Observation) // additional observer
}

func run(t *testing.T, cfg purgatory.Config, test func(t *testing.T, w *world)) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, cfg)
		w.start()
		test(t, w)
		w.stop()
		require.Empty(t, w.git.Broken())
	})
}

func newWorld(t *testing.T, cfg purgatory.Config) *world {
	return &world{t: t, relay: &relay{}, git: fetchtest.New(), state: state.NewMemory(), cfg: cfg}
}

func (w *world) start() {
	var mu sync.Mutex
	cfg := w.cfg
	cfg.Observe = func(o purgatory.Observation) {
		mu.Lock()
		defer mu.Unlock()
		w.seen = append(w.seen, o)
		if w.observe != nil {
			w.observe(o)
		}
	}
	host, repos := purgatory.Relay(w.relay), purgatory.Repositories(w.git)
	if w.host != nil {
		host = w.host
	}
	if w.repos != nil {
		repos = w.repos
	}
	if w.fetcher == nil {
		w.fetcher = w.git
	}
	p, err := purgatory.Open(w.t.Context(), host, repos, w.fetcher, w.fetcher, w.state, cfg)
	require.NoError(w.t, err)
	w.p = p
	ctx, cancel := context.WithCancel(w.t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = p.Run(ctx)
	}()
	w.stop = func() {
		cancel()
		<-done
		if !w.t.Failed() {
			synctest.Wait()
			require.Empty(w.t, p.Left())
		}
	}
	synctest.Wait()
}

func (w *world) submit(ev *nostr.Event, byUser bool) purgatory.Decision {
	w.t.Helper()
	a, err := w.p.Submit(w.t.Context(), eventtest.Of(ev), submittedBy(byUser))
	require.NoError(w.t, err)
	return a.Decision
}

// submittedBy returns the source of a client's event, or of a synced event without relay.
func submittedBy(user bool) graspsync.Source {
	if user {
		return graspsync.Source{}
	}
	return graspsync.Source{Kind: graspsync.CatchUp}
}

func (w *world) held(ev *nostr.Event) {
	w.t.Helper()
	require.Equal(w.t, purgatory.Held, w.submit(ev, false))
}

func wait(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// object returns one id per number. That of 0 is not git's null id, which a state may not name.
func object(n int) nip34.ObjectID {
	text := fmt.Sprintf("%040x", n)
	if n == 0 {
		text = strings.Repeat("f", len(text))
	}
	id, _ := nip34.ParseObjectID(text)
	return id
}

func branch(name string) nip34.RefName {
	r, _ := nip34.ParseRefName("refs/heads/" + name)
	return r
}

func clone(s string) graspsync.CloneURL {
	u, _ := graspsync.ParseCloneURL("https://" + s)
	return u
}

func now() nostr.Timestamp { return nostr.Timestamp(time.Now().Unix()) }

// announce returns an announcement of repository "r" with clone URLs on servers.
func announce(k *relaytest.Key, at nostr.Timestamp, servers ...string) *nostr.Event {
	tags := nostr.Tags{{"d", "r"}}
	for _, s := range servers {
		tags = append(tags, nostr.Tag{"clone", "https://" + s})
	}
	return k.Event(at, graspsync.KindAnnouncement, "", tags...)
}

// listing returns an announcement of repository "r" that lists another maintainer.
func listing(k *relaytest.Key, at nostr.Timestamp, other *relaytest.Key) *nostr.Event {
	return k.Event(at, graspsync.KindAnnouncement, "", nostr.Tag{"d", "r"}, nostr.Tag{"maintainers", other.Hex()})
}

// says returns a state with branches, from pairs of name and object number.
func says(k *relaytest.Key, at nostr.Timestamp, refs ...any) *nostr.Event {
	tags := nostr.Tags{{"d", "r"}, {"HEAD", "ref: refs/heads/main"}}
	for i := 0; i < len(refs); i += 2 {
		tags = append(tags, nostr.Tag{"refs/heads/" + refs[i].(string), object(refs[i+1].(int)).String()})
	}
	return k.Event(at, graspsync.KindState, "", tags...)
}

func pull(k *relaytest.Key, owner graspsync.RepoRef, tip int, kind int) *nostr.Event {
	return k.Event(now(), kind, "", nostr.Tag{"a", owner.String()}, nostr.Tag{"c", object(tip).String()})
}

func repoOf(k *relaytest.Key) graspsync.RepoRef { return k.Ref("r") }

type (
	nostrEvent  = nostr.Event
	nostrFilter = nostr.Filter
	nostrTag    = nostr.Tag
)

type nostrTime = nostr.Timestamp

// unanswered returns a Membership with one-sided listings, so that tests of other subjects need no
// mutual ones.
func unanswered() nip34.Membership { return nip34.Membership{OneSided: true} }
