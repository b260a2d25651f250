package gitfetch

import (
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
	f := fetcher(t, Config{MaxChildren: 2, Timeout: time.Second})
	f.fetching <- struct{}{}
	here := bare(t, nip34.SHA1)
	done := make(chan error, 1)
	go func() { done <- attempt(t.Context(), f, here, o.clone(t), tip) }()
	time.Sleep(1500 * time.Millisecond)
	<-f.fetching
	require.NoError(t, <-done)
}
