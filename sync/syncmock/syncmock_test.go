package syncmock_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/mock/gomock"

	"github.com/graspsync/graspsync"
	relaysync "github.com/graspsync/graspsync/sync"
	"github.com/graspsync/graspsync/sync/syncmock"
)

// Each interface has a mock, and each mock is current.
var (
	_ relaysync.Store     = (*syncmock.MockStore)(nil)
	_ relaysync.Transport = (*syncmock.MockTransport)(nil)
	_ relaysync.Conn      = (*syncmock.MockConn)(nil)
	_ relaysync.Policy    = (*syncmock.MockPolicy)(nil)
	_ relaysync.Holder    = (*syncmock.MockHolder)(nil)
	_ relaysync.Verifier  = (*syncmock.MockVerifier)(nil)
	_ relaysync.View      = (*syncmock.MockView)(nil)
)

func TestTypedMock(t *testing.T) {
	store := syncmock.NewMockStore(gomock.NewController(t))
	ids := []graspsync.EventID{{1}}
	store.EXPECT().Has(gomock.Any(), ids).Return([]bool{true}, nil)
	got, err := store.Has(t.Context(), ids)
	require.NoError(t, err)
	assert.Equal(t, []bool{true}, got)
}

func TestExample(t *testing.T) { testLacks(t) }
