package syncmock_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/mock/gomock"

	"github.com/graspsync/graspsync"
	relaysync "github.com/graspsync/graspsync/sync"
	"github.com/graspsync/graspsync/sync/syncmock"
)

// lacks is the function under test. It returns the ids that a store does not contain.
func lacks(ctx context.Context, store relaysync.Store, ids ...graspsync.EventID) ([]graspsync.EventID, error) {
	has, err := store.Has(ctx, ids)
	if err != nil {
		return nil, fmt.Errorf("looking for %d events: %w", len(ids), err)
	}
	var missing []graspsync.EventID
	for i, id := range ids {
		if !has[i] {
			missing = append(missing, id)
		}
	}
	return missing, nil
}

// In a test file the function is called TestLacks.
func testLacks(t *testing.T) {
	store := syncmock.NewMockStore(gomock.NewController(t)) // fails the test on unexpected calls
	one, two := graspsync.EventID{1}, graspsync.EventID{2}
	store.EXPECT().Has(gomock.Any(), []graspsync.EventID{one, two}).Return([]bool{true, false}, nil)
	store.EXPECT().Has(gomock.Any(), []graspsync.EventID{one}).Return(nil, context.DeadlineExceeded)

	missing, err := lacks(t.Context(), store, one, two)
	require.NoError(t, err)
	require.Equal(t, []graspsync.EventID{two}, missing)
	_, err = lacks(t.Context(), store, one)
	require.ErrorIs(t, err, context.DeadlineExceeded)
}

// In a test file the function is called TestLacksFails.
func testQuiet(t *testing.T) {
	store := syncmock.NewQuietStore(t) // empty
	missing, err := lacks(t.Context(), store, graspsync.EventID{1})
	require.NoError(t, err)
	require.Len(t, missing, 1)

	store.EXPECT().Has(gomock.Any(), gomock.Any()).Return(nil, context.DeadlineExceeded)
	_, err = lacks(t.Context(), store, graspsync.EventID{1})
	require.ErrorIs(t, err, context.DeadlineExceeded)
}

// A quiet mock answers every call, so that a test states only the calls that matter to it.
func ExampleNewQuietStore() {
	_ = testing.InternalTest{Name: "TestLacksFails", F: testQuiet}
}

// Test the calls of a Store: one call for all ids, and the handling of its failure.
func Example() {
	_ = testing.InternalTest{Name: "TestLacks", F: testLacks}
}
