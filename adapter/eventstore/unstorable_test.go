package eventstoreadapter_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/fiatjaf/eventstore"
	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	eventstoreadapter "github.com/graspsync/graspsync/adapter/eventstore"
	"github.com/graspsync/graspsync/internal/eventtest"
	"github.com/graspsync/graspsync/sync/relaytest"
)

// sqlError is an error of a driver for a SQL database.
type sqlError string

func (e sqlError) Error() string    { return "pq: " + string(e) }
func (e sqlError) SQLState() string { return string(e) }

// failing is a database that fails when it stores an event with a content.
type failing struct {
	eventstore.Store
	err error
}

func (f failing) SaveEvent(ctx context.Context, e *nostr.Event) error {
	if e.Content != "" {
		return f.err
	}
	return f.Store.SaveEvent(ctx, e)
}

// A database that says that it is the event which it can't store is not asked again; others may
// have recovered by the next time.
func TestCaseC16_DataThatADatabaseRefuses(t *testing.T) {
	for err, want := range map[error]graspsync.Result{
		sqlError("22P05"): graspsync.Refused, // untranslatable character
		sqlError("22021"): graspsync.Refused, // not in repertoire
		sqlError("22003"): graspsync.Refused, // number out of range
		sqlError("22001"): graspsync.Refused, // too long
		sqlError("54000"): graspsync.Refused, // row of an index too large
		sqlError("53100"): graspsync.Failed,  // disk full
		sqlError("57P01"): graspsync.Failed,  // shutdown
		sqlError("40001"): graspsync.Failed,  // serialization failure
		errors.New("EOF"): graspsync.Failed,
	} {
		s := newStore(t, failing{newSlice(t, 0), fmt.Errorf("saving: %w", err)}, eventstoreadapter.Config{})
		key := relaytest.NewCheapKey("a")
		in := []graspsync.Incoming{{Event: eventtest.Of(key.Event(1, 1, "x"))}}
		for range 5 {
			out, saveErr := s.Save(t.Context(), in)
			require.NoError(t, saveErr)
			require.Equal(t, want, out[0].Result, err)
			require.Equal(t, want == graspsync.Refused, errors.Is(out[0].Err, eventstoreadapter.ErrUnstorable))
		}
		require.Equal(t, want == graspsync.Refused, s.Writable() == nil, "a stranger must not make the store look broken")
	}
}
