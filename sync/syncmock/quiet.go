package syncmock

import (
	"context"

	"go.uber.org/mock/gomock"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/mocktest"
	relaysync "github.com/graspsync/graspsync/sync"
	"github.com/graspsync/graspsync/sync/wire"
)

// NewQuietStore returns a mock of an empty Store that reports each saved event as stored. An
// expectation of a method replaces its default answer.
func NewQuietStore(t gomock.TestReporter) *MockStore {
	m := mocktest.Quiet(t, NewMockStore)
	m.EXPECT().Save(gomock.Any(), gomock.Any()).DoAndReturn(func(_ context.Context, events []graspsync.Incoming) ([]graspsync.Outcome, error) {
		outcomes := make([]graspsync.Outcome, len(events))
		for i := range outcomes {
			outcomes[i].Result = graspsync.Stored
		}
		return outcomes, nil
	}).AnyTimes()
	m.EXPECT().Has(gomock.Any(), gomock.Any()).DoAndReturn(func(_ context.Context, ids []graspsync.EventID) ([]bool, error) {
		return make([]bool, len(ids)), nil
	}).AnyTimes()
	return m
}

// NewQuietTransport returns a mock of a Transport that connects to quiet mocks of a Conn. An
// expectation of a method replaces its default answer.
func NewQuietTransport(t gomock.TestReporter) *MockTransport {
	m := mocktest.Quiet(t, NewMockTransport)
	m.EXPECT().Dial(gomock.Any(), gomock.Any()).DoAndReturn(func(context.Context, graspsync.RelayURL) (relaysync.Conn, error) {
		return NewQuietConn(t), nil
	}).AnyTimes()
	return m
}

// NewQuietConn returns a mock of a connection to a relay that never answers. An expectation of a
// method replaces its default answer.
func NewQuietConn(t gomock.TestReporter) *MockConn {
	m := mocktest.Quiet(t, NewMockConn)
	m.EXPECT().Receive(gomock.Any()).DoAndReturn(func(ctx context.Context) (wire.Message, error) {
		<-ctx.Done()
		return wire.Message{}, context.Cause(ctx)
	}).AnyTimes()
	return m
}

// NewQuietPolicy returns a mock of a Policy that accepts each event and lists no repository. An
// expectation of a method replaces its default answer.
func NewQuietPolicy(t gomock.TestReporter) *MockPolicy {
	m := mocktest.Quiet(t, NewMockPolicy)
	m.EXPECT().Judge(gomock.Any(), gomock.Any(), gomock.Any(), gomock.Any()).Return(graspsync.Verdict{Decision: graspsync.Accept}, nil).AnyTimes()
	return m
}
