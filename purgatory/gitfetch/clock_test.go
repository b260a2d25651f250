package gitfetch

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/nip34"
)

// A server that could not be asked in time because others kept us busy has not gone
// beyond a limit: it would not be asked again before the next day.
func TestWaitingForOthersIsNotAServersFault(t *testing.T) {
	there := bare(t, nip34.SHA1)
	tip := history(t, there, "main", 1)[0]
	o := serve(t, there, nil)
	f := fetcher(t, Config{MaxFetches: 1, Timeout: time.Second})
	f.fetching <- struct{}{}
	here := bare(t, nip34.SHA1)
	done := make(chan error, 1)
	go func() { done <- attempt(t.Context(), f, here, o.clone(t), tip) }()
	time.Sleep(1500 * time.Millisecond)
	<-f.fetching
	require.NoError(t, <-done)
}

// Nor is it the fault of one that has sent everything that git can't run yet.
func TestWaitingForGitIsNotAServersFault(t *testing.T) {
	there := bare(t, nip34.SHA1)
	tip := history(t, there, "main", 1)[0]
	answered := make(chan struct{})
	o := serve(t, there, func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		if r.Method == http.MethodPost {
			<-answered
		}
		next.ServeHTTP(w, r)
	})
	f := fetcher(t, Config{MaxChildren: 1, Timeout: 2 * time.Second})
	here := bare(t, nip34.SHA1)
	done := make(chan error, 1)
	go func() { done <- attempt(t.Context(), f, here, o.clone(t), tip) }()
	require.Eventually(t, func() bool { return len(o.seen()) == 2 }, 10*time.Second, time.Millisecond)
	f.children <- struct{}{}
	close(answered)
	time.Sleep(2500 * time.Millisecond)
	<-f.children
	require.NoError(t, <-done)
}
