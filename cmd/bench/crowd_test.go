package main

import (
	"bufio"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	relaysync "github.com/graspsync/graspsync/sync"
)

// A follower follows the whole world of a crowd and receives published events.
func TestCrowd(t *testing.T) {
	in, told := io.Pipe()
	said, out := io.Pipe()
	ended := make(chan error, 1)
	go func() { ended <- serveCrowd(in, out) }()
	c := &crowdRemote{child: &child{in: told, out: bufio.NewScanner(said)}}
	var err error
	c.addr, err = c.line()
	require.NoError(t, err)
	w := world{repos: 6, issues: 3, relays: 3, listed: 2, url: c.url}
	memory, identity, err := newMemstore()
	require.NoError(t, err)
	require.NoError(t, save(t.Context(), memory, w.events))
	require.Equal(t, 6*4, memory.Len())
	store := newClockedStore(memory)
	f, err := startFollower(t.Context(), store, identity, relaysync.Config{})
	require.NoError(t, err)
	defer f.stop()
	require.NoError(t, f.synced(t.Context(), w.relays, time.Minute))
	require.Equal(t, w.repos, f.manager.Status().Repos)
	require.Equal(t, w.repos*w.issues, f.manager.Status().Roots)
	requests, connections, err := c.asked()
	require.NoError(t, err)
	require.Equal(t, w.relays, connections)
	require.Positive(t, requests)

	events, err := spoken(w, c, 20)
	require.NoError(t, err)
	sent, err := c.publish(events, time.Millisecond)
	require.NoError(t, err)
	require.Len(t, sent, 20)
	took, err := store.await(t.Context(), sent, 20*time.Second)
	require.NoError(t, err)
	require.Len(t, took, 20)
	f.stop()
	fmt.Fprintln(told, crowdAsked)
	_, err = c.line()
	require.NoError(t, err)
	require.NoError(t, told.Close())
	require.NoError(t, <-ended)
}
