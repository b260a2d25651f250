// Package purgatorymock contains gomock mocks of the interfaces of package purgatory, for tests
// that check calls and arguments. Package fetchtest contains working fakes of repositories and git
// servers.
//
//	relay := purgatorymock.NewQuietRelay(t) // answers every call
//	relay.EXPECT().Save(gomock.Any(), event).Return(nil)
//
// A mock of NewMockRelay fails the test on each unexpected call. A mock of NewQuietRelay answers all
// calls, and a test states only the calls that matter to it.
//
// The mocks are generated. Run go generate after a change of an interface.
package purgatorymock

//go:generate env GOWORK=off go tool -modfile=../../internal/tools/go.mod mockgen -typed -write_package_comment=false -source=../interfaces.go -exclude_interfaces=Observation -destination=mocks.go -package=purgatorymock
//go:generate env GOWORK=off go tool -modfile=../../internal/tools/go.mod goimports -local github.com/graspsync/graspsync -w .
