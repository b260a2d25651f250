package fetchtest

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory"
)

// testReceived calls Received at any time, as purgatory does to choose slow fetches.
func testReceived(t *testing.T, s Setup) {
	for name, from := range map[string]graspsync.CloneURL{"Full": s.Full, "None": s.None} {
		t.Run(name, func(t *testing.T) {
			q := s.quarantine(t)
			n, err := fetchWatched(t.Context(), q, from, []nip34.ObjectID{s.Second})
			require.NoError(t, err)
			require.LessOrEqual(t, q.Received(), n, "no more than Fetch says has come")
			require.NoError(t, watched(q, false, func() { _, err = q.Fetch(t.Context(), s.Full, []nip34.ObjectID{s.Second}) }))
			require.NoError(t, err)
			require.NoError(t, watched(q, false, func() { err = q.Promote(t.Context()) }))
			require.NoError(t, err)
			require.NoError(t, watched(q, false, func() { err = q.Discard() }))
			require.NoError(t, err)
			_, err = received(q)
			require.NoError(t, err, "when it has ended")
		})
	}
}

// fetchWatched fetches into an empty quarantine, and returns an error about results of Received
// during the fetch.
func fetchWatched(ctx context.Context, q purgatory.Quarantine, from graspsync.CloneURL, ids []nip34.ObjectID) (n int64, err error) {
	switch first, err := received(q); {
	case err != nil:
		return 0, err
	case first != 0:
		return 0, fmt.Errorf("%w: %d before anything is fetched", errReceived, first)
	}
	var failed error
	err = watched(q, true, func() { n, failed = q.Fetch(ctx, from, ids) })
	if failed != nil && !errors.Is(failed, purgatory.ErrNotServed) {
		err = errors.Join(failed, err)
	}
	return n, err
}

var errReceived = errors.New("Received")

// watched calls Received while do runs, and returns an error about its results. If grows is true,
// the results must not decrease.
func watched(q purgatory.Quarantine, grows bool, do func()) error {
	stop, result := make(chan struct{}), make(chan error, 1)
	go func() { result <- watch(q, grows, stop) }()
	do()
	close(stop)
	return <-result
}

func watch(q purgatory.Quarantine, grows bool, stop <-chan struct{}) error {
	look := time.NewTicker(100 * time.Microsecond)
	defer look.Stop()
	before := int64(0)
	for {
		n, err := received(q)
		if err != nil {
			return err
		}
		if grows && n < before {
			return fmt.Errorf("%w: %d after %d, during one Fetch", errReceived, n, before)
		}
		before = n
		select {
		case <-look.C:
		case <-stop:
			return nil
		}
	}
}

// received calls Received and converts a panic to an error.
func received(q purgatory.Quarantine) (n int64, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%w: panic: %v", errReceived, r)
		}
	}()
	if n = q.Received(); n < 0 {
		return n, fmt.Errorf("%w: %d", errReceived, n)
	}
	return n, nil
}
