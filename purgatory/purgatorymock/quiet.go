package purgatorymock

import (
	"go.uber.org/mock/gomock"

	"github.com/graspsync/graspsync/internal/mocktest"
	"github.com/graspsync/graspsync/purgatory"
)

// NewQuietRelay returns a mock of a relay that serves nothing, lists each announcement, and saves
// each event. An expectation of a method replaces its default answer.
func NewQuietRelay(t gomock.TestReporter) *MockRelay {
	m := mocktest.Quiet(t, NewMockRelay)
	m.EXPECT().Lists(gomock.Any()).Return(true).AnyTimes()
	return m
}

// NewQuietRepositories returns a mock of Repositories without a repository. An expectation of a
// method replaces its default answer.
func NewQuietRepositories(t gomock.TestReporter) *MockRepositories {
	m := mocktest.Quiet(t, NewMockRepositories)
	m.EXPECT().Lock(gomock.Any(), gomock.Any()).Return("", func() {}, purgatory.ErrNoRepository).AnyTimes()
	return m
}

// NewQuietGitFetcher returns a mock of a GitFetcher whose servers have no objects. An expectation of
// a method replaces its default answer.
func NewQuietGitFetcher(t gomock.TestReporter) *MockGitFetcher {
	m := mocktest.Quiet(t, NewMockGitFetcher)
	m.EXPECT().Fetch(gomock.Any(), gomock.Any()).Return(purgatory.ErrNotServed).AnyTimes()
	return m
}
