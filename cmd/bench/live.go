package main

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/cputime"
	relaysync "github.com/graspsync/graspsync/sync"
	"github.com/graspsync/graspsync/sync/memstore"
)

const (
	liveEvery = 10 * time.Millisecond // between two events
	liveRepos = 200
)

// measureLive measures the time until a live event that five relays send is stored.
func measureLive(r *run) error {
	w := world{repos: liveRepos, issues: 20, relays: r.pick(100, 12), listed: 5}
	c, memory, identity, err := w.start(r.ctx)
	if err != nil {
		return err
	}
	defer c.close()
	store := newClockedStore(memory)
	f, err := startFollower(r.ctx, store, identity, relaysync.Config{})
	if err != nil {
		return err
	}
	defer f.stop()
	if err := f.synced(r.ctx, w.relays, 3*time.Minute); err != nil {
		return err
	}
	events, err := spoken(w, c, r.pick(3000, 200))
	if err != nil {
		return err
	}
	warm := len(events) / 10
	if _, err := c.publish(events[:warm], liveEvery); err != nil {
		return err
	}
	used, began := cputime.Used(), time.Now()
	sent, err := c.publish(events[warm:], liveEvery)
	if err != nil {
		return err
	}
	took, err := store.await(r.ctx, sent, 10*time.Second)
	if err != nil {
		return err
	}
	share := float64(cputime.Used()-used) / float64(time.Since(began))
	at := func(sorted []time.Duration, q float64) float64 {
		return sorted[min(len(sorted)-1, int(q*float64(len(sorted))))].Seconds() * 1e3
	}
	r.figure("from relay to stored, median", at(took, 0.5), "ms")
	r.atMost("from relay to stored, 99 of 100", at(took, 0.99), "ms", 20)
	r.atMost("CPU, of a core", share*100, "%", 15)
	return nil
}

// spoken returns signed events about the repositories of a world. Of ten events, five are comments
// on an issue, four are results of CI, and one is a new issue.
func spoken(w world, c *crowdRemote, n int) ([]publication, error) {
	const secret = "0000000000000000000000000000000000000000000000000000000000000001"
	var all []publication
	for i := range n {
		repo := i % w.repos
		ev := nostr.Event{CreatedAt: nostr.Now(), Content: fmt.Sprint("said ", i), Tags: nostr.Tags{{"a", w.address(repo)}, {"alt", "what is said live"}}}
		switch i % 10 {
		case 0:
			ev.Kind = graspsync.KindIssue
		case 1, 2, 3, 4:
			ev.Kind = 9842 // a result of CI
		default:
			ev.Kind = 1111 // a comment
			root := w.issue(repo, i%w.issues)
			ev.Tags = nostr.Tags{
				{"E", root.ID, "", root.PubKey}, {"K", fmt.Sprint(root.Kind)}, {"P", root.PubKey},
				{"e", root.ID, "", root.PubKey}, {"k", fmt.Sprint(root.Kind)}, {"p", root.PubKey},
			}
		}
		if err := ev.Sign(secret); err != nil {
			return nil, err
		}
		p := publication{event: ev}
		for _, relay := range w.relaysOf(repo) {
			p.paths = append(p.paths, c.path(relay))
		}
		all = append(all, p)
	}
	return all, nil
}

type clockedStore struct {
	*memstore.Store

	mu sync.Mutex
	at map[graspsync.EventID]time.Time // guarded by mu
}

func newClockedStore(store *memstore.Store) *clockedStore {
	return &clockedStore{Store: store, at: make(map[graspsync.EventID]time.Time)}
}

// Save implements [relaysync.Store].
func (s *clockedStore) Save(ctx context.Context, events []graspsync.Incoming) ([]graspsync.Outcome, error) {
	out, err := s.Store.Save(ctx, events)
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, o := range out {
		if o.Result == graspsync.Stored {
			s.at[events[i].Event.ID] = now
		}
	}
	return out, err
}

// await waits until all sent events are stored and returns the sorted durations.
func (s *clockedStore) await(ctx context.Context, sent map[string]time.Time, limit time.Duration) ([]time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for {
		took, err := s.took(sent)
		if err != nil || len(took) == len(sent) {
			slices.Sort(took)
			return took, err
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
			return nil, fmt.Errorf("%d of %d events came: %w", len(took), len(sent), ctx.Err())
		}
	}
}

func (s *clockedStore) took(sent map[string]time.Time) (took []time.Duration, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for text, p := range sent {
		id, err := graspsync.ParseEventID(text)
		if err != nil {
			return nil, err
		}
		if at, ok := s.at[id]; ok {
			took = append(took, at.Sub(p))
		}
	}
	return took, nil
}
