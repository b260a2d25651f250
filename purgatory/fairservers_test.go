package purgatory_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory"
	"github.com/graspsync/graspsync/purgatory/fetchtest"
	"github.com/graspsync/graspsync/sync/relaytest"
)

var errTooSlow = errors.New("too slow")

// strangers are owners of repositories with servers of their own.
type strangers struct {
	w     *world
	count int
}

// come makes a new key announce a repository at some URLs, with a missing object.
func (s *strangers) come(at ...string) nip34.ObjectID {
	s.count++
	mallory, has := relaytest.NewCheapKey(fmt.Sprint("mallory", s.count)), object(10_000+s.count)
	s.w.held(announce(mallory, now(), at...))
	s.w.held(says(mallory, now(), "main", 10_000+s.count))
	return has
}

// servedWithin checks that a new state of a known owner is served within most.
func (w *world) servedWithin(t *testing.T, n int, most time.Duration) {
	t.Helper()
	state := says(alice, now(), "main", n)
	w.held(state)
	for began := time.Now(); !w.relay.has(state); wait(time.Second) {
		require.LessOrEqual(t, time.Since(began), most)
	}
}

// Attacks by strangers on their own servers and on shared servers do not delay known owners.
func TestStrangersServersKeepNobodyOut(t *testing.T) {
	quick := fetchtest.Server{Objects: []nip34.ObjectID{object(1), object(2)}, Delay: 200 * time.Millisecond}
	drips := fetchtest.Server{Err: errTooSlow, Delay: 5 * time.Hour, Bytes: 1 << 20}
	for name, c := range map[string]struct {
		attack func(w *world, s *strangers)
		most   time.Duration
	}{
		// Before, requests that waited for a slow server held slots, also the few slots for queued
		// servers. Every server with a queue stalled.
		"requests that can't begin": {func(w *world, s *strangers) {
			for i := range 40 {
				w.git.Serve(clone(fmt.Sprintf("hub.example/f%d.git", i)), fetchtest.Server{})
				s.come(fmt.Sprintf("hub.example/f%d.git", i))
			}
			wait(8 * time.Second)
			for i := range 5 {
				at := []string{fmt.Sprintf("hub.example/m%d.git", i)}
				for j := range 2 {
					at = append(at, fmt.Sprintf("slow%d-%d.example/r.git", i, j))
					w.git.Serve(clone(at[1+j]), drips)
				}
				s.come(at...)
			}
			wait(2 * time.Minute)
		}, 130 * time.Second}, // one turn of each of 46 owners, at 30 a minute
		// The same slots, used by queued requests to one slow server.
		"left to a server that drips": {func(w *world, s *strangers) {
			fill := func(host string, as fetchtest.Server) (all []string) {
				for range 3 {
					var at []string
					for range 16 {
						at = append(at, fmt.Sprintf("%s/f%d-%d.git", host, s.count, len(at)))
						w.git.Serve(clone(at[len(at)-1]), as)
					}
					s.come(at...)
					all = append(all, at...)
				}
				return all
			}
			all := fill("evil.example", fetchtest.Server{Delay: 200 * time.Millisecond})
			wait(20 * time.Second)
			for _, at := range all {
				w.git.Serve(clone(at), drips)
			}
			wait(time.Minute)
			fill("hub.example", fetchtest.Server{})
			wait(10 * time.Second)
		}, 2 * time.Minute},
		// Before, a URL in use for one repository was not asked for any other repository.
		"the same URL": {func(w *world, s *strangers) {
			w.git.Serve(clone("hub.example/alice.git"), drips)
			s.come("hub.example/alice.git")
			wait(10 * time.Second)
			w.git.Serve(clone("hub.example/alice.git"), quick)
		}, time.Minute},
		// Each of sixty ports of a host counts as another server that has delivered.
		"ports that have delivered": {func(w *world, s *strangers) {
			for i := range 60 {
				at := fmt.Sprintf("evil.example:%d/r.git", 2000+i)
				w.git.Serve(clone(at), fetchtest.Server{Objects: []nip34.ObjectID{s.come(at)}})
			}
			wait(5 * time.Minute)
			for i := range 60 {
				w.git.Serve(clone(fmt.Sprintf("evil.example:%d/r.git", 2000+i)), drips)
				s.come(fmt.Sprintf("evil.example:%d/r.git", 2000+i))
			}
			wait(2 * time.Minute)
		}, 6 * time.Minute},
		// Before, one clone that took a minute made a whole hub slow, and slow servers had no slot.
		"a large repository of the hub, and others that drip": {func(w *world, s *strangers) {
			for i := range 20 {
				w.git.Serve(clone(fmt.Sprintf("slow.example:%d/r.git", 2000+i)), drips)
				s.come(fmt.Sprintf("slow.example:%d/r.git", 2000+i))
			}
			w.git.Serve(clone("hub.example/large.git"), fetchtest.Server{Delay: 65 * time.Second, Bytes: 1 << 30, Objects: []nip34.ObjectID{s.come("hub.example/large.git")}})
			wait(80 * time.Second)
		}, 2 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			run(t, purgatory.Config{}, func(t *testing.T, w *world) {
				w.git.Serve(clone("hub.example/alice.git"), quick)
				w.held(announce(alice, now(), "hub.example/alice.git"))
				w.servedWithin(t, 1, 10*time.Second)
				c.attack(w, &strangers{w: w})
				w.servedWithin(t, 2, c.most)
			})
		})
	}
}
