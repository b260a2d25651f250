package purgatory_test

import (
	"context"
	"fmt"
	"iter"
	"os"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory"
	"github.com/graspsync/graspsync/purgatory/fetchtest"
	"github.com/graspsync/graspsync/state"
	"github.com/graspsync/graspsync/sync/relaytest"
)

func TestMain(m *testing.M) {
	if os.Getenv(envFolder) != "" { // this is the process that is to be killed
		if err := victim(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

var _ purgatory.Related = (*relay)(nil)

// relay is the relay whose events wait.
type relay struct {
	mu     sync.Mutex
	events []*nostr.Event
	saves  int
	fail   error
	refuse func(ev *nostr.Event) error
	before func(ev *nostr.Event) // each save
	after  func()                // each answer of Has, before it is given

	relatives []*nostr.Event // announcements of others
	standings map[graspsync.EventID]purgatory.PullStanding
}

func (r *relay) Save(_ context.Context, ev *nostr.Event) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.fail != nil {
		return r.fail
	}
	if r.refuse != nil {
		if err := r.refuse(ev); err != nil {
			return err
		}
	}
	if r.before != nil {
		r.before(ev)
	}
	r.saves++
	if !slices.ContainsFunc(r.events, func(o *nostr.Event) bool { return o.ID == ev.ID }) {
		r.events = append(r.events, ev)
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

func (r *relay) Announcements(_ context.Context, identifier string) (out []*nip34.Announcement, _ error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, ev := range r.events {
		if a, err := nip34.ParseAnnouncement(ev); err == nil && a.Ref.Identifier == identifier {
			out = append(out, a)
		}
	}
	return newestOf(out, func(a *nip34.Announcement) (graspsync.RepoRef, graspsync.Stamp) { return a.Ref, a.Stamp() }), nil
}

// newestOf leaves the newest version of each address, as a relay serves them.
func newestOf[T any](all []T, version func(T) (graspsync.RepoRef, graspsync.Stamp)) (out []T) {
	for _, x := range all {
		ref, v := version(x)
		if !slices.ContainsFunc(all, func(y T) bool {
			r, w := version(y)
			return r == ref && w.Newer(v)
		}) {
			out = append(out, x)
		}
	}
	return out
}

func (r *relay) States(_ context.Context, identifier string) (out []*nip34.State, _ error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, ev := range r.events {
		if s, err := nip34.ParseState(ev); err == nil && s.Ref.Identifier == identifier {
			out = append(out, s)
		}
	}
	return newestOf(out, func(s *nip34.State) (graspsync.RepoRef, graspsync.Stamp) { return s.Ref, s.Stamp() }), nil
}

func (r *relay) Deleted(_ context.Context, ev *nostr.Event) (bool, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, d := range r.events {
		ids, _ := nip34.ParseDeletion(d)
		for _, id := range ids {
			if d.PubKey == ev.PubKey && id.String() == ev.ID {
				return true, nil
			}
		}
	}
	return false, nil
}

func (r *relay) Has(_ context.Context, id graspsync.EventID) (bool, error) {
	r.mu.Lock()
	has := slices.ContainsFunc(r.events, func(o *nostr.Event) bool { return o.ID == id.String() })
	after := r.after
	r.mu.Unlock()
	if after != nil {
		after()
	}
	return has, nil
}

func (r *relay) Pulls(_ context.Context, ref graspsync.RepoRef) iter.Seq2[*nip34.PullRequest, error] {
	return func(yield func(*nip34.PullRequest, error) bool) {
		r.mu.Lock()
		events := slices.Clone(r.events)
		r.mu.Unlock()
		for _, ev := range events {
			if p, err := nip34.ParsePullRequest(ev); err == nil && slices.Contains(p.Repos, ref) && !yield(p, nil) {
				return
			}
		}
	}
}

func (r *relay) Standings(_ context.Context, _ graspsync.RepoRef, pulls []*nip34.PullRequest, _ map[graspsync.PubKey]struct{}) (map[graspsync.EventID]purgatory.PullStanding, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := make(map[graspsync.EventID]purgatory.PullStanding)
	for _, p := range pulls {
		if s, ok := r.standings[p.ID]; ok {
			out[p.ID] = s
		}
	}
	return out, nil
}

// Relatives implements [purgatory.Related].
func (r *relay) Relatives(_ context.Context, identifier string, authors []graspsync.PubKey) (out []*nip34.Announcement, _ error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, ev := range r.relatives {
		a, err := nip34.ParseAnnouncement(ev)
		if err == nil && a.Ref.Identifier == identifier && slices.Contains(authors, a.Ref.Owner) {
			out = append(out, a)
		}
	}
	return out, nil
}

// Lists implements [purgatory.Related].
func (r *relay) Lists(*nip34.Announcement) bool { return true }

func (r *relay) Identifiers(context.Context) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		r.mu.Lock()
		events := slices.Clone(r.events)
		r.mu.Unlock()
		for _, ev := range events {
			if a, err := nip34.ParseAnnouncement(ev); err == nil && !yield(a.Ref.Identifier, nil) {
				return
			}
		}
	}
}

// world is a purgatory with all that is around it.
type world struct {
	t     *testing.T
	p     *purgatory.Purgatory
	relay *relay
	git   *fetchtest.Fake
	state state.Store
	cfg   purgatory.Config
	stop  func()
	seen  []purgatory.Observation

	// in place of relay and git, where a test says so
	host    purgatory.Relay
	repos   purgatory.Repositories
	fetcher purgatory.GitFetcher
	observe func(purgatory.Observation) // besides
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
	host, repos, fetcher := purgatory.Relay(w.relay), purgatory.Repositories(w.git), purgatory.GitFetcher(w.git)
	if w.host != nil {
		host = w.host
	}
	if w.repos != nil {
		repos = w.repos
	}
	if w.fetcher != nil {
		fetcher = w.fetcher
	}
	p, err := purgatory.Open(w.t.Context(), host, repos, fetcher, w.state, cfg)
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
	a, err := w.p.Submit(w.t.Context(), ev, byUser)
	require.NoError(w.t, err)
	return a.Decision
}

func (w *world) held(ev *nostr.Event) {
	w.t.Helper()
	require.Equal(w.t, purgatory.Held, w.submit(ev, false))
}

func wait(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func object(n int) nip34.ObjectID {
	id, _ := nip34.ParseObjectID(fmt.Sprintf("%040x", n))
	return id
}

func branch(name string) nip34.RefName {
	r, _ := nip34.ParseRefName("refs/heads/" + name)
	return r
}

func clone(s string) graspsync.URL {
	u, _ := graspsync.ParseURL("https://"+s, graspsync.HTTPSchemes)
	return u
}

func now() nostr.Timestamp { return nostr.Timestamp(time.Now().Unix()) }

// announce announces a repository "r" that can be cloned from servers.
func announce(k *relaytest.Key, at nostr.Timestamp, servers ...string) *nostr.Event {
	tags := nostr.Tags{{"d", "r"}}
	for _, s := range servers {
		tags = append(tags, nostr.Tag{"clone", "https://" + s})
	}
	return k.Event(at, graspsync.KindAnnouncement, "", tags...)
}

// says is a state with branches main=..., from pairs of name and object.
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

// unanswered has whoever is listed have a say, so that tests of other things need not have
// everybody agree.
func unanswered() nip34.Membership { return nip34.Membership{OneSided: true} }
